"""The tuned network: its changes survive a byte a weight, and make another grid beside the untouched one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from extractors import weights_folder
from extractors.checkpoint_file import read
from extractors.digests import sha256_of
from extractors.efficientnet import EfficientNetLite2
from extractors.efficientnet_lite import EfficientNetLite
from extractors.efficientnet_stages import LastStages
from extractors.extractor import create
from extractors.features import Frames, Stream
from extractors.initial import lively
from extractors.tuned_lite2 import (
    TUNED,
    TUNED_GRID,
    TunedLite2,
    apply_changes,
    from_checkpoint,
    save_changes,
    spec_of,
)
from extractors.weight_changes import LARGEST, SCALE, changed, changes_of
from extractors.weights import find, seeded
from extractors.weights_errors import WeightsDamaged, WeightsMissing, WrongCheckpoint
from extractors.weights_manifest import MANIFEST, entry
from tests.extractors.tuned_network import moved, write_tuned


def stages() -> LastStages:
    return LastStages(seeded(lambda: lively(EfficientNetLite())))


def test_changes_are_off_by_half_a_scale_at_most() -> None:
    """Biases by nothing; a channel that did not move does not move."""
    before, after = stages().state_dict(), moved(stages()).state_dict()
    changes = changes_of(before, after)
    again = changed(before, changes)
    assert again.keys() == after.keys()
    for name, value in after.items():
        if value.dim() < 2:
            torch.testing.assert_close(again[name], value, atol=1e-7, rtol=1e-6)
            continue
        assert changes[name].dtype == torch.int8
        assert int(changes[name].abs().max()) == LARGEST
        scale = changes[name + SCALE].view(-1, *[1] * (value.dim() - 1))
        slack = 1e-6 * value.abs().max()  # of the sum in float32
        assert bool(((again[name] - value).abs() <= scale / 2 + slack).all()), name
        assert torch.equal(again[name][::5], before[name][::5])


@pytest.mark.parametrize("mistake", ["missing", "left over", "shape"])
def test_changes_of_another_network_are_refused(mistake: str) -> None:
    before = stages().state_dict()
    changes = changes_of(before, before)
    if mistake == "missing":
        del changes["head.conv.weight" + SCALE]
    elif mistake == "left over":
        changes["tail.weight"] = torch.zeros(1)
    else:
        changes["head.conv.weight"] = changes["head.conv.weight"][:, :2]
    with pytest.raises(WrongCheckpoint, match=r"head\.conv\.weight|tail\.weight"):
        changed(before, changes)


def test_a_file_gives_the_network_back_and_is_small(tmp_path: Path) -> None:
    untouched, tuned = stages(), moved(stages())
    digest = save_changes(tuned, untouched, tmp_path / "changes.safetensors")
    assert (tmp_path / "changes.safetensors").stat().st_size < 4_000_000
    assert save_changes(tuned, untouched, tmp_path / "again.safetensors") == digest
    given = stages()
    apply_changes(given, read(tmp_path / "changes.safetensors"))
    cells = torch.randn(1, 196, 120, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        before, after, ours = untouched(cells), tuned(cells), given(cells)
    assert (ours - after).abs().mean() < 0.05 * (before - after).abs().mean()


# ---- the extractor ----


@pytest.fixture
def tuned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tuned network's file beside a manifest that knows it, and the packaged one."""
    file = write_tuned(tmp_path)
    monkeypatch.setenv("REELWORD_MANIFEST", str(tmp_path / "manifest.toml"))
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path / "data"))
    return file


def video(count: int = 2) -> Frames:
    y, x, c = np.mgrid[:90, :160, :3]
    pixels = ((x * (c + 1) + y * 2)[None] + np.arange(count)[:, None, None, None] * 7) % 256
    return Frames(pixels.astype(np.uint8), np.arange(count, dtype=np.float64), float(count))


def made(extractor: str) -> dict[str, Stream]:
    found = create(extractor, engine="torch", precision="fp32")
    assert isinstance(found, EfficientNetLite2)
    (streams,) = found.extract([video()])
    return streams


def test_the_streams_are_what_the_changed_network_sees(tuned_file: Path) -> None:
    """The untouched one sees something else, and goes on working."""
    ours, plain = made("tuned_lite2"), made("efficientnet-lite2")
    stage = made("efficientnet-lite2-stages")["stage_14"]
    shapes = {name: tuple(stream.values.shape) for name, stream in ours.items()}
    assert shapes == {TUNED: (2, 1280), TUNED_GRID: (2, 49, 1280)}
    grid = ours[TUNED_GRID].values.float()
    with torch.inference_mode():
        expected = from_checkpoint(read(tuned_file))(stage.values.float())
    torch.testing.assert_close(grid, expected, atol=2e-2, rtol=0)
    assert (grid - plain["grid"].values.float()).abs().mean() > 0.05
    torch.testing.assert_close(ours[TUNED].values.float(), grid.mean(1), atol=1e-3, rtol=1e-3)


def test_the_name_tag_tells_of_both_files(tuned_file: Path) -> None:
    spec = TunedLite2(engine="torch", precision="fp32").spec
    assert spec.weights_sha256 == sha256_of(tuned_file)
    assert find("efficientnet-lite2").sha256 in spec.preprocessing
    untouched = EfficientNetLite2(engine="torch", precision="fp32").spec
    assert spec.identity != untouched.identity
    assert spec.identity == spec_of(spec.weights_sha256, untouched.weights_sha256).identity


def test_the_repositorys_file_is_checked_like_any_other(
    tuned_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(TUNED).file == tuned_file
    assert not find(TUNED).pinned
    whole = tuned_file.read_bytes()
    tuned_file.write_bytes(whole[:-1] + b"?")
    with pytest.raises(WeightsDamaged, match="get the repository, or the image, again"):
        TunedLite2()
    tuned_file.unlink()
    monkeypatch.setattr(weights_folder, "MANIFEST", tuned_file)  # whose folder has no networks/
    with pytest.raises(WeightsMissing, match=r"weights/networks/tuned_lite2\.safetensors, which comes with"):
        TunedLite2()


def test_the_repositorys_own_file_is_the_proven_one() -> None:
    known = entry(TUNED, MANIFEST)
    file = MANIFEST.parent / known.path
    if not file.is_file():
        pytest.skip(f"weights/{known.path} absent")
    assert known.sha256 is not None
    found = find(TUNED)
    assert (found.file, found.sha256, file.stat().st_size) == (file, known.sha256, known.bytes)
    plain, ours = made("efficientnet-lite2")["grid"], made("tuned_lite2")[TUNED_GRID]
    assert not torch.equal(plain.values, ours.values)


def test_seeded_weights_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the untouched network's, under a name tag of their own."""
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    for extractor in (TunedLite2, EfficientNetLite2):
        spec = extractor(engine="torch", precision="fp32", weights="seeded").spec
        assert spec.weights_sha256 == "seeded"
