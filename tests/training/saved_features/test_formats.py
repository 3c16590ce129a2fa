"""Captioners are trained and scored from features of each public form, and of ``extract``, without videos."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.cli.main import cli as app
from app.terminal import PROGRAM
from extractors.decoder.decoder import Decoder
from extractors.features import Stream, StreamSpec
from extractors.video_features.feature_files import (
    FeatureSpec,
    FileFormat,
    SafetensorsForm,
    SavedFeatures,
    VideoSource,
)
from extractors.video_features.npy_hdf5 import Hdf5Form, NpyForm
from extractors.windows import Windows
from models.caption import join_words
from models.captioners.g2l.config import G2LConfig
from models.captioners.registry import find_captioner, find_stream_set
from models.checkpoint import load_checkpoint
from models.chinese import is_chinese, split_chinese
from models.stream_set import DEMO as DEMO_SET
from tests.media import quarters, write_video
from tests.models.tiny import stats_config
from tests.training.laid_out import msvd, vatex, write_json
from tests.training.saved_features.formats import FORMATS, FeatureFormat, Written, draw, lay_captions
from tests.training.small_demo import use_demo_config, use_recipe
from training.datasets.registry import SetFolder
from training.recipes import paper_recipes
from training.recipes.demo_recipes import DEMO
from training.recipes.paper_recipes import list_paper_runs
from training.saved_features.feature_folder import FeatureFolder
from training.scores.tokenizer import tokenize

SHORT = DEMO.model_copy(
    update={
        "videos": 2,
        "captions": 2,
        "max_length": 6,
        "steps": 2,
        "warmup": 1,
        "validate_every": 1,
        "self_critical_steps": 0,
        "soft_weight": 0.0,
        "average_decay": 0.0,
    }
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short recipe, and STaTS of a few units."""
    use_recipe(monkeypatch, SHORT, "demo")
    use_demo_config(monkeypatch, "stats", stats_config())
    monkeypatch.setattr("training.scores.java._list_installed", list)


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "1000"})


def train_and_evaluate(data: Path, data_set: str, features: Path, out: Path, *more: str) -> dict[str, object]:
    """Trains STaTS for two steps from saved features, and scores it from them."""
    places = ("--data", data, "--data-set", data_set, "--features", features)
    trained = call("train", "stats", *places, "--out", out, "--threads", "1", *more)
    assert trained.exit_code == 0, trained.output
    assert "not there" not in trained.output
    evaluated = call("evaluate", out / "best.safetensors", *places, "--beam-size", "2", "--json")
    assert evaluated.exit_code == 0, evaluated.output
    document: dict[str, object] = json.loads(evaluated.stdout.strip().splitlines()[-1])
    return document


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_captioner_is_trained_and_scored_from_each_form(form: FeatureFormat, tmp_path: Path) -> None:
    data, features = tmp_path / "data", tmp_path / "features"
    features.mkdir()
    written = form.write(features, lay_captions(data, form.lay))
    check_they_come_back(data, form, features, written)
    document = train_and_evaluate(data, form.data_set, features, tmp_path / "run")
    assert document["n"] in (1, len(written))
    trained = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert set(trained.card.streams) == set(next(iter(written.values())))
    assert trained.card.training["streams"] == "saved"
    log = (tmp_path / "run" / "log.csv").read_text().splitlines()
    assert len(log) > 2


def check_they_come_back(data: Path, form: FeatureFormat, features: Path, written: Written) -> None:
    """To the bit, with the times that the map gives them."""
    opened = FeatureFolder(features)
    assert opened.stream_set is not None
    store = opened.open(opened.stream_set)
    videos = SetFolder(data, form.data_set).load().require(media=False)
    assert {video.id for video in videos} == set(written)
    assert all(video.path is None for video in videos)
    with closing(Decoder()) as decoder:
        assert store.make(videos, decoder) == []
    for video in videos:
        found = store.load(video)
        assert found.keys() == written[video.id].keys()
        for name, stream in found.items():
            np.testing.assert_array_equal(stream.values.float().numpy(), written[video.id][name])
    first = next(iter(store.load(videos[0]).values()))
    np.testing.assert_allclose(first.end, form.ends)
    assert first.start[0] == 0


