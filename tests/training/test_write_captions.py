"""What captioners write of uncaptioned pictures is a set that is trained on, but teaches no new words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from models.captioner import Captioner
from models.decoding import Hypothesis
from models.rivals import Candidate, Fusion
from models.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.stats import Stats, StreamConfig
from models.streams import InputStream
from models.vocabulary import Vocabulary
from tests.models.tiny import randomised, stats_config
from tests.training.tiny_corpus import Averages, write_corpus
from training import write_captions
from training.corpus import read_items
from training.dataset import WRITTEN, Describer, load_training_sets
from training.meal import Meal
from training.recipes import DEMO
from training.run import Run
from training.session import begun
from training.write_captions import app, document, names_in, sure_of, write

VOCABULARY = Vocabulary(["red", "green", "circle", "square", "a", "the"])
FOUND = Hypothesis((), (), 0.0, 0.0, True, None)


def fusion() -> Fusion:
    members: dict[str, Captioner[Any, Any]] = {}
    for seed in (1, 2):
        member = Stats(stats_config(StreamConfig(name="grid", width=8)), VOCABULARY)
        randomised(member, seed)
        members[str(seed)] = member.eval()
    torch.manual_seed(5)
    config = SemanticEmbeddingConfig(streams=(InputStream(name="grid", width=8),), words=6, joint=8)
    return Fusion(members, SemanticEmbedding(config, VOCABULARY).eval())


def candidate(words: str, merit: float) -> Candidate:
    return Candidate("stats", 0, tuple(words.split()), FOUND, merit=merit)


@pytest.fixture
def told_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny captioners are sure of nothing."""
    monkeypatch.setattr(write_captions, "LEAST_MERIT", -100.0)


def test_what_is_sure_is_near_the_best_and_five_at_most() -> None:
    rivals = [candidate(f"a {i}", 0.25 - i / 8) for i in range(8)]
    assert sure_of(rivals) == ["a 0", "a 1", "a 2"]
    assert len(sure_of([candidate("a", 0.5)] * 8)) == 5
    assert sure_of([candidate("a dog", -0.01)]) == []


@pytest.mark.usefixtures("told_all")
def test_a_picture_is_captioned_alike_whatever_its_companions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, _ = write_corpus(tmp_path, 10)
    names, judges = names_in(archive), fusion()
    assert len(names) == 10
    together = dict(write(judges, [Averages()], archive, names))
    monkeypatch.setattr(write_captions, "GROUP", 3)
    assert dict(write(judges, [Averages()], archive, names)) == together
    assert together.keys() == set(names)
    assert len({captions[0] for captions in together.values()}) > 1


def test_the_document_is_read_like_a_set_that_people_captioned(tmp_path: Path) -> None:
    written = {"COCO_0012.jpg": ["a dog", "the dog"], "COCO_0031.jpg": ["a cat"], "COCO_0040.jpg": []}
    file = tmp_path / "written_captions.json"
    file.write_text(json.dumps(document(written)))
    first, second = read_items(file, "train")
    assert (first.id, first.files, first.captions) == (
        f"{WRITTEN}12",
        ("COCO_0012.jpg",),
        ("a dog", "the dog"),
    )
    assert (second.id, second.captions) == (f"{WRITTEN}31", ("a cat",))
    assert document({"alone.png": ["a dog"]})["images"][0]["id"] == "alone"


@pytest.mark.usefixtures("told_all")
def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, _ = write_corpus(tmp_path, 6)
    names = names_in(archive)
    networks = Meal(None, ("grid",), (Describer(Averages(), 1),))  # type: ignore[arg-type]
    monkeypatch.setattr(Meal, "of", lambda *_: networks)
    monkeypatch.setattr(write_captions, "_fusion", lambda _: fusion())
    out, whole = tmp_path / "out.json", tmp_path / "whole.json"
    assert CliRunner().invoke(app, ["--pictures", str(archive), "--out", str(whole)]).exit_code == 0
    done = json.dumps([names[0], ["what was written before"]]) + "\n"
    out.with_suffix(".partial.jsonl").write_text(done + '["' + names[1])  # killed within the second line
    result = CliRunner().invoke(app, ["--pictures", str(archive), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "of 6 of 6 pictures" in result.output
    assert not out.with_suffix(".partial.jsonl").exists()
    of_first, *others = [item.captions for item in read_items(out)]
    assert of_first == ("what was written before",)
    assert others == [item.captions for item in read_items(whole)][1:]


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--pictures", str(tmp_path), "--out", str(tmp_path / "o.json")])
    assert result.exit_code == 2
    assert "holds no picture" in result.output


def test_written_captions_are_trained_on_and_add_no_words(tmp_path: Path) -> None:
    for name in ("flickr8k", "written"):
        archive, captions = write_corpus(tmp_path / name, 8)
        document = json.loads(captions.read_text())
        if name == "written":
            for annotation in document["annotations"]:
                annotation["caption"] = "an unheard word"
        (tmp_path / f"{name}_captions.json").write_text(json.dumps(document))
        archive.rename(tmp_path / f"{name}_train.tar")
    networks = Meal(None, ("grid",), (Describer(Averages(), 5),))  # type: ignore[arg-type]
    items = load_training_sets(networks.describers, tmp_path, tmp_path / "cache")
    assert sum(item.id.startswith(WRITTEN) for item in items) == 8
    recipe = DEMO.model_copy(update={"held_out": 2, "vocabulary_size": 60})
    trainer, _ = begun(recipe, networks, tmp_path, tmp_path / "cache", Run(tmp_path / "run"))
    assert any(item.id.startswith(WRITTEN) for item in trainer.batches.items)
    assert "red" in trainer.batches.vocabulary.words
    assert "unheard" not in trainer.batches.vocabulary.words


def test_a_recipe_for_one_set_trains_on_it_alone_with_the_words_of_all(tmp_path: Path) -> None:
    networks = Meal(None, ("grid",), (Describer(Averages(), 5),))  # type: ignore[arg-type]
    for name in ("flickr8k", "coco"):
        archive, captions = write_corpus(tmp_path / name, 8)
        captions.rename(tmp_path / f"{name}_captions.json")
        archive.rename(tmp_path / f"{name}_train.tar")
    recipe = DEMO.model_copy(update={"held_out": 2})
    trainer, _ = begun(recipe, networks, tmp_path, tmp_path / "cache", Run(tmp_path / "run"))
    chosen = trainer.batches.of_ids("flickr8k/")
    assert {item.id.split("/")[0] for item in chosen.items} == {"flickr8k"}
    assert chosen.vocabulary is trainer.batches.vocabulary
    with pytest.raises(FileNotFoundError, match="no training item's id begins with 'msvd/'"):
        trainer.batches.of_ids("msvd/")
