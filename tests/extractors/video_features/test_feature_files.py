"""Features in files: what was written comes back, damage is noticed, other people's code can read it."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors import safe_open

from extractors.features import Stream, StreamSpec
from extractors.video_features.feature_files import (
    FeaturesDamaged,
    FeatureSpec,
    FileFormat,
    SafetensorsForm,
    SavedFeatures,
    VideoSource,
    load,
    path_digest,
)
from extractors.video_features.npy_hdf5 import Hdf5Form, NpyForm, link
from extractors.windows import Windows

SPEC = StreamSpec("i3d", "af5c", "middle 224x224", "16 frames", "torch", "fp32")
FORMS: tuple[FileFormat, ...] = (SafetensorsForm(), NpyForm(), Hdf5Form())


def streams(extractor: str = "i3d_rgb") -> dict[str, Stream]:
    """Three rows; a grid with a tail that is padded; boxes with some of them absent."""
    draw = torch.Generator().manual_seed(1)
    tail = torch.tensor([True, True, False])
    start, end = np.array([0.0, 0.64, 1.28]), np.array([0.64, 1.28, 1.6])
    boxes = torch.rand(3, 2, 4, generator=draw)
    present = torch.tensor([[True, True], [True, False], [False, False]])
    return {
        extractor: Stream(torch.rand(3, 8, generator=draw), start, end, SPEC),
        f"{extractor}_grid": Stream(
            torch.rand(3, 4, 8, generator=draw).half(),
            start,
            end,
            SPEC,
            mask=tail,
            view=(0.1, 0.0, 0.9, 1.0),
        ),
        f"{extractor}_boxes": Stream(
            torch.rand(3, 2, 5, generator=draw), start, end, SPEC, boxes=boxes, mask=present
        ),
    }


def saved(extractor: str = "i3d_rgb", clip: str = "clip.mp4") -> SavedFeatures:
    tag = FeatureSpec(extractor, SPEC, Windows(16, 16, extraction_fps=25.0))
    source = VideoSource(clip, "0" * 8, "1" * 64, 1000)
    return SavedFeatures(tag, source, {"duration": 1.6}, 25.0, streams(extractor), ("archery", "yoga"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_was_written_comes_back(form: FileFormat, tmp_path: Path) -> None:
    form.write(tmp_path, "a folder/clip.one", saved())
    read = form.read(tmp_path, "a folder/clip.one")
    wanted = saved()
    assert (read.tag, read.source, read.fps, read.classes) == (
        wanted.tag,
        wanted.source,
        wanted.fps,
        wanted.classes,
    )
    assert read.media == wanted.media
    assert read.streams.keys() == wanted.streams.keys()
    for name, stream in wanted.streams.items():
        again = read.streams[name]
        assert again.spec == stream.spec
        assert again.view == stream.view
        assert again.values.dtype == stream.values.dtype
        assert torch.equal(again.values, stream.values)
        np.testing.assert_array_equal(again.start, stream.start)
        np.testing.assert_array_equal(again.end, stream.end)
        for ours, theirs in ((again.boxes, stream.boxes), (again.mask, stream.mask)):
            assert (ours is None) == (theirs is None)
            assert ours is None or theirs is None or torch.equal(ours, theirs)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_changed_byte_is_noticed(form: FileFormat, tmp_path: Path) -> None:
    form.write(tmp_path, "clip", saved())
    values = streams()["i3d_rgb"].values.numpy().tobytes()
    changed = 0
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        if values in content:
            file.write_bytes(content.replace(values, bytes([values[0] ^ 1]) + values[1:]))
            changed += 1
    assert changed == 1
    with pytest.raises(FeaturesDamaged, match=r"clip.* not those that were written"):
        form.read(tmp_path, "clip")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_cut_file_is_noticed(form: FileFormat, keep: float, tmp_path: Path) -> None:
    form.write(tmp_path, "clip", saved())
    file = form.main_file(tmp_path, "clip")
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(FeaturesDamaged, match="clip"):
        form.read(tmp_path, "clip")


def test_a_missing_array_is_noticed(tmp_path: Path) -> None:
    form = NpyForm()
    form.write(tmp_path, "clip", saved())
    (tmp_path / "clip_rgb_grid.npy").unlink()
    with pytest.raises(FeaturesDamaged, match="clip_rgb_grid"):
        form.read(tmp_path, "clip")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(1)}, tmp_path / "weights.safetensors")
    with pytest.raises(FeaturesDamaged, match="does not describe features"):
        load(tmp_path / "weights.safetensors")


def test_the_safetensors_file_is_readable_without_us(tmp_path: Path) -> None:
    SafetensorsForm().write(tmp_path, "clip", saved())
    with safe_open(tmp_path / "clip.safetensors", "np") as file:
        names = set(file.keys())
        assert saved().tag.spec_hash in file.metadata()["reelword"]
    assert {"i3d_rgb.values", "i3d_rgb.start", "i3d_rgb.end", "i3d_rgb_grid.mask"} <= names
    assert "i3d_rgb_boxes.boxes" in names
    assert (tmp_path / "clip.safetensors").stat().st_mode & 0o044 == 0o044


def test_npy_has_the_public_extractors_names(tmp_path: Path) -> None:
    """``<stem>_<key>.npy`` with fps and the windows' ends in milliseconds."""
    NpyForm().write(tmp_path, "clip", saved())
    assert np.load(tmp_path / "clip_rgb.npy").shape == (3, 8)
    assert np.load(tmp_path / "clip_rgb_grid.npy").shape == (3, 4, 8)
    assert float(np.load(tmp_path / "clip_fps.npy")) == 25.0
    assert np.load(tmp_path / "clip_timestamps_ms.npy").tolist() == [640.0, 1280.0, 1600.0]
    NpyForm().write(tmp_path, "clip", saved("vggish"))
    assert np.load(tmp_path / "clip_vggish.npy").shape == (3, 8)