def test_what_another_map_says_of_the_clock_is_refused_by_the_captioner(tmp_path: Path) -> None:
    """A name tag has the clock: rows every 16 frames are not those that it was trained on."""
    data, features = tmp_path / "data", tmp_path / "features"
    features.mkdir()
    FORMATS["VATEX I3D"].write(features, lay_captions(data, vatex))
    train_and_evaluate(data, "vatex", features, tmp_path / "run")
    given = (features / "features.yaml").read_text()
    (features / "features.yaml").write_text(given.replace("stride: 32", "stride: 16"))
    refused = call(
        *("evaluate", tmp_path / "run" / "best.safetensors", "--data", data, "--data-set", "vatex"),
        *("--features", features),
    )
    assert refused.exit_code == 2
    assert "every 16 at 25 a second, but the captioner was trained on" in refused.output
    left_out = call("evaluate", tmp_path / "run" / "best.safetensors", "--data", data, "--data-set", "vatex")
    assert left_out.exit_code == 2
    assert "which no extractor makes: evaluate it with --features" in left_out.output


def test_a_captioner_learns_chinese_of_segmented_words(tmp_path: Path) -> None:
    """Written without spaces, scored as words; METEOR and sentence vectors say what they know of it."""
    pytest.importorskip("rjieba")
    data, features, written = tmp_path / "data", tmp_path / "features", tmp_path / "zh.json"
    features.mkdir()
    FORMATS["VATEX I3D"].write(features, lay_captions(data, vatex))
    document = train_and_evaluate(data, "vatex-zh", features, tmp_path / "run", "--set", "learning_rate=0.1")
    vocabulary = load_checkpoint(tmp_path / "run" / "best.safetensors").captioner.vocabulary
    assert set(vocabulary.words[3:]) == {"一个", "男人", "在", "跳舞"}
    assert json.dumps(document["notes"]).count("Chinese") == 2
    ids = [video.id for video in SetFolder(data, "vatexzh").load().require(media=False)]
    write_json(written, dict.fromkeys(ids, "一个男人在跳舞"))
    scored = call("score", written, "--references", data, "--data-set", "vatex-zh", "--json")
    scores = json.loads(scored.stdout.strip().splitlines()[-1])
    assert scores["metrics"]["bleu4"] == pytest.approx(100)
    assert scores["diversity"]["words"] == 4 or scores["notes"]["words"]


def test_chinese_words_are_those_of_the_text_and_of_what_is_joined() -> None:
    pytest.importorskip("rjieba")
    words = split_chinese("一位穿着 3D眼镜和T恤的女人, 正在 弹钢琴!")
    assert words == ["一位", "穿着", "3d", "眼镜", "和", "t恤", "的", "女人", "正在", "弹钢琴"]
    assert split_chinese(join_words(words)) == words
    assert tokenize([join_words(words)], None) == [" ".join(words)]
    assert not is_chinese(["一个男人", "a man"])


def test_chinese_without_its_segmenter_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_captions(tmp_path / "data", vatex)
    monkeypatch.setitem(sys.modules, "rjieba", None)
    refused = call("data", "check", "vatex-zh", "--root", tmp_path / "data")
    assert "make setup-train" in refused.output


SPEC = StreamSpec("resnet152", "a" * 64, "middle 224x224")
SOUND = StreamSpec("vggish", "b" * 64, "log mel")
EXTRACTED = (SafetensorsForm(), NpyForm(), Hdf5Form())


def write_extracted(form: FileFormat, folder: Path, ids: Sequence[str], silent: str) -> Written:
    """ResNet-152's vectors and maps, and VGGish' of all but one video, as ``extract`` lays them down."""
    written: Written = {}
    rows, total = np.arange(2.0), Windows(extraction_total=20)
    for seed, name in enumerate(ids):
        arrays = {"resnet152": draw(seed, 2, 2048), "resnet152_grid": draw(seed, 2, 49, 2048)}
        streams = {
            key: Stream(torch.from_numpy(array), rows, rows + 1, SPEC) for key, array in arrays.items()
        }
        source = VideoSource(f"{name}.mp4", "0" * 8, "1" * 64, 1000)
        tag = FeatureSpec("resnet152", SPEC, total)
        form.write(folder / "resnet152", f"day1/{name}", SavedFeatures(tag, source, {}, 25.0, streams))
        if name != silent:
            sound = draw(seed + 9, 3, 128)
            streams = {"vggish": Stream(torch.from_numpy(sound), np.arange(3.0), np.arange(3.0) + 1, SOUND)}
            tag = FeatureSpec("vggish", SOUND)
            form.write(folder / "vggish", name, SavedFeatures(tag, source, {}, 25.0, streams))
            arrays["vggish"] = sound
        written[name] = arrays
    return written


