"""The bench on drawn shapes: real rows with the demo's captioners, two steps each."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lab.ablations import row_training
from lab.ablations.corpus import AblationCorpus
from lab.ablations.families import FAMILIES
from lab.ablations.results import AblationPlan, AblationResults, AnotherPlan
from lab.ablations.row import (
    RECIPE,
    SEEDS,
    AblationJob,
    NotThere,
    ReadingSpec,
    RowFamily,
    TrainingSpec,
    UnknownRow,
    list_jobs,
)
from lab.ablations.row_training import build_captioner, build_recipe, locate_checkpoint
from lab.ablations.runner import EMBEDDING, FUSED_WEIGHTS, AblationRunner
from lab.ablations.word_weights import PARTS, count_common_columns, load_word_weights
from models.captioners.registry import captioner_class
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.checkpoint import Card, save_checkpoint
from models.combining.reranking import LIKELIHOOD_WEIGHT
from models.vocabulary import Vocabulary
from tests.lab.demo_shapes import HELD_OUT, demo_shapes
from tests.training.stopped import stopped_before
from training.batches.picture_batches import PictureBatches

PLAN = AblationPlan(steps=2, judged=HELD_OUT, words=False)
#: All kinds of training and of reading, two rows and more of each family, what is read before what reads it.
ROWS = {
    "stats": ("stats", "stats-lstm", "stats-attention"),
    "g2l": ("g2l", "g2l-global"),
    "refocus": ("refocus", "refocus-plain", "refocus-step-1"),
    "fusion": ("fusion-spatial", "fusion-temporal", "fusion-fused", "fusion-judged", "fusion-averaged"),
    "dual_afr": ("dual-afr-hard", "dual-afr-mlp"),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> AblationCorpus:
    return demo_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    update = {"videos": 3, "captions": 2, "lengths": (0.0, 0.0, 1.0)}
    monkeypatch.setattr(row_training, "RECIPE", RECIPE.model_copy(update=update))


def bench(corpus: AblationCorpus, folder: Path) -> AblationRunner:
    weights = folder / "weights"
    weights.mkdir(exist_ok=True, parents=True)
    return AblationRunner(PLAN, AblationResults(folder / "out"), lambda _: corpus, weights)


def job(name: str) -> AblationJob:
    return next(each for each in list_jobs(FAMILIES, rows=[name]) if each.row.name == name)


def with_embedding(corpus: AblationCorpus, runner: AblationRunner) -> None:
    torch.manual_seed(5)
    embedding = SemanticEmbedding(SemanticEmbeddingConfig.demo(), corpus.vocabulary)
    card = Card(embedding.name, {"grid": corpus.specs["grid"]}, {}, {})
    save_checkpoint(runner.weights / EMBEDDING, embedding, card)


@pytest.mark.parametrize("family", ROWS)
def test_rows_of_each_family_are_trained_read_scored_and_kept(
    family: str, corpus: AblationCorpus, tmp_path: Path
) -> None:
    runner = bench(corpus, tmp_path)
    with_embedding(corpus, runner)
    for name in ROWS[family]:
        result = runner.run(job(name))
        trained = isinstance(job(name).row.make, TrainingSpec)
        assert result.steps == (2 if trained else None)
        assert result.parameters > 100_000
        for eval_set in result.scores.values():
            assert len(eval_set.captions) == len(eval_set.cider) == HELD_OUT
            assert all(len(shares) == HELD_OUT for shares in eval_set.attention_shares.values())
        assert runner.results.load([job(name)]) == {name: [result]}
        measured = result.scores["shots"].attention_shares.keys()
        assert measured >= ({"chance", "attention"} if job(name).row.measures_attention else set())
        assert ("key_frame" in measured) == name.startswith("refocus")
    assert not list(runner.results.folder.glob("*/last.pt"))


def test_a_shipped_checkpoint_is_read_with_another_config(corpus: AblationCorpus, tmp_path: Path) -> None:
    """Without the file nothing is read."""
    runner = bench(corpus, tmp_path)
    with pytest.raises(NotThere, match=r"g2l\.safetensors"):
        runner.run(job("g2l-demo"))
    runner.run(job("g2l"))
    shutil.copy(
        locate_checkpoint(runner.results.run_folder(job("g2l").name)), runner.weights / "g2l.safetensors"
    )
    shots = runner.run(job("g2l-demo")).scores["shots"]
    assert shots == runner.results.load([job("g2l")])["g2l"][0].scores["shots"]
    masked = runner.run(job("g2l-demo-mask-al-50"))
    assert masked.scores.keys() == {"shots"}
    assert masked.parameters == runner.results.load([job("g2l")])["g2l"][0].parameters


def test_other_streams_than_the_pictures_have_are_refused(corpus: AblationCorpus, tmp_path: Path) -> None:
    runner = bench(corpus, tmp_path)
    runner.run(job("fusion-vanilla"))
    shutil.copy(
        locate_checkpoint(runner.results.run_folder(job("fusion-vanilla").name)),
        runner.weights / "g2l.safetensors",
    )
    lacking = replace(corpus, specs={})
    with pytest.raises(NotThere, match="reads 'grid'"):
        bench(lacking, tmp_path).run(job("g2l-demo"))


def test_rows_begin_with_the_shipped_words_that_all_of_them_have(
    corpus: AblationCorpus, tmp_path: Path
) -> None:
    """Where the rows' decoders read what they attend to in other widths, the words' columns alone."""
    runner = replace(bench(corpus, tmp_path), plan=PLAN.model_copy(update={"words": True}))
    with pytest.raises(NotThere, match=r"refocus\.safetensors.*--from-nothing"):
        runner.run(job("refocus-plain"))
    torch.manual_seed(3)
    shipped = TrainingSpec("refocus").build(corpus.vocabulary)
    specs = {"grid": corpus.specs["grid"]}
    save_checkpoint(runner.weights / "refocus.safetensors", shipped, Card(shipped.name, specs, {}, {}))
    words = load_word_weights(job("refocus-plain").family, corpus.vocabulary, runner.weights)
    decoder = {f"decoder.{name}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    assert words.keys() == {"word_embedding.weight", "output.weight", "output.bias"} | decoder
    assert words["decoder.weight_ih"].shape[1] == words["word_embedding.weight"].shape[1]
    for make in (
        TrainingSpec("refocus", {"encoder": "none"}),
        TrainingSpec("refocus", {"encoder": "kbigru", "spatial": False}),
    ):
        begun = build_captioner(make, corpus, 1, words).state_dict()
        for name, value in words.items():
            columns = value.shape[-1]
            ours, theirs = (of[name][..., -columns:] for of in (begun, shipped.state_dict()))
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    runner.run(job("refocus-plain"))


def test_words_of_other_captions_are_refused(corpus: AblationCorpus, tmp_path: Path) -> None:
    family = job("g2l").family
    other = TrainingSpec("g2l").build(Vocabulary(["other", "words"]))
    save_checkpoint(tmp_path / "g2l.safetensors", other, Card("g2l", {}, {}, {}))
    with pytest.raises(NotThere, match="knows other words"):
        load_word_weights(family, corpus.vocabulary, tmp_path)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_begins_with_its_embedding_and_output(family: RowFamily, corpus: AblationCorpus) -> None:
    common = {
        name for name in count_common_columns(family, corpus.vocabulary) if name.partition(".")[0] in PARTS
    }
    assert common >= {"word_embedding.weight", "output.weight", "output.bias"}


def test_a_shipped_checkpoint_is_fed_by_its_own_stream_set(corpus: AblationCorpus, tmp_path: Path) -> None:
    """Whatever the family's trained rows eat; and the embedding too, where captions are fused."""
    runner = bench(corpus, tmp_path)
    asked: list[str] = []

    def noted(streams: str) -> AblationCorpus:
        asked.append(streams)
        return corpus

    runner = replace(runner, corpus=noted)
    captioner = TrainingSpec("g2l").build(corpus.vocabulary)
    moved = Card("g2l", {"tuned_pair_grid": corpus.specs["grid"]}, {}, {"streams": "demo-tuned"})
    save_checkpoint(runner.weights / "g2l.safetensors", captioner, moved)
    with pytest.raises(NotThere, match="reads 'tuned_pair_grid', which 'demo' lacks"):
        runner.run(job("g2l-demo"))
    for name in ("fusion-spatial", "fusion-temporal"):
        runner.run(job(name))
    with_embedding(corpus, runner)
    for name in ("fusion-fused", "fusion-judged"):
        runner.run(job(name))
    assert asked == ["demo+demo-tuned", *["demo"] * 4]