def test_hdf5_is_read_by_a_video_name(tmp_path: Path) -> None:
    form = Hdf5Form()
    form.write(tmp_path / "i3d_rgb", "clip", saved())
    form.write(tmp_path / "i3d_rgb", "sub/other", saved())
    form.write(tmp_path / "i3d_rgb", "caf\udce9", saved())  # a name that is no UTF-8
    (tmp_path / "i3d_rgb" / "cut.h5").write_bytes(b"cut")
    written = link(tmp_path / "i3d_rgb")
    assert sorted(file.name for file in written) == ["rgb.hdf5", "rgb_boxes.hdf5", "rgb_grid.hdf5"]
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    with h5py.File(moved / "i3d_rgb" / "rgb.hdf5", "r") as file:
        assert sorted(map(os.fsencode, file)) == [b"caf\xe9", b"clip", b"sub"]
        for name in ("clip", "sub/other"):
            np.testing.assert_array_equal(file[name][()], streams()["i3d_rgb"].values.numpy())


def test_the_spec_hash_is_over_all_that_decides_the_numbers() -> None:
    tag = saved().tag
    others = [
        FeatureSpec("i3d_flow", SPEC, tag.windows),
        FeatureSpec("i3d_rgb", SPEC, None),
        FeatureSpec("i3d_rgb", SPEC, Windows(16, 8, extraction_fps=25.0)),
        FeatureSpec("i3d_rgb", SPEC, tag.windows, {"coco_ssd": "0" * 16}),
        *(
            FeatureSpec("i3d_rgb", replace(SPEC, **{member: "other"}), tag.windows)
            for member in ("network", "weights_sha256", "preprocessing", "sampling", "engine", "precision")
        ),
    ]
    hashes = {each.spec_hash for each in (tag, *others)}
    assert len(hashes) == len(others) + 1
    assert FeatureSpec.from_document(asdict(tag)).spec_hash == tag.spec_hash


def test_differences_are_told_by_name() -> None:
    ours = saved().tag
    theirs = FeatureSpec("i3d_rgb", replace(SPEC, precision="bf16"), Windows(32, 16, extraction_fps=25.0))
    assert ours.differences(theirs) == ["spec.precision: fp32, not bf16", "windows.stack_size: 16, not 32"]


def test_the_source_is_known_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"one")
    (tmp_path / "b.mp4").write_bytes(b"one")
    first, second = VideoSource.of(tmp_path / "a.mp4"), VideoSource.of(tmp_path / "b.mp4")
    assert (first.sha256, first.bytes) == (second.sha256, 3)
    assert first.path != second.path
    assert first.path == path_digest(Path(os.path.relpath(tmp_path / "a.mp4")))
