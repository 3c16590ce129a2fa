"""Features of one's own videos are made once, a captioner is trained on by them, and scored."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from app.cli.main import cli as app
from extractors.decoder.decoder import Decoder
from extractors.features import StreamSpec
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.checkpoint import Card, CheckpointError, load_checkpoint, save_checkpoint
from models.combining.caption_writers import SingleWriter
from models.decoding.decode import DecodingOptions
from models.feature_sources.feature_source import FeatureSource
from models.feature_sources.stream_checks import StreamMismatch
from models.stream_set import DEMO
from models.vocabulary import Vocabulary
from tests.media import cut, quarters, write_still, write_video
from tests.models.tiny import randomised
from tests.training.laid_out import write_json
from tests.training.small_demo import use_demo_config
from tests.training.stopped import stopped_before
from training.batches.video_batches import CaptionedVideo, VideoBatches, VideoInputs
from training.batches.video_features import VideoFeatures
from training.datasets.caption_set import VideoItem
from training.datasets.data_set import VocabularyRule
from training.datasets.errors import NothingToUse
from training.datasets.registry import SetFolder
from training.evaluation.captioning import CaptioningRun
from training.evaluation.report import load_videos
from training.optimization.run_folder import RunSettings
from training.recipes.demo_recipes import FINETUNE
from training.sessions.videos import (
    count_unknown_words,
    describe_unknown_words,
    finetune,
    split_videos,
    train_on_videos,
)

pytestmark = pytest.mark.slow

RECIPE = FINETUNE.model_copy(
    update={"videos": 2, "captions": 2, "steps": 3, "validate_every": 1, "warmup": 1, "learning_rate": 1e-3}
)
STREAMS = (StreamConfig(name="grid", width=1280),)
CONFIG = STaTSConfig(streams=STREAMS, embedded=7, words=8, attention=5, hidden=9, query=10, dropout=0.1)
WORDS = ("a", "red", "square", "two", "squares", "the", "grey", "one")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FeatureSource:
    """The demo's real one."""
    return FeatureSource(DEMO, cache=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder() as one:
        yield one


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos of differing lengths, the shorter with fewer frames than are looked at; one is broken."""
    folder = tmp_path_factory.mktemp("my films")
    write_video(folder / "long one.mp4", frames=20)
    write_video(folder / "short.mp4", frames=3, painter=lambda i, w, h: quarters(20 + i, w, h))
    cut(folder / "long one.mp4", folder / "broken.mp4", 0.5)
    captions = {
        "long one.mp4": ["a red square", "Two squares, the grey one", "a zebra!"],
        "short.mp4": ["the red one", "a square"],
    }
    write_json(folder / "captions.json", captions)
    return folder


@pytest.fixture(scope="module")
def features(
    source: FeatureSource, films: Path, decoder: Decoder, tmp_path_factory: pytest.TempPathFactory
) -> VideoFeatures:
    video_features = VideoFeatures(source, tmp_path_factory.mktemp("features"))
    assert video_features.make(SetFolder(films).load().usable, decoder) == []
    return video_features


def start_at(path: Path, spec: StreamSpec, name: str = "stats") -> Path:
    """A checkpoint of random weights."""
    captioner = randomised(STaTS(CONFIG, Vocabulary(WORDS)), std=0.05)
    save_checkpoint(
        path, captioner, Card(name, {"grid": spec}, {}, {"streams": "demo", "ids": ["flickr8k/1"]})
    )
    return path


@pytest.fixture
def start(tmp_path: Path, source: FeatureSource) -> Path:
    return start_at(tmp_path / "start.safetensors", source.extractors[0].spec)


def run(start: Path, films: Path, features: VideoFeatures, out: Path, **changes: object) -> list[str]:
    """Fine-tunes on the films, with the features that are there; what was said."""
    said: list[str] = []
    recipe = RECIPE.model_copy(update=changes)
    finetune(start, "stats", recipe, SetFolder(films).load(), at(out, features, said.append))
    return said


def at(out: Path, features: VideoFeatures, notify: Callable[[str], None]) -> RunSettings:
    """Where the features are that were made already."""
    return RunSettings(out, features.folder.parent.parent, notify, threads=1)


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "log.csv").open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_features_are_those_of_the_service(
    source: FeatureSource, films: Path, features: VideoFeatures, decoder: Decoder
) -> None:
    for video in SetFolder(films).load().usable:
        assert video.path is not None
        frames = decoder.decode(video.path, source.request).footage
        [wanted] = source.extract([frames])
        found = features.load(video)
        assert set(found) == {"grid"}
        assert torch.equal(found["grid"].values, wanted["grid"].values)
        np.testing.assert_array_equal(found["grid"].start, wanted["grid"].start)
        assert found["grid"].spec == wanted["grid"].spec


def test_features_are_made_once_and_again_where_they_are_damaged(
    source: FeatureSource, films: Path, decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos = SetFolder(films).load().usable
    video_features = VideoFeatures(source, tmp_path)
    looked: list[int] = []
    real = source.extract

    def counted(frames: Sequence[object]) -> object:
        looked.append(len(frames))
        return real(frames)  # type: ignore[arg-type]

    monkeypatch.setattr(source, "extract", counted)
    video_features.make(videos[:1], decoder)
    video_features.make(videos, decoder)
    video_features.make(videos, decoder)
    assert len(looked) == 2
    damaged = next(video_features.folder.glob("short*"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    video_features.make(videos, decoder)
    assert len(looked) == 3
    assert all(video_features.has(video) for video in videos)


def test_a_part_of_a_file_has_features_of_its_own(
    films: Path, features: VideoFeatures, decoder: Decoder
) -> None:
    whole, _ = SetFolder(films).load().usable
    part, late = replace(whole, start=0.5, end=1.5), replace(whole, start=50.0, end=60.0)
    assert features.make([part], decoder) == []
    [failed] = features.make([late], decoder)
    grid = features.load(part)["grid"]
    assert grid.end[-1] == pytest.approx(1.0)
    assert not torch.equal(grid.values, features.load(whole)["grid"].values)
    assert failed.code == "no_frames"


def test_a_picture_is_a_video_of_one_frame(films: Path, features: VideoFeatures, decoder: Decoder) -> None:
    picture = VideoItem("still", write_still(films / "still.jpg"), "train", ("a red square",))
    assert features.make([picture], decoder) == []
    assert features.load(picture)["grid"].values.shape == (1, 49, 1280)


def test_batches_follow_from_the_seed_and_are_padded(films: Path, features: VideoFeatures) -> None:
    captioner = STaTS(CONFIG, Vocabulary(WORDS))
    items = [CaptionedVideo.from_video(video, features) for video in SetFolder(films).load().usable]
    batches = VideoBatches(items, captioner.vocabulary, 2, 2, 17, 1, VideoInputs.for_captioner(captioner))
    assert batches.steps_per_epoch == 1
    first, again, other = batches.at(3), batches.at(3), batches.at(4)
    assert first.ids == again.ids
    assert torch.equal(first.targets, again.targets)
    assert torch.equal(first.batches["grid"].values, again.batches["grid"].values)
    assert first.ids != other.ids or not torch.equal(first.targets, other.targets)
    frames = dict(zip(first.ids, first.batches["grid"].frame_mask.sum(1).tolist(), strict=True))
    assert frames == {"long one.mp4": 8, "short.mp4": 3}
    assert first.targets.shape[0] == 4
    assert sorted(first.ids) == ["long one.mp4", "short.mp4"]


@pytest.mark.usefixtures("every_step_is_logged")
def test_a_captioner_is_tuned_and_goes_on_where_it_was_stopped(
    start: Path, films: Path, features: VideoFeatures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(start, films, features, tmp_path / "whole")
    assert "2 videos to train on; weights are chosen by the same videos, as there are fewer than 10." in said
    assert "1 words are unknown to the captioner and will not be written: zebra (1×)." in said
    with monkeypatch.context() as patch:
        patch.setattr(VideoBatches, "at", stopped_before(2, VideoBatches))
        with pytest.raises(InterruptedError):
            run(start, films, features, tmp_path / "resumed")
    assert torch.load(tmp_path / "resumed/last.pt", weights_only=True)["step"] == 2
    again = run(start, films, features, tmp_path / "resumed")
    assert again == said
    assert rows(tmp_path / "resumed") == rows(tmp_path / "whole")
    assert [row["step"] for row in rows(tmp_path / "whole") if row["cider"]] == ["0", "1", "2", "3"]
    tuned = load_checkpoint(tmp_path / "whole/best.safetensors")
    assert tuned.captioner.vocabulary.words == load_checkpoint(start).captioner.vocabulary.words
    assert tuned.card.training["ids"] == ["flickr8k/1", "long one.mp4", "short.mp4"]
    assert tuned.card.training["start_sha256"] == load_checkpoint(start).sha256
    assert tuned.card.training["streams"] == "demo"


@pytest.mark.usefixtures("every_step_is_logged")
def test_a_start_of_another_kind_is_refused(
    films: Path, features: VideoFeatures, source: FeatureSource, tmp_path: Path
) -> None:
    start = start_at(tmp_path / "start.safetensors", source.extractors[0].spec)
    with pytest.raises(CheckpointError, match="is a stats; start a g2l"):
        finetune(start, "g2l", RECIPE, SetFolder(films).load(), RunSettings(tmp_path, tmp_path, print))
    other = start_at(tmp_path / "other.safetensors", replace(source.extractors[0].spec, network="resnet"))
    with pytest.raises(StreamMismatch, match="resnet"):
        run(other, films, features, tmp_path / "out")


@pytest.mark.usefixtures("every_step_is_logged")
def test_unreadable_videos_are_told_and_left_out(
    start: Path, films: Path, features: VideoFeatures, tmp_path: Path
) -> None:
    captions = SetFolder(films).load()
    broken = VideoItem("broken", films / "broken.mp4", "train", ("a square",))
    said: list[str] = []
    mixed = replace(captions, videos=(*captions.videos, broken))
    finetune(start, "stats", RECIPE, mixed, at(tmp_path / "out", features, said.append))
    assert any(line.startswith("broken: ") and line.endswith("(incomplete_file)") for line in said)
    alone = replace(captions, videos=(broken,))
    with pytest.raises(NothingToUse, match="None of the 1 videos"):
        finetune(start, "stats", RECIPE, alone, at(tmp_path / "none", features, said.append))


@pytest.mark.usefixtures("every_step_is_logged")
def test_a_captioner_is_trained_on_videos_from_nothing(
    films: Path, features: VideoFeatures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_demo_config(monkeypatch, "stats", CONFIG)
    captions, rule = SetFolder(films).load(), VocabularyRule(min_count=2)
    recipe = RECIPE.model_copy(update={"self_critical_steps": 2, "self_critical_every": 1})
    best = train_on_videos("stats", DEMO, recipe, captions, rule, at(tmp_path / "out", features, print))
    phases = [row["phase"] for row in rows(tmp_path / "out") if row["cider"]]
    assert phases == ["cross_entropy"] * 4 + ["self_critical"] * 2
    trained = load_checkpoint(best)
    assert set(trained.captioner.vocabulary.words[3:]) == {"a", "one", "red", "square", "the"}
    assert trained.card.streams["grid"].network == "efficientnet-lite2"
    assert trained.card.training["ids"] == ["long one.mp4", "short.mp4"]


def test_a_set_is_captioned_by_its_features(
    start: Path, films: Path, source: FeatureSource, features: VideoFeatures, decoder: Decoder
) -> None:
    checkpoint, options = load_checkpoint(start), DecodingOptions(beam_size=2, max_length=5, attention=False)
    folder = SetFolder(films, cache=features.folder.parent.parent)
    found = CaptioningRun(SingleWriter(checkpoint), source, options).caption_videos(
        load_videos(folder, None, source)
    )
    assert found.references["short.mp4"] == ["the red one", "a square"]
    for name, text in found.hypotheses.items():
        [[best]] = SingleWriter(checkpoint).caption(
            source.extract([decoder.decode(films / name, source.request).footage]), options
        )
        assert text == best.text
    assert len(load_videos(folder, 1, source)) == 1


def test_what_an_evaluation_leaves_out_is_told(
    films: Path,
    source: FeatureSource,
    features: VideoFeatures,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "short.mp4").symlink_to(films / "short.mp4")
    write_json(tmp_path / "captions.json", {"short.mp4": "the red one", "gone.mp4": "a zebra"})
    videos = load_videos(SetFolder(tmp_path, cache=features.folder.parent.parent), None, source)
    assert [each.id for each in videos] == ["short.mp4"]
    assert caplog.messages == ["1 captioned video is not there, e.g. gone.mp4."]


def test_the_command_says_what_a_fine_tune_needs(films: Path, tmp_path: Path) -> None:
    missing = tmp_path / "x.safetensors"
    for given, said in (
        (["--data", str(films)], "give it as --start"),
        (["--data", str(tmp_path), "--start", str(missing)], "captions.json"),
        (["--data", str(films), "--start", str(missing)], "cannot be read as a checkpoint"),
    ):
        command = ["train", "stats", "--recipe", "finetune", *given]
        done = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
        assert done.exit_code == 2
        assert said in done.output


def test_videos_are_divided_by_their_splits(features: VideoFeatures) -> None:
    def videos(*splits: str) -> list[CaptionedVideo]:
        items = [VideoItem(str(i), None, split, ("a square",)) for i, split in enumerate(splits)]  # type: ignore[arg-type]
        return [CaptionedVideo.from_video(item, features) for item in items]

    given = split_videos("x", videos("train", "val", "test", "train"))
    assert [len(given.train), len(given.held_out)] == [2, 1]
    alone = split_videos("x", videos(*["train"] * 25, "test"))
    assert [len(alone.train), len(alone.held_out)] == [23, 2]
    assert not {each.id for each in alone.train} & {each.id for each in alone.held_out}
    few = split_videos("x", videos(*["train"] * 9))
    assert few.train == few.held_out
    with pytest.raises(NothingToUse, match="training split"):
        split_videos("x", videos("test"))


def test_unknown_words_are_counted(films: Path, features: VideoFeatures) -> None:
    items = [CaptionedVideo.from_video(video, features) for video in SetFolder(films).load().usable]
    assert count_unknown_words(items, Vocabulary(WORDS)) == {"zebra": 1}
    assert describe_unknown_words(count_unknown_words(items, Vocabulary([*WORDS, "zebra"]))).startswith(
        "Every word"
    )
    assert describe_unknown_words(count_unknown_words(items, Vocabulary(["a"]))).endswith("…, ….") is False
