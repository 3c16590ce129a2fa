"""A captioner and the embedding move from one grid of the demo's networks to another of the same width."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from extractors.catalog.tuned_pair import TUNED_GRID, make_spec
from extractors.features import StreamSpec
from lab.__main__ import lab as app
from lab.pictures.picture_batches import CachedNetwork
from lab.pictures.picture_features import VIEWS
from lab.pictures.picture_inputs import PICTURE_NETWORKS, PictureInputs
from lab.pictures.session import match_weights, train_captioner, train_semantic_embedding
from models.captioners.registry import find_stream_set
from models.captioners.semantic_embedding import SemanticEmbedding
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.checkpoint import Card, CheckpointError, load_checkpoint, load_embedding, save_checkpoint
from models.feature_sources.stream_checks import lead_stream
from models.stream_set import DEMO
from models.vocabulary import Vocabulary
from tests.training.small_demo import use_demo_config, use_recipe
from tests.training.tiny_corpus import Averages, write_corpus
from training.optimization.run_folder import RunSettings
from training.recipes.demo_recipes import DEMO_EMBEDDING, find_recipe

RECIPE = find_recipe("demo-moved", "stats").model_copy(
    update={
        "videos": 4,
        "captions": 2,
        "max_length": 8,
        "steps": 2,
        "warmup": 1,
        "validate_every": 2,
        "held_out": 4,
        "average_decay": 0.5,
    }
)
PICTURES = 16
UNTOUCHED = StreamSpec("demo shapes", "a" * 64, "none")


class WideAverages(Averages):
    """A cell's eight numbers, repeated up to the width of the image networks' grid."""

    def __init__(self, stream: str, spec: StreamSpec) -> None:
        super().__init__()
        self.shapes, self.spec = {stream: (49, 1280)}, spec

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        return {
            name: np.tile(super(WideAverages, self).of_pictures(pictures)["grid"], (1, 1, 160))
            for name in self.shapes
        }


def config(name: str = "grid") -> STaTSConfig:
    streams = (StreamConfig(name=name, width=1280),)
    return STaTSConfig(
        streams=streams, embedded=8, words=8, attention=4, hidden=9, query=8, dropout=0.1, tie_words=True
    )


def _take(network: CachedNetwork, _: torch.device) -> CachedNetwork:
    return network


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, every_step_is_logged: None) -> None:
    """Small captioners over drawn features."""
    tuned = make_spec("t" * 64, UNTOUCHED.weights_sha256, "b" * 64)
    for extractor, network in {
        "efficientnet-lite2": WideAverages("grid", UNTOUCHED),
        "tuned_pair": WideAverages(TUNED_GRID, tuned),
    }.items():
        monkeypatch.setitem(PICTURE_NETWORKS, extractor, partial(_take, CachedNetwork(network, VIEWS)))
    use_demo_config(monkeypatch, "stats", config())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn shapes where the demo's first set lies."""
    folder = tmp_path_factory.mktemp("data")
    archive, captions = write_corpus(folder, PICTURES)
    archive.rename(folder / "flickr8k_train.tar")
    captions.rename(folder / "flickr8k_captions.json")
    return folder


def vocabulary(data: Path) -> Vocabulary:
    """Of the pictures that a run trains on, as the run finds it."""
    kept, _ = PictureInputs.build(DEMO, ["grid"]).items(data, data / "cache", RECIPE.held_out)
    return Vocabulary.from_captions((c for item in kept for c in item.captions), size=RECIPE.vocabulary_size)


@pytest.fixture
def start(data: Path, tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "start" / "stats.safetensors", data, {"grid": UNTOUCHED}, "demo")


def checkpoint(path: Path, data: Path, streams: dict[str, StreamSpec], fed_by: str) -> Path:
    torch.manual_seed(3)
    path.parent.mkdir(exist_ok=True)
    captioner = STaTS(config(next(iter(streams))), vocabulary(data))
    save_checkpoint(path, captioner, Card("stats", streams, {}, {"streams": fed_by}))
    return path


def settings(out: Path, data: Path) -> RunSettings:
    return RunSettings(out, data / "cache", print, threads=1)


def test_a_captioner_moves_to_the_tuned_grid_with_a_teacher_on_another(
    start: Path, data: Path, tmp_path: Path
) -> None:
    """Each is fed its own; teachers may read either grid."""
    there = PICTURE_NETWORKS["tuned_pair"](torch.device("cpu")).network.spec
    teacher = checkpoint(tmp_path / "tuned.safetensors", data, {TUNED_GRID: there}, "demo-tuned")
    moved = train_captioner(
        "stats",
        RECIPE.model_copy(update={"soft_weight": 0.5}),
        data,
        settings(tmp_path / "run", data),
        start,
        find_stream_set("demo-tuned"),
        [str(teacher), str(start)],
    )
    kept = load_checkpoint(moved)
    assert kept.card.streams == {TUNED_GRID: there}
    assert kept.card.training["streams"] == "demo-tuned"
    assert lead_stream(kept) == TUNED_GRID


def test_the_embedding_moves_to_the_tuned_grid(data: Path, tmp_path: Path) -> None:
    """From weights of the untouched one, and not from a captioner's."""
    recipe = DEMO_EMBEDDING.model_copy(
        update={"videos": 4, "steps": 2, "warmup": 1, "validate_every": 1, "held_out": 4}
    )
    first = train_semantic_embedding(recipe, data, settings(tmp_path / "first", data))
    assert load_embedding(first)[1].streams.keys() == {"grid"}
    still = recipe.model_copy(update={"learning_rate": 0.0})
    moved = train_semantic_embedding(
        still, data, settings(tmp_path / "moved", data), first, find_stream_set("demo-tuned")
    )
    (begun, _), (kept, card) = load_embedding(first), load_embedding(moved)
    assert card.streams.keys() == {TUNED_GRID}
    for name, value in kept.state_dict().items():
        torch.testing.assert_close(value, begun.state_dict()[name])
    longer = SemanticEmbedding(begun.config.model_copy(update={"joint": 8}), begun.vocabulary)
    with pytest.raises(CheckpointError, match="another vocabulary or config than this run"):
        match_weights(longer, begun, first)


def test_a_start_is_fed_by_its_own_stream_set_unless_another_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a captioner of the tuned grid does not go back to the untouched one unasked."""
    there = PICTURE_NETWORKS["tuned_pair"](torch.device("cpu")).network.spec
    tuned = checkpoint(tmp_path / "tuned.safetensors", data, {TUNED_GRID: there}, "demo-tuned")
    use_recipe(monkeypatch, RECIPE, RECIPE.name)
    for asked, expected in ([], {TUNED_GRID}), (["--streams", "demo"], {"grid"}):
        out = tmp_path / "run" / str(len(asked))
        given = ["--data", str(data), "--cache", str(data / "cache"), "--out", str(out), "--threads", "1"]
        command = ["train", "stats", "--recipe", "demo-moved", "--start", str(tuned), *given, *asked]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert load_checkpoint(out / "best.safetensors").card.streams.keys() == expected
