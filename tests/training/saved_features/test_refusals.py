"""Saved features that do not fit are refused in a sentence, before anything is trained."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from app.cli.main import cli as app
from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.features import Stream, StreamSpec
from extractors.video_features.feature_files import (
    FeaturesDamaged,
    FeatureSpec,
    SafetensorsForm,
    SavedFeatures,
    VideoSource,
)
from extractors.windows import WindowOptions, Windows
from models.captioners.registry import find_stream_set
from models.stream_set import StreamInput, StreamSet
from training.batches.video_batches import CaptionedVideo
from training.batches.video_features import FailedVideo
from training.datasets.caption_set import VideoItem
from training.saved_features.array_files import OPEN_FILES, ArrayFiles, SavedArray
from training.saved_features.feature_folder import FeatureFolder
from training.saved_features.feature_map import (
    FeatureMap,
    FeatureMapDamaged,
    FeaturesDoNotFit,
    MappedStream,
    fill_pattern,
    strip_suffix,
)

CLIP = VideoItem("abc_000010_000020", None, "train", ("a square",))
OTHER = VideoItem("def_000000_000010", None, "train", ("a square",))
STREAM: Mapping[str, Any] = {"file": "{id}.npy", "width": 6, "kind": "motion", "stride": 32, "frame_rate": 25}


def write(folder: Path, *shape: int, of: str = CLIP.id, **changes: Any) -> FeatureFolder:
    """One array, and a map of it with some members changed; None takes one away."""
    np.save(folder / f"{of}.npy", np.ones(shape, np.float32))
    members = {**STREAM, **{name: value for name, value in changes.items() if name != "duration"}}
    stream = {name: value for name, value in members.items() if value is not None}
    document = {"streams": {"rgb": stream}, "duration": changes.get("duration", "name")}
    (folder / "features.yaml").write_text(yaml.safe_dump(document))
    return FeatureFolder(folder)


def look(folder: FeatureFolder, *videos: VideoItem, streams: StreamSet | None = None) -> list[FailedVideo]:
    wanted = streams or folder.stream_set
    assert wanted is not None
    with closing(Decoder()) as decoder:
        return folder.open(wanted).make(videos or (CLIP,), decoder)


def load(folder: FeatureFolder) -> object:
    assert folder.stream_set is not None
    return CaptionedVideo.from_video(CLIP, folder.open(folder.stream_set)).load()


REFUSED: Mapping[str, tuple[tuple[int, ...], dict[str, Any], str]] = {
    "width": ((3, 7), {}, "rgb is 7 wide, and the map, as .* shows has it 6 wide"),
    "axes": ((3, 2, 6), {}, "holds 3×2×6 for rgb, which is not C, TC or 1TC"),
    "regions": ((3, 6, 1, 1, 1), {"regions": "grid"}, "which is not NC, TNC or THWC"),
    "cells": ((3, 5, 6), {"regions": "grid", "count": 4}, "has 5 cells a step, and the map says count: 4"),
    "late rows": ((9, 6), {"stride": 64}, r"the last row of rgb begins at 20\.5 s, and .* is 10 s long"),
    "no clock": ((3, 6), {"stride": None}, "has 3 rows, and the map gives them no clock"),
    "no duration": ((3, 6), {"stride": None, "spread": True, "duration": None}, "put duration into the map"),
}


@pytest.mark.parametrize(("shape", "changes", "said"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_its_map_is_refused(
    shape: tuple[int, ...], changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(FeaturesDoNotFit, match=said):
        look(write(tmp_path, *shape, **changes))


def asked(width: int = 6, spread: int | None = None, **windows: Any) -> StreamSet:
    inputs = (StreamInput("rgb", "i3d_rgb", width, WindowOptions(**windows), kind="motion"),)
    return StreamSet("stats", "any", inputs, "a test", spread)


CLOCKS: Mapping[str, tuple[StreamSet, dict[str, Any], str | None]] = {
    "the same": (asked(step_size=32), {}, None),
    "another stride": (
        asked(step_size=16),
        {},
        "has rows of 32 frames every 32, and .* asks for rows",
    ),
    "another window": (asked(step_size=32, stack_size=16), {"window": 64}, "asks for rows of 16 every 32"),
    "the same window": (asked(step_size=32, stack_size=64), {"window": 64}, None),
    "the same by the second": (asked(step_size=5), {"stride": None, "fps": 5}, None),
    "another by the second": (asked(step_size=5), {"stride": None, "fps": 1}, "has 1 rows a second"),
    "two frames a second": (asked(step_size=1, extraction_fps=2.0), {"stride": None, "fps": 2}, None),
    "not two a second": (asked(step_size=1, extraction_fps=2.0), {}, "asks for rows every 1 frames at 2"),
    "not spread": (asked(extraction_total=20), {}, "asks for 20 rows spread over the video"),
    "spread": (asked(extraction_total=20), {"stride": None, "spread": True}, None),
    "spread frames": (asked(spread=8), {"stride": None, "spread": True}, None),
    "not spread frames": (asked(spread=8), {}, "asks for rows spread over the video"),
    "another width": (
        asked(width=1024, step_size=32),
        {},
        "rgb is 6 wide, and the stream set stats has it",
    ),
    "its own clock": (asked(), {}, None),
}


@pytest.mark.parametrize(("streams", "changes", "said"), CLOCKS.values(), ids=CLOCKS)
def test_a_stream_set_has_its_own_width_and_clock(
    streams: StreamSet, changes: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    folder = write(tmp_path, 3, 6, **changes)
    if said is None:
        assert look(folder, streams=streams) == []
        return
    with pytest.raises(FeaturesDoNotFit, match=said):
        look(folder, streams=streams)


def test_rows_with_times_of_their_own_are_measured(tmp_path: Path) -> None:
    folder = write(tmp_path, 3, 6, stride=None, timestamps="{id}_ms.npy")
    np.save(tmp_path / f"{CLIP.id}_ms.npy", np.array([1280.0, 2560.0]))
    with pytest.raises(FeaturesDoNotFit, match=r"has 2 times, and rgb of .* has 3 rows"):
        look(folder)
    np.save(tmp_path / f"{CLIP.id}_ms.npy", np.array([1280.0, 2560.0, 3840.0]))
    assert look(folder, streams=asked(step_size=32)) == []
    with pytest.raises(FeaturesDoNotFit, match=r"are 32\.0 frames apart, and the stream set asks for 16"):
        look(folder, streams=asked(step_size=16))


def test_a_stream_that_the_map_lacks_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FeaturesDoNotFit, match=r"names rgb, and not i3d_rgb_grid .* or leave out --streams"):
        look(write(tmp_path, 3, 6), streams=find_stream_set("stats"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_named_when_they_are_read(tmp_path: Path, value: float) -> None:
    folder = write(tmp_path, 3, 6)
    array = np.ones((3, 6), np.float16)
    array[1, 2] = value
    np.save(tmp_path / f"{CLIP.id}.npy", array)
    with pytest.raises(FeaturesDamaged, match=f"rgb of {CLIP.id} has values that are infinite or no number"):
        load(folder)


def test_features_are_verified_when_they_are_read_first_and_not_at_every_step(tmp_path: Path) -> None:
    folder = write(tmp_path, 3, 6)
    assert folder.stream_set is not None
    video = CaptionedVideo.from_video(CLIP, folder.open(folder.stream_set))
    assert video.load()
    np.save(tmp_path / f"{CLIP.id}.npy", np.full((3, 6), np.inf, np.float32))
    assert video.load()
    with pytest.raises(FeaturesDamaged):
        load(folder)


@pytest.mark.parametrize("last", [0.0, np.nan])
def test_times_that_fall_back_are_refused(tmp_path: Path, last: float) -> None:
    folder = write(tmp_path, 3, 6, stride=None, timestamps="{id}_ms.npy")
    np.save(tmp_path / f"{CLIP.id}_ms.npy", np.array([1280.0, 2560.0, last]))
    with pytest.raises(FeaturesDoNotFit, match=f"the times of rgb of {CLIP.id} do not rise"):
        look(folder)


def test_videos_without_whole_features_are_told_one_by_one(tmp_path: Path) -> None:
    folder = write(tmp_path, 3, 6)
    [missing] = look(folder, CLIP, OTHER)
    assert (missing.id, missing.code) == (OTHER.id, "features_missing")
    assert f"{OTHER.id}.npy" in missing.message
    for content in (b"", (tmp_path / f"{CLIP.id}.npy").read_bytes()[:90]):
        (tmp_path / f"{OTHER.id}.npy").write_bytes(content)
        [damaged] = look(folder, CLIP, OTHER)
        assert damaged.code == "features_damaged"
    for shape in ((0, 6), (0,)):
        np.save(tmp_path / f"{OTHER.id}.npy", np.ones(shape, np.float32))
        [empty] = look(folder, OTHER, CLIP)
        assert (empty.id, empty.code) == (OTHER.id, "features_damaged")
        assert "has no row" in empty.message
    store = folder.open(asked(step_size=32))
    with pytest.raises(FeaturesDamaged, match="features of gone are gone"):
        store.load(replace(CLIP, id="gone"))


MAPS: Mapping[str, tuple[str, str]] = {
    "no YAML": ("streams: [", "is no YAML or JSON"),
    "no streams": ("names: x", "streams: Field required"),
    "another member": ("streams: {a: {file: x, width: 2, hop: 3}}", "streams.a.hop: Extra inputs"),
    "two clocks": ("streams: {a: {file: x, width: 2, fps: 3, spread: true}}", "exclude each other"),
    "no rate": ("streams: {a: {file: x, width: 2, stride: 3}}", "has a stride and no frame_rate"),
    "another placeholder": ("streams: {a: {file: '{video}', width: 2}}", "has {video}; there are: {id}"),
    "axes": ("streams: {a: {file: x, width: 2, axes: TD}}", "axes are letters of TNHWC1"),
    "no channels": ("streams: {a: {file: x, width: 2, axes: T}}", "axes need C"),
    "no names": ("names: gone.txt\nstreams: {a: {file: x, width: 2}}", "gone.txt cannot be read"),
}


@pytest.mark.parametrize(("text", "said"), MAPS.values(), ids=MAPS)
def test_a_map_of_another_form_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "features.yaml").write_text(text)
    with pytest.raises(FeatureMapDamaged) as refused:
        look(FeatureFolder(tmp_path))
    assert said in str(refused.value)


def test_names_and_patterns(tmp_path: Path) -> None:
    still = VideoItem("COCO_val2014_000000000042.jpg", None, "val", ())
    assert fill_pattern("{split}/{number}-{stem}", still, {}) == "val/42-COCO_val2014_000000000042"
    assert fill_pattern("{name}", CLIP, {CLIP.id: "vid7"}) == "vid7"
    assert strip_suffix("day.1/a.b_1_2") == "day.1/a.b_1_2"
    (tmp_path / "youtube_mapping.txt").write_text(f"{CLIP.id} vid7\n")
    folder = write(tmp_path, 3, 6, file="{name}.npy")
    text = (tmp_path / "features.yaml").read_text()
    (tmp_path / "features.yaml").write_text(f"{text}names: youtube_mapping.txt\n")
    (tmp_path / f"{CLIP.id}.npy").rename(tmp_path / "vid7.npy")
    assert look(FeatureFolder(folder.folder)) == []
    (tmp_path / "youtube_mapping.txt").write_text("alone\n")
    with pytest.raises(FeatureMapDamaged, match="has the line 'alone'"):
        look(FeatureFolder(folder.folder))


def test_only_so_many_hdf5_files_stay_open(tmp_path: Path) -> None:
    files = ArrayFiles()
    for place in range(OPEN_FILES + 2):
        with h5py.File(tmp_path / f"{place}.h5", "w") as file:
            file.create_dataset("rgb", data=np.full((2, 3), place))
    for _ in range(2):
        for place in range(OPEN_FILES + 2):
            assert files.read(SavedArray(tmp_path / f"{place}.h5", "rgb"))[0, 0] == place
    assert pickle.loads(pickle.dumps(files)).shape(SavedArray(tmp_path / "0.h5", "rgb")) == (2, 3)
    with pytest.raises(FileNotFoundError, match="has no data set 'flow'; there are: rgb"):
        files.shape(SavedArray(tmp_path / "0.h5", "flow"))
    forms = r"\(.*; there are .npy, .npz, .pt and HDF5"
    for name, said in (("cut.h5", forms), ("other.pkl", forms), ("cut.pt", "it holds other things than")):
        (tmp_path / name).write_bytes((tmp_path / "0.h5").read_bytes()[:100])
        with pytest.raises(FeaturesDamaged, match=f"{name} cannot be read:? {said}"):
            files.read(SavedArray(tmp_path / name, "rgb"))


def test_lists_of_ids_have_to_fit_their_array(tmp_path: Path) -> None:
    folder = write(tmp_path, 1, 3, 6, of="all", file="all.npy", ids="ids.json")
    (tmp_path / "ids.json").write_text(f'["{CLIP.id}", "{OTHER.id}"]')
    [lost] = look(folder, CLIP, OTHER)
    assert lost.id == OTHER.id
    assert "has 1 rows, and its list of ids is longer" in lost.message
    [missing] = look(folder, CLIP, replace(OTHER, id="third"))
    assert (missing.code, "ids.json does not list third" in missing.message) == ("features_missing", True)
    (tmp_path / "ids.json").write_text("{}")
    with pytest.raises(FeatureMapDamaged, match="is no list of ids"):
        look(folder)


SPEC = StreamSpec("i3d", "a" * 64, "none")


def extract(folder: Path, name: str, windows: Windows, width: int = 2048, size: int = 9) -> Path:
    rows = np.arange(2.0)
    stream = Stream(torch.ones(2, 49, width, dtype=torch.float16), rows, rows + 1, SPEC)
    saved = SavedFeatures(
        FeatureSpec("i3d_rgb", SPEC, windows),
        VideoSource(f"{name}.mp4", "0" * 8, "1" * 64, size),
        {},
        25.0,
        {"i3d_rgb_grid": stream},
    )
    SafetensorsForm().write(folder / "i3d_rgb", name, saved)
    return folder


FITTING = Windows(16, 16)


@pytest.mark.parametrize(
    ("lay", "said"),
    [
        (
            lambda at: extract(at, CLIP.id, Windows(64, 16)),
            "asks for others: i3d_rgb with stack_size 16, not 64: make all with reelword",
        ),
        (lambda at: extract(at, CLIP.id, FITTING, 7), "i3d_rgb_grid is 7 wide, and .* has it 2048 wide"),
        (lambda at: extract(extract(at, CLIP.id, FITTING), OTHER.id, Windows(16, 8)), "step_size: 8, not 16"),
        (lambda at: at, "has no folder i3d_rgb: make all with reelword extract VIDEO… --streams stats"),
    ],
)
def test_features_of_extract_with_other_windows_are_refused(
    lay: Callable[[Path], Path], said: str, tmp_path: Path
) -> None:
    with pytest.raises(FeaturesDoNotFit, match=said):
        look(FeatureFolder(lay(tmp_path)), CLIP, OTHER, streams=find_stream_set("stats"))


def test_all_that_a_set_lacks_is_named_at_once(tmp_path: Path) -> None:
    flow = find_stream_set("stats-flow")
    with pytest.raises(FeaturesDoNotFit, match=r"no folder i3d_rgb, i3d_flow: .* --streams stats-flow --out"):
        look(FeatureFolder(tmp_path), CLIP, streams=flow)
    extract(tmp_path, CLIP.id, Windows(64, 64))
    with pytest.raises(
        FeaturesDoNotFit, match="with stack_size 16, not 64; i3d_rgb with step_size 16, not 64"
    ):
        look(FeatureFolder(tmp_path), CLIP, streams=find_stream_set("stats"))


def test_a_video_lasts_as_its_annotations_say(tmp_path: Path) -> None:
    folder = write(tmp_path, 3, 6, stride=None, spread=True, duration=None)
    video = replace(CLIP, start=None, end=None, duration=6.0)
    assert look(folder, video) == []
    store = folder.open(folder.stream_set) if folder.stream_set else None
    assert store is not None
    assert store.load(video)["rgb"].end.tolist() == [2.0, 4.0, 6.0]
    wrong = write(tmp_path, 3, 6, stride=None, spread=True, duration=1)
    with pytest.raises(FeaturesDoNotFit, match=r"has duration 1, and by the annotations .* lasts 6 s"):
        look(wrong, video)


def test_frames_spread_over_a_video_are_not_windows_of_it(tmp_path: Path) -> None:
    extract(tmp_path, CLIP.id, Windows(1, 16))
    stats = find_stream_set("stats")
    inputs = tuple(replace(each, windows=WindowOptions()) for each in stats.inputs)
    spread = replace(stats, spread=8, inputs=inputs)
    with pytest.raises(FeaturesDoNotFit, match="i3d_rgb with extraction_total 8, not windows every 16"):
        look(FeatureFolder(tmp_path), streams=spread)


def test_features_of_extract_are_found_by_id_and_by_file(tmp_path: Path) -> None:
    features, stats = tmp_path / "features", find_stream_set("stats")
    extract(features, f"day1/{CLIP.id}", FITTING)
    film = tmp_path / f"{CLIP.id}.mp4"
    film.write_bytes(b"123456789")
    assert look(FeatureFolder(features), replace(CLIP, id="7", path=film), streams=stats) == []
    film.write_bytes(b"another film")
    [other] = look(FeatureFolder(features), replace(CLIP, path=film), streams=stats)
    assert "features of another file" in other.message
    extract(features, f"day2/{CLIP.id}", FITTING)
    [doubtful] = look(FeatureFolder(features), streams=stats)
    assert f"has several called {CLIP.id}: day1/{CLIP.id}, day2/{CLIP.id}" in doubtful.message
    part = replace(CLIP, id="7", path=film, start=1.0, end=2.0)
    [missing] = look(FeatureFolder(features), part, streams=stats)
    assert "has none called 7" in missing.message


def test_the_manuals_map_is_one(tmp_path: Path) -> None:
    manual = Path("docs/data.md").read_text(encoding="utf-8")
    (tmp_path / "features.yaml").write_text(manual.partition("```yaml\n")[2].partition("```")[0])
    np.save(tmp_path / f"{CLIP.id}.npy", np.ones((1, 3, 1024), np.float32))
    assert look(FeatureFolder(tmp_path)) == []
    for model in (FeatureMap, MappedStream):
        assert all(f"`{member}`" in manual for member in model.model_fields)
    assert all(
        f"`{error.code}`" in manual for error in (FeaturesDoNotFit, FeatureMapDamaged, FeaturesDamaged)
    )


def test_errors_have_codes_and_hints() -> None:
    errors: Sequence[type[ReelwordError]] = (FeaturesDoNotFit, FeatureMapDamaged)
    assert [error.code for error in errors] == ["features_do_not_fit", "feature_map_damaged"]
    assert all(error.hint for error in errors)


def run(*words: str) -> str:
    refused = CliRunner().invoke(app, list(words), env={"COLUMNS": "1000"})
    assert refused.exit_code == 2, refused.output
    return refused.output


def test_the_command_says_which_option_to_change(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text('{"a.mp4": ["a red square"], "b.mp4": ["a square"]}')
    write(tmp_path, 3, 7, of="a.mp4", duration=60.0)
    data = ("--data", str(tmp_path), "--data-set", "folder")
    saved = ("--features", str(tmp_path))
    assert "--features: rgb is 7 wide" in run("train", "stats", *data, *saved)
    assert "--streams: spatial reads boxes, or cells" in run("train", "spatial", *data, *saved)
    assert "there is no folder nowhere" in run("train", "stats", *data, "--features", "nowhere")
    assert "--feature-map says what lies in --features" in run("train", "stats", *data, "--feature-map", "x")
    assert "python -m lab train" in run("train", "stats", "--data", str(tmp_path), *saved)
    assert "give the set as --data" in run("evaluate", "stats", "--images", "x", "--references", "y", *saved)
    (tmp_path / "features.yaml").write_text("streams: [")
    assert "--features: " in run("train", "stats", *data, *saved)