def test_a_judged_row_weighs_what_is_served_and_a_fused_one_what_the_paper_has() -> None:
    runner = {row.name: row.make for family in FAMILIES for row in family.rows}
    for name, weight in (("fusion-fused", 0.0), ("fusion-judged", LIKELIHOOD_WEIGHT)):
        make = runner[name]
        assert isinstance(make, ReadingSpec)
        assert FUSED_WEIGHTS[make.how] == weight


def test_a_stopped_row_goes_on_to_the_weights_of_one_that_was_not(
    corpus: AblationCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = bench(corpus, tmp_path / "whole"), bench(corpus, tmp_path / "stopped")
    torch.set_num_threads(1)
    vanilla = job("fusion-vanilla")
    whole.run(vanilla)
    with monkeypatch.context() as patch:
        patch.setattr(PictureBatches, "at", stopped_before(1, PictureBatches))
        with pytest.raises(InterruptedError):
            stopped.run(vanilla)
    assert not stopped.results.has(vanilla)
    stopped.run(vanilla)
    ours, theirs = (
        load_file(locate_checkpoint(runner.results.run_folder(vanilla.name))) for runner in (stopped, whole)
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_another_plan_is_refused(tmp_path: Path) -> None:
    results = AblationResults(tmp_path / "out")
    results.follow(PLAN)
    results.follow(PLAN)
    with pytest.raises(AnotherPlan, match="give another --out"):
        results.follow(AblationPlan(steps=3, judged=HELD_OUT))


def test_headline_rows_come_first_and_further_seeds_last() -> None:
    jobs = list_jobs(FAMILIES)
    names = [each.name for each in jobs]
    assert len(names) == len(set(names))
    headline = sum(row.headline for family in FAMILIES for row in family.rows)
    assert headline == 2 * len(FAMILIES)
    assert all(each.row.headline and each.seed == SEEDS[0] for each in jobs[:headline])
    assert {each.seed for each in jobs[-2 * headline :]} == set(SEEDS[1:])
    for place, each in enumerate(jobs):
        make = each.row.make
        if isinstance(make, ReadingSpec) and not make.shipped:
            assert all(names.index(f"{of}-{each.seed}") < place for of in make.of)


def test_rows_are_chosen_with_what_they_read() -> None:
    for fused in ("fusion-fused", "fusion-judged"):
        assert _names(rows=[fused]) == {fused, "fusion-temporal", "fusion-spatial"}
    assert _names(only="g2l", rows=["g2l-demo"]) == {"g2l-demo"}
    with pytest.raises(UnknownRow, match="stats, g2l"):
        list_jobs(FAMILIES, "lstm")
    with pytest.raises(UnknownRow, match="'g3l'"):
        list_jobs(FAMILIES, rows=["g3l"])


def _names(only: str | None = None, rows: Sequence[str] = ()) -> set[str]:
    return {each.row.name for each in list_jobs(FAMILIES, only, rows)}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_row_changes_what_there_is_and_is_compared_within_its_family(family: object) -> None:
    [rows] = [each.rows for each in FAMILIES if each is family]
    names = {row.name for row in rows}
    assert rows[0].against is None
    for row in rows:
        assert row.against is None or row.against in names - {row.name}
        assert row.paper.endswith(".")
        if isinstance(row.make, TrainingSpec):
            fields = captioner_class(row.make.captioner).config_class.model_fields
            assert fields.keys() >= row.make.config.keys()
            assert type(RECIPE).model_fields.keys() >= row.make.recipe.keys()
        elif not row.make.shipped:
            assert names >= set(row.make.of)


@pytest.mark.parametrize(
    "name", [r.name for f in FAMILIES for r in f.rows if isinstance(r.make, TrainingSpec) and not r.headline]
)
def test_every_trained_row_is_another_captioner_or_trained_otherwise(
    name: str, corpus: AblationCorpus
) -> None:
    row, family = job(name).row, job(name).family
    assert isinstance(row.make, TrainingSpec)
    first = family.rows[0].make
    assert isinstance(first, TrainingSpec)
    runner, reference = (make.build(corpus.vocabulary) for make in (row.make, first))
    recipes = [build_recipe(replace(job(name), row=each), PLAN) for each in (row, family.rows[0])]
    assert runner.config != reference.config or recipes[0] != recipes[1] or runner.name != reference.name
    assert recipes[0].steps == PLAN.steps
    assert build_recipe(job(name), AblationPlan()).steps == family.steps