@pytest.mark.parametrize("form", EXTRACTED, ids=lambda form: form.name)
def test_features_of_extract_feed_their_stream_set(
    form: FileFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One video has no file of sound, which it may lack."""
    data, features = tmp_path / "data", tmp_path / "features"
    ids = lay_captions(data, vatex)
    written = write_extracted(form, features, ids, silent=ids[1])
    refocus = find_stream_set("refocus")
    store = FeatureFolder(features).open(refocus, frozenset({"vggish"}))
    videos = SetFolder(data, "vatex").load().require(media=False)
    with closing(Decoder()) as decoder:
        assert store.make(videos, decoder) == []
    for video in videos:
        found = store.load(video)
        assert found.keys() == written[video.id].keys()
        for name, stream in found.items():
            np.testing.assert_array_equal(stream.values.numpy(), written[video.id][name])
    captioner = find_captioner("refocus")
    small = captioner.fit(captioner.make_demo_config(), refocus)
    narrow = small.model_copy(update={"embedded": 7, "hidden": 9, "attention": 5, "tie_words": False})
    use_demo_config(monkeypatch, "refocus", narrow)
    places = ("--data", data, "--data-set", "vatex", "--features", features)
    trained = call("train", "refocus", *places, "--streams", "refocus", "--out", tmp_path / "run")
    assert trained.exit_code == 0, trained.output
    card = load_checkpoint(tmp_path / "run" / "best.safetensors").card
    assert dict(card.streams) == {"resnet152_grid": SPEC, "vggish": SOUND}
    assert card.training["streams"] == "refocus"
    evaluated = call("evaluate", tmp_path / "run" / "best.safetensors", *places, "--json")
    assert evaluated.exit_code == 0, evaluated.output


def test_what_extract_writes_is_what_training_would_make(tmp_path: Path) -> None:
    """With the shipped network: the real command, then the videos go, then a captioner learns."""
    data = tmp_path / "data"
    data.mkdir()
    for place in range(2):
        write_video(data / f"film{place}.mp4", frames=20 + place, painter=quarters)
    write_json(data / "captions.json", {f"film{i}.mp4": ["a red square", "the red one"] for i in range(2)})
    words = ["extract", str(data), "--streams", "demo"]
    extracted = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "features")], prog_name=PROGRAM)
    assert extracted.exit_code == 0, extracted.output
    store = FeatureFolder(tmp_path / "features").open(DEMO_SET)
    videos = SetFolder(data).load().require()
    with closing(Decoder()) as decoder:
        assert store.make(videos, decoder) == []
    assert store.load(videos[0])["grid"].values.shape == (8, 49, 1280)
    for film in data.glob("*.mp4"):
        film.unlink()
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    document = train_and_evaluate(
        data, "folder", tmp_path / "features", tmp_path / "run", "--streams", "demo"
    )
    assert document["n"] == 2
    assert load_checkpoint(tmp_path / "run" / "best.safetensors").card.training["streams"] == "demo"


def test_a_papers_recipe_reads_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the paper's widths, for one epoch; a set that the captioner cannot read is refused."""
    data, features = tmp_path / "data", tmp_path / "features"
    features.mkdir()
    FORMATS["video_features"].write(features, lay_captions(data, msvd))
    runs, key = list_paper_runs(), ("paper-msvd", "g2l")
    recipe = runs[key].recipe.model_copy(update={"epochs": {"cross_entropy": 1}})
    once = replace(runs[key], recipe=recipe)
    monkeypatch.setattr(paper_recipes, "list_paper_runs", lambda: {**runs, key: once})
    places = ("--recipe", "paper-msvd", "--data", data, "--features", features, "--out", tmp_path / "run")
    trained = call("train", "g2l", *places, "--threads", "1")
    assert trained.exit_code == 0, trained.output
    kept = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert list(kept.card.streams) == ["i3d_rgb", "i3d_flow"]
    config = kept.captioner.config
    assert isinstance(config, G2LConfig)
    assert (config.frames.name, config.clips.name, config.key_frames) == ("i3d_rgb", "i3d_flow", 0)
    assert config.hidden == G2LConfig().hidden
    refused = call("train", "dual_afr", *places, "--streams", "g2l")
    assert refused.exit_code == 2
    assert "--streams: dual_afr reads a network's maps over a grid" in refused.output
