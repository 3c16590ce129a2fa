"""What captioners write of uncaptioned pictures is a set that is trained on, but teaches no new words."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lab.checkpoints import write_captions
from lab.checkpoints.write_captions import app, choose_sure_captions, list_pictures, make_document, write
from models.captioner import AnyCaptioner
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.captioners.stats.network import STaTS, StreamConfig
from models.combining.reranking import Candidate, Reranker
from models.decoding.decode import Hypothesis
from models.inputs import InputStream
from models.stream_set import DEMO as DEMO_STREAMS
from models.vocabulary import Vocabulary
from tests.models.tiny import randomised, stats_config
from tests.training.tiny_corpus import Averages, write_corpus
from training.batches.archives import read_items
from training.batches.picture_batches import WRITTEN, CachedNetwork, load_training_sets
from training.batches.picture_inputs import PictureInputs
from training.optimization.run_folder import RunSettings
from training.recipes.demo_recipes import DEMO
from training.sessions.pictures import PictureTraining

VOCABULARY = Vocabulary(["red", "green", "circle", "square", "a", "the"])
FOUND = Hypothesis((), (), 0.0, 0.0, True, None)


def fusion() -> Reranker:
    members: dict[str, AnyCaptioner] = {}
    for seed in (1, 2):
        member = STaTS(stats_config(StreamConfig(name="grid", width=8)), VOCABULARY)
        randomised(member, seed)
        members[str(seed)] = member.eval()
    torch.manual_seed(5)
    config = SemanticEmbeddingConfig(streams=(InputStream(name="grid", width=8),), words=6, joint=8)
    return Reranker(members, SemanticEmbedding(config, VOCABULARY).eval())


def candidate(words: str, merit: float) -> Candidate:
    return Candidate("stats", 0, tuple(words.split()), FOUND, merit=merit)


@pytest.fixture
def every_candidate_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny captioners are sure of nothing."""
    monkeypatch.setattr(write_captions, "LEAST_MERIT", -100.0)


def test_what_is_sure_is_near_the_best_and_five_at_most() -> None:
    rivals = [candidate(f"a {i}", 0.25 - i / 8) for i in range(8)]
    assert choose_sure_captions(rivals) == ["a 0", "a 1", "a 2"]
    assert len(choose_sure_captions([candidate("a", 0.5)] * 8)) == 5
    assert choose_sure_captions([candidate("a dog", -0.01)]) == []


def test_what_is_empty_or_cut_is_not_learned() -> None:
    cut = replace(candidate("a dog on a", 0.4), hypothesis=replace(FOUND, finished=False))
    assert choose_sure_captions([cut, candidate("", 0.3), candidate("a dog", 0.2)]) == ["a dog"]


@pytest.mark.usefixtures("every_candidate_is_sure")
def test_a_picture_is_captioned_alike_whatever_its_companions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, _ = write_corpus(tmp_path, 10)
    names, judges = list_pictures(archive), fusion()
    assert len(names) == 10
    together = dict(write(judges, [Averages()], archive, names))
    monkeypatch.setattr(write_captions, "GROUP", 3)
    assert dict(write(judges, [Averages()], archive, names)) == together
    assert together.keys() == set(names)
    assert len({captions[0] for captions in together.values()}) > 1


def test_the_document_is_read_like_a_set_that_people_captioned(tmp_path: Path) -> None:
    written = {"COCO_0012.jpg": ["a dog", "the dog"], "COCO_0031.jpg": [], "COCO_0031.png": ["a cat"]}
    file = tmp_path / "written_captions.json"
    file.write_text(json.dumps(make_document(written)))
    first, second = read_items(file, "train")
    assert (first.id, first.files, first.captions) == (
        f"{WRITTEN}0",
        ("COCO_0012.jpg",),
        ("a dog", "the dog"),
    )
    assert (second.id, second.captions) == (f"{WRITTEN}2", ("a cat",))


def wrote(archive: Path, out: Path, *others: str) -> Any:
    return CliRunner(env={"COLUMNS": "400"}).invoke(
        app, ["--pictures", str(archive), "--out", str(out), *others]
    )


@pytest.fixture
def tiny_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = PictureInputs(DEMO_STREAMS, ("grid",), (CachedNetwork(Averages(), 1),))
    monkeypatch.setattr(write_captions, "load_writers", lambda named: (fusion(), inputs, str(named)))


