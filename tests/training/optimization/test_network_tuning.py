"""A captioner and the end of its image networks are trained as one, and kept as two."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from app.cli.main import cli as app
from extractors.catalog.efficientnet_lite2 import FIRST_BLOCKS, load_packaged
from extractors.catalog.tuned_pair import TUNED_GRID, PairEnd, from_checkpoint, make_spec, save_changes
from extractors.features import StreamSpec
from extractors.files import sha256_of
from extractors.networks.efficientnet_lite import EfficientNetLite
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.load import build_seeded
from extractors.pretrained.parameters import randomize
from models.captioners.semantic_embedding import SemanticEmbedding
from models.captioners.stats.network import STaTS, STaTSConfig, StreamConfig
from models.checkpoint import Card, CheckpointError, load_checkpoint, load_embedding, save_checkpoint
from models.feature_sources.stream_checks import lead_stream
from models.inputs import Batch
from models.stream_set import DEMO, find_stream_set
from models.vocabulary import Vocabulary
from tests.lab.demo_shapes import DemoStreams
from tests.models.tiny import tiny_refocus
from tests.training.stopped import stopped_before
from tests.training.tiny_corpus import Averages, write_corpus
from training.batches.picture_batches import CachedNetwork, PictureBatches
from training.batches.picture_features import VIEWS
from training.batches.picture_inputs import PICTURE_NETWORKS, PictureInputs
from training.optimization import network_tuning
from training.optimization.network_tuning import LITE3_GRID, STAGE, NotOnGrid, TunedCaptioner
from training.optimization.run_folder import RunSettings
from training.optimization.validation import PictureValidation
from training.recipes.demo_recipes import DEMO_CONFIGS, DEMO_EMBEDDING, RECIPES
from training.sessions.pictures import match_weights, train_captioner, train_semantic_embedding
from training.sessions.tuning import CHANGES, load_start_end, tune_network

RECIPE = RECIPES["demo-tuned"].model_copy(
    update={
        "videos": 4,
        "captions": 2,
        "max_length": 8,
        "steps": 4,
        "warmup": 1,
        "learning_rate": 1e-3,
        "validate_every": 2,
        "held_out": 4,
        "average_decay": 0.5,
    }
)
PICTURES = 16


def config(name: str = "grid") -> STaTSConfig:
    streams = (StreamConfig(name=name, width=1280),)
    return STaTSConfig(
        streams=streams, embedded=8, words=8, attention=4, hidden=9, query=8, dropout=0.1, tie_words=True
    )


#: Stream → (cells, channels).
SHAPES = {**DemoStreams.shapes, TUNED_GRID: (49, 1280), LITE3_GRID: (49, 384)}
#: Of Lite3's drawn stream.
BESIDE = StreamSpec("demo shapes beside", "b" * 64, "none")
PACKAGED = (DemoStreams.spec.weights_sha256, BESIDE.weights_sha256)


class OneStream(DemoStreams):
    """Of the drawn demo streams those that one extractor makes."""

    def __init__(self, *names: str, spec: StreamSpec = DemoStreams.spec) -> None:
        super().__init__()
        self.shapes = {name: SHAPES[name] for name in names}
        self.spec = spec

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        cells = Averages.of_pictures(self, pictures)["grid"]
        finer = cells.reshape(-1, 7, 7, 8).repeat(2, axis=1).repeat(2, axis=2).reshape(-1, 196, 8)
        by_count = {49: cells, 196: finer}
        return {n: np.tile(by_count[count], (1, 1, width // 8)) for n, (count, width) in self.shapes.items()}


def _take(network: CachedNetwork, _: torch.device) -> CachedNetwork:
    return network


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, every_step_is_logged: None) -> None:
    """Small captioners over drawn features."""
    tuned = make_spec("t" * 64, *PACKAGED)
    for extractor, network in {
        "efficientnet-lite2": OneStream("grid"),
        "efficientnet-lite2-stages": OneStream("stage_14", "stage_7"),
        "efficientnet-lite3": OneStream(LITE3_GRID, spec=BESIDE),
        "tuned_pair": OneStream(TUNED_GRID, spec=tuned),
    }.items():
        monkeypatch.setitem(PICTURE_NETWORKS, extractor, partial(_take, CachedNetwork(network, VIEWS)))
    monkeypatch.setitem(DEMO_CONFIGS, "stats", config)


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
    return checkpoint(tmp_path / "start" / "stats.safetensors", data, {"grid": DemoStreams.spec}, "demo")


def checkpoint(path: Path, data: Path, streams: dict[str, StreamSpec], fed_by: str) -> Path:
    torch.manual_seed(3)
    path.parent.mkdir(exist_ok=True)
    captioner = STaTS(config(next(iter(streams))), vocabulary(data))
    save_checkpoint(path, captioner, Card("stats", streams, {}, {"streams": fed_by}))
    return path


def settings(out: Path, data: Path) -> RunSettings:
    return RunSettings(out, data / "cache", print, threads=1)


def tune(start: Path, data: Path, out: Path, *teachers: Path, **changes: Any) -> Path:
    recipe = RECIPE.model_copy(update=changes)
    return tune_network(
        "stats", recipe, data, settings(out, data), start, [str(teacher) for teacher in teachers]
    )


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "log.csv").open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def drawn_end() -> PairEnd:
    """Lite3's half sees something too."""
    end = PairEnd(build_seeded(lambda: randomize(EfficientNetLite())))
    torch.nn.init.normal_(end.lite3_head.weight, std=0.05, generator=torch.Generator().manual_seed(4))
    return end