@pytest.mark.usefixtures("every_candidate_is_sure", "tiny_writers")
def test_a_stopped_run_goes_on_and_another_does_not(tmp_path: Path) -> None:
    archive, _ = write_corpus(tmp_path, 6)
    names = list_pictures(archive)
    out, whole = tmp_path / "out.json", tmp_path / "whole.json"
    assert wrote(archive, whole).exit_code == 0
    stopped = write_captions._name_unfinished(out, names, str(()))
    done = json.dumps([names[0], ["what was written before"]]) + "\n"
    stopped.write_text(done + '["' + names[1])  # killed within the second line
    assert wrote(archive, out, "--member", "somebody_else").exit_code == 0
    assert read_items(out) == [replace(item, id=f"out.json/{item.id[11:]}") for item in read_items(whole)]
    result = wrote(archive, out)
    assert result.exit_code == 0, result.output
    assert "of 6 of 6 pictures" in result.output
    assert not list(tmp_path.glob("*.jsonl"))
    of_first, *others = [item.captions for item in read_items(out)]
    assert of_first == ("what was written before",)
    assert others == [item.captions for item in read_items(whole)][1:]


@pytest.mark.usefixtures("tiny_writers")
def test_where_nothing_is_sure_nothing_is_written(tmp_path: Path) -> None:
    archive, _ = write_corpus(tmp_path, 3)
    result = wrote(archive, tmp_path / "out.json")
    assert result.exit_code == 1
    assert "sure of none of 3 pictures" in result.output
    assert not (tmp_path / "out.json").exists()


def test_pictures_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    result = wrote(tmp_path, tmp_path / "o.json")
    assert result.exit_code == 2
    assert "holds no picture" in result.output
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        for folder in ("a", "b"):
            tar.addfile(tarfile.TarInfo(f"{folder}/1.png"))
    result = wrote(tmp_path / "twice.tar", tmp_path / "o.json")
    assert result.exit_code == 2
    assert "two pictures called 1.png" in result.output


def test_a_member_that_is_unknown_is_told(tmp_path: Path) -> None:
    archive, _ = write_corpus(tmp_path, 1)
    result = wrote(archive, tmp_path / "o.json", "--member", "nobody")
    assert result.exit_code == 2
    assert "nobody" in result.output


def test_written_captions_are_trained_on_and_add_no_words(tmp_path: Path) -> None:
    for name in ("flickr8k", "written"):
        archive, captions = write_corpus(tmp_path / name, 8)
        document = json.loads(captions.read_text())
        if name == "written":
            for annotation in document["annotations"]:
                annotation["caption"] = "an unheard word"
        (tmp_path / f"{name}_captions.json").write_text(json.dumps(document))
        archive.rename(tmp_path / f"{name}_train.tar")
    networks = PictureInputs(DEMO_STREAMS, ("grid",), (CachedNetwork(Averages(), 5),))
    items = load_training_sets(networks.describers, tmp_path, tmp_path / "cache")
    assert sum(item.id.startswith(WRITTEN) for item in items) == 8
    recipe = DEMO.model_copy(update={"held_out": 2, "vocabulary_size": 60})
    settings = RunSettings(tmp_path / "run", tmp_path / "cache", print)
    batches = PictureTraining.prepare(recipe, networks, tmp_path, settings).batches
    assert any(item.id.startswith(WRITTEN) for item in batches.items)
    assert "red" in batches.vocabulary.words
    assert "unheard" not in batches.vocabulary.words


def test_a_recipe_for_one_set_trains_on_it_alone_with_the_words_of_all(tmp_path: Path) -> None:
    inputs = PictureInputs(DEMO_STREAMS, ("grid",), (CachedNetwork(Averages(), 5),))
    for name in ("flickr8k", "coco"):
        archive, captions = write_corpus(tmp_path / name, 8)
        text = captions.read_text().replace("grey", name)
        (tmp_path / f"{name}_captions.json").write_text(text)
        archive.rename(tmp_path / f"{name}_train.tar")

    def trained_on(ids: str) -> PictureTraining:
        recipe = DEMO.model_copy(update={"held_out": 2, "ids": ids})
        settings = RunSettings(tmp_path / "run", tmp_path / "cache", print)
        return PictureTraining.prepare(recipe, inputs, tmp_path, settings)

    training = trained_on("coco/")
    batches = training.batches
    assert {item.id.split("/")[0] for item in batches.items} == {"coco"}
    assert set(training.checkpoints.ids) == {item.id for item in batches.items}
    assert batches.vocabulary.words == trained_on("").batches.vocabulary.words
    assert "flickr8k" in batches.vocabulary.words
    assert len(training.held_out) == 2
    with pytest.raises(FileNotFoundError, match="lacks msvd, which demo trains on"):
        trained_on("msvd/")