def cells(name: str, videos: int = 2, steps: int = 3) -> Batch:
    """Of one network's stream; the second video's last step is padding."""
    count, width = SHAPES[name]
    times = torch.arange(steps, dtype=torch.float64).expand(videos, steps)
    mask = torch.ones(videos, steps, dtype=torch.bool)
    mask[1, 2] = False
    return Batch(
        times=torch.stack([times, times + 1], 2),
        values=torch.randn(videos, steps, count, width, generator=torch.Generator().manual_seed(count)),
        frame_mask=mask,
        region_mask=mask.unsqueeze(2).expand(-1, -1, count),
    )


def batches() -> list[Batch]:
    """As ``TunedCaptioner`` is given them."""
    return [cells(STAGE), cells(LITE3_GRID)]


@pytest.fixture(scope="module")
def tuned() -> TunedCaptioner:
    torch.manual_seed(0)
    return TunedCaptioner(STaTS(config(TUNED_GRID), Vocabulary(["a", "red", "square"])), drawn_end())


def test_the_grid_is_what_the_end_makes_of_each_step(
    tuned: TunedCaptioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training and, in slices, in evaluation; times stay, and steps that are padding show nothing."""
    monkeypatch.setattr(network_tuning, "SLICE", 4)
    stage, beside = batches()
    for seen in (tuned.train().compute_grid(stage, beside), tuned.eval().compute_grid(stage, beside)):
        assert seen.values.shape == (2, 3, 49, 1280)
        for video, step in ((0, 1), (1, 0), (1, 1)):
            [expected] = tuned.end(stage.values[video, step][None], beside.values[video, step][None])
            torch.testing.assert_close(seen.values[video, step], expected, atol=1e-4, rtol=1e-3)
        assert torch.equal(seen.region_mask, stage.frame_mask.unsqueeze(2).expand(-1, -1, 49))
        assert not seen.values[1, 2].any()
        assert seen.times is stage.times
    assert not tuned.eval().compute_grid(stage, beside).values.requires_grad


def test_both_get_their_gradients_in_half_precision_too(tuned: TunedCaptioner) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        memory: Any = tuned.train().encode_batches(batches())
        word = tuned.first_word(memory, 2)
        log_probs, _, attention = tuned.step(tuned.start(memory, 2), word, memory)
    assert attention is not None
    assert attention.temporal.shape == (4, 3)
    assert attention.loss is not None
    log_probs[:, 3].sum().backward()
    trained = (f"end.blocks.{FIRST_BLOCKS}.depthwise.conv", "end.head", "end.lite3_head", "captioner.project")
    for part in trained:
        gradients = [parameter.grad for parameter in tuned.get_submodule(part).parameters()]
        assert all(gradient is not None and gradient.any() for gradient in gradients)
    tuned.zero_grad()


def test_a_captioner_of_several_streams_is_no_captioner_of_the_grid() -> None:
    with pytest.raises(NotOnGrid, match="refocus reads grid, boxes, and not one grid alone"):
        TunedCaptioner(tiny_refocus(), drawn_end())


# ---- runs ----


@pytest.fixture(scope="module")
def untouched() -> dict[str, torch.Tensor]:
    return PairEnd(load_packaged()).state_dict()


def test_a_run_leaves_a_captioner_and_the_networks_that_it_reads(
    start: Path, data: Path, tmp_path: Path, untouched: dict[str, torch.Tensor]
) -> None:
    best = tune(start, data, tmp_path / "run", start)
    kept = load_checkpoint(best)
    changes = best.with_name(CHANGES)
    assert kept.card.streams == {TUNED_GRID: make_spec(sha256_of(changes), *PACKAGED)}
    assert kept.card.training["streams"] == "demo-tuned"
    assert lead_stream(kept) == TUNED_GRID
    end = from_checkpoint(read_checkpoint(changes)).state_dict()
    for name in ("head.weight", "head.bias", "lite3_head.weight"):
        assert not torch.equal(end[name], untouched[name])
    before, after = load_checkpoint(start).captioner.state_dict(), kept.captioner.state_dict()
    assert not torch.equal(before["streams.0.embed.0.weight"], after["streams.0.embed.0.weight"])
    losses = [float(row["loss"]) for row in rows(tmp_path / "run") if row["loss"]]
    assert len(losses) == RECIPE.steps
    assert losses[-1] < losses[0]


def test_what_is_kept_is_what_was_judged(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files say what the averaged weights said, but for half precision and a byte a weight."""
    judged: list[TunedCaptioner] = []

    def judge(_: PictureValidation, captioner: TunedCaptioner, precision: torch.dtype) -> float:
        judged.append(captioner)
        return 50.0

    monkeypatch.setattr(PictureValidation, "cider", judge)
    best = tune(start, data, tmp_path / "run", steps=2)
    kept = TunedCaptioner(
        load_checkpoint(best).captioner, from_checkpoint(read_checkpoint(best.with_name(CHANGES)))
    ).eval()
    (averaged,) = judged
    memory, expected = kept.encode_batches(batches()), averaged.eval().encode_batches(batches())
    given, wanted = (
        each.step(each.start(seen, 1), each.first_word(seen, 1), seen)[0]
        for each, seen in ((kept, memory), (averaged, expected))
    )
    torch.testing.assert_close(given, wanted, atol=2e-2, rtol=0)


def test_a_stopped_run_goes_on_to_the_same_weights(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the networks' end too."""
    whole = tune(start, data, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(PictureBatches, "at", stopped_before(3, PictureBatches))
        with pytest.raises(InterruptedError):
            tune(start, data, tmp_path / "run")
    resumed = tune(start, data, tmp_path / "run")
    ours, theirs = (
        torch.load(run / "last.pt", weights_only=True)["captioner"] for run in (resumed.parent, whole.parent)
    )
    assert ours.keys() == theirs.keys()
    assert any(name.startswith("end.") for name in ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert sha256_of(resumed.with_name(CHANGES)) == sha256_of(whole.with_name(CHANGES))


def test_another_run_goes_on_from_both(start: Path, data: Path, tmp_path: Path) -> None:
    """The end's weights are found beside the captioner, and others are not taken for them."""
    first = tune(start, data, tmp_path / "run")
    end = load_start_end(first).state_dict()
    expected = from_checkpoint(read_checkpoint(first.with_name(CHANGES))).state_dict()
    assert all(torch.equal(end[name], expected[name]) for name in expected)
    again = tune(first, data, tmp_path / "again", steps=2)
    assert load_checkpoint(again).card.streams.keys() == {TUNED_GRID}
    other = from_checkpoint(read_checkpoint(first.with_name(CHANGES)))
    torch.nn.init.zeros_(other.head.weight)
    save_changes(other, PairEnd(load_packaged()), first.with_name(CHANGES))
    with pytest.raises(CheckpointError, match=r"of tuned networks .* whose weights are neither beside it"):
        load_start_end(first)


def test_a_captioner_moves_to_the_tuned_grid_with_a_teacher_on_another(
    start: Path, data: Path, tmp_path: Path
) -> None:
    """Each is fed its own; teachers may read either grid."""
    there = PICTURE_NETWORKS["tuned_pair"](torch.device("cpu")).network.spec
    teacher = checkpoint(tmp_path / "tuned.safetensors", data, {TUNED_GRID: there}, "demo-tuned")
    moved = train_captioner(
        "stats",
        RECIPE.model_copy(update={"name": "demo-moved", "steps": 2, "soft_weight": 0.5}),
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
    moved = RECIPE.model_copy(update={"name": "demo-moved", "steps": 2})
    monkeypatch.setitem(RECIPES, moved.name, moved)
    for asked, expected in ([], {TUNED_GRID}), (["--streams", "demo"], {"grid"}):
        out = tmp_path / "run" / str(len(asked))
        given = ["--data", str(data), "--cache", str(data / "cache"), "--out", str(out), "--threads", "1"]
        command = ["train", "stats", "--recipe", "demo-moved", "--start", str(tuned), *given, *asked]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert load_checkpoint(out / "best.safetensors").card.streams.keys() == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "goes on from a captioner: give it as --start"),
        (["--start", "x", "--teacher", "nobody"], "there is no captioner 'nobody'"),
        (["--start", "missing.safetensors"], "missing.safetensors cannot be read as a checkpoint"),
    ],
)
def test_what_the_recipe_cannot_go_on_from_is_refused(options: list[str], said: str, data: Path) -> None:
    given = ["train", "stats", "--recipe", "demo-tuned", "--data", str(data), "--cache", str(data / "cache")]
    result = CliRunner().invoke(app, [*given, *options], env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_dual_afr_is_told_that_it_reads_more(data: Path) -> None:
    given = ["train", "dual_afr", "--recipe", "demo-tuned", "--data", str(data), "--start", "x"]
    result = CliRunner().invoke(app, given, env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert "dual_afr reads stage_14, stage_7 too" in " ".join(result.output.replace("│", " ").split())
