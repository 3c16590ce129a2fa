"""The tuned pair: its changes survive a byte a weight, and make another grid beside the untouched one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.catalog.efficientnet_lite2 import LOGITS, EfficientNetLite2, StagesFromBytes
from extractors.catalog.efficientnet_lite3 import EfficientNetLite3, Lite3FromBytes
from extractors.catalog.tuned_pair import (
    TUNED,
    TUNED_GRID,
    PairEnd,
    TunedPair,
    TunedPairFromBytes,
    apply_changes,
    from_checkpoint,
    make_spec,
)
from extractors.engines.engine import EngineName
from extractors.extractor import ExtractorOptions, UnknownExtractor, create
from extractors.features import Frames, Stream
from extractors.files import sha256_of
from extractors.networks.efficientnet_lite import LITE3, EfficientNetLite
from extractors.pretrained import weights_folder
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WeightsDamaged, WeightsMissing, WrongCheckpoint
from extractors.pretrained.load import build_seeded, find_weights
from extractors.pretrained.manifest import MANIFEST, find_entry
from extractors.pretrained.parameters import SCALE, apply_delta, randomize
from tests.extractors.catalog.test_efficientnet_lite2 import pattern
from tests.extractors.tuned_network import LARGEST, moved, quantize_delta, save_changes, write_tuned


def lite2() -> EfficientNetLite:
    """Random weights, and norms that have seen data."""
    network = build_seeded(lambda: randomize(EfficientNetLite()))
    generator = torch.Generator().manual_seed(5)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean = torch.randn(layer.num_features, generator=generator) * 0.1
            layer.running_var = torch.rand(layer.num_features, generator=generator) + 0.5
    return network


def drawn_end() -> PairEnd:
    return PairEnd(lite2())


def cells(count: int = 1, seed: int = 2) -> tuple[Tensor, Tensor]:
    """What an end is given of ``count`` pictures."""
    generator = torch.Generator().manual_seed(seed)
    fine, beside = (torch.randn(count, n, c, generator=generator) for n, c in ((196, 120), (49, 384)))
    return fine, beside


def test_the_demo_captioners_features_start_without_torchvision_and_timm() -> None:
    """Which take two seconds to import, and are for other extractors."""
    code = "import sys, extractors.catalog.tuned_pair; print({'torchvision', 'timm'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_the_untouched_end_goes_on_from_a_stage_to_the_plain_networks_grid() -> None:
    """Whatever Lite3 sees; every parameter can be trained, and one half of the head alone has a bias."""
    network, pixels = lite2(), torch.from_numpy(pattern(224))[None]
    with torch.inference_mode():
        plain = network((pixels.permute(0, 3, 1, 2).float() - 127) / 128)
        fine, _ = StagesFromBytes(network)(pixels)
        end = PairEnd(network)
        grid = end(fine, cells()[1])
    expected = plain.permute(0, 2, 3, 1).flatten(1, 2)
    assert expected.std() > 0
    torch.testing.assert_close(grid, expected, atol=5e-3, rtol=0)  # of values up to 6
    assert all(parameter.requires_grad for parameter in end.parameters())
    assert {name.rpartition(".")[2] for name, _ in end.named_parameters()} == {"weight", "bias"}
    assert [name for name, _ in end.lite3_head.named_parameters()] == ["weight"]


def test_lite3s_half_is_added_before_the_head_is_cut_off_at_0_and_6() -> None:
    """As if one convolution read the maps of both, a cell's own pair of them each."""
    end, (fine, beside) = moved(drawn_end(), by=0.05), cells(2)
    with torch.inference_mode():
        maps = end.blocks(fine.view(2, 14, 14, 120).permute(0, 3, 1, 2))
        both = torch.cat([maps, beside.view(2, 7, 7, 384).permute(0, 3, 1, 2)], 1)
        weight = torch.cat([end.head.weight, end.lite3_head.weight], 1).flatten(1)
        assert end.head.bias is not None
        logits = both.flatten(2).transpose(1, 2) @ weight.T + end.head.bias
        torch.testing.assert_close(end(fine, beside), logits.clamp(0, 6), atol=1e-4, rtol=1e-4)
        assert (end(fine, beside) - end(fine, 0 * beside)).abs().mean() > 0.01


def test_both_networks_in_one_pass_are_their_cells_and_the_end() -> None:
    """What serves is what was trained."""
    other = build_seeded(lambda: randomize(EfficientNetLite(LITE3)))
    pixels = torch.from_numpy(pattern(224))[None]
    with torch.inference_mode():
        fine, _ = StagesFromBytes(lite2())(pixels)
        expected = moved(drawn_end())(fine, Lite3FromBytes(other)(pixels))
        pair = TunedPairFromBytes(lite2(), other)
        moved(pair.end)
        torch.testing.assert_close(pair(pixels), expected, atol=1e-3, rtol=1e-3)


def test_changes_are_off_by_half_a_scale_at_most() -> None:
    """Biases by nothing; a channel that did not move does not move."""
    before, after = drawn_end().state_dict(), moved(drawn_end()).state_dict()
    changes = quantize_delta(before, after)
    again = apply_delta(before, changes)
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
    before = drawn_end().state_dict()
    changes = quantize_delta(before, before)
    if mistake == "missing":
        del changes["lite3_head.weight" + SCALE]
    elif mistake == "left over":
        changes["tail.weight"] = torch.zeros(1)
    else:
        changes["lite3_head.weight"] = changes["lite3_head.weight"][:, :2]
    with pytest.raises(WrongCheckpoint, match=r"lite3_head\.weight|tail\.weight"):
        apply_delta(before, changes)


def test_a_file_gives_the_end_back_and_is_small(tmp_path: Path) -> None:
    untouched, tuned = drawn_end(), moved(drawn_end())
    digest = save_changes(tuned, untouched, tmp_path / "changes.safetensors")
    assert (tmp_path / "changes.safetensors").stat().st_size < 4_500_000
    assert save_changes(tuned, untouched, tmp_path / "again.safetensors") == digest
    given = drawn_end()
    apply_changes(given, read_checkpoint(tmp_path / "changes.safetensors"))
    with torch.inference_mode():
        before, after, ours = (end(*cells()) for end in (untouched, tuned, given))
    assert (ours - after).abs().mean() < 0.05 * (before - after).abs().mean()


# ---- the extractor ----


@pytest.fixture
def tuned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tuned pair's file beside a manifest that knows it, and the packaged ones."""
    file = write_tuned(tmp_path)
    monkeypatch.setenv("REELWORD_MANIFEST", str(tmp_path / "manifest.toml"))
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path / "data"))
    return file


def video(count: int = 2) -> Frames:
    y, x, c = np.mgrid[:90, :160, :3]
    pixels = ((x * (c + 1) + y * 2)[None] + np.arange(count)[:, None, None, None] * 7) % 256
    return Frames(pixels.astype(np.uint8), np.arange(count, dtype=np.float64), float(count))


def made(extractor: str, engine: EngineName = "torch") -> dict[str, Stream]:
    found = create(extractor, engine=engine, precision="fp32")
    assert isinstance(found, EfficientNetLite2)
    (streams,) = found.extract([video()])
    return streams


def test_the_streams_are_what_the_changed_networks_see(tuned_file: Path) -> None:
    """The untouched one sees something else, and goes on working."""
    ours, plain = made("tuned_pair"), made("efficientnet-lite2")
    stage, beside = made("efficientnet-lite2-stages")["stage_14"], made("efficientnet-lite3")["lite3_grid"]
    shapes = {name: tuple(stream.values.shape) for name, stream in ours.items()}
    assert shapes == {TUNED: (2, 1280), TUNED_GRID: (2, 49, 1280)}
    grid = ours[TUNED_GRID].values.float()
    with torch.inference_mode():
        expected = from_checkpoint(read_checkpoint(tuned_file))(stage.values.float(), beside.values.float())
    torch.testing.assert_close(grid, expected, atol=3e-2, rtol=0)
    assert (grid - plain["grid"].values.float()).abs().mean() > 0.05
    torch.testing.assert_close(ours[TUNED].values.float(), grid.mean(1), atol=1e-3, rtol=1e-3)


def test_what_lite2_recognises_comes_out_of_the_same_pass_with_its_own_name_tag(tuned_file: Path) -> None:
    both, pair, plain = made("tuned_pair:classes"), made("tuned_pair"), made("efficientnet-lite2")
    assert both.keys() == {TUNED, TUNED_GRID, LOGITS}
    assert both[TUNED_GRID].spec == pair[TUNED_GRID].spec
    assert both[LOGITS].spec == plain[LOGITS].spec
    torch.testing.assert_close(both[TUNED_GRID].values, pair[TUNED_GRID].values, atol=1e-2, rtol=0)
    torch.testing.assert_close(both[LOGITS].values, plain[LOGITS].values, atol=2e-2, rtol=0)
    with pytest.raises(UnknownExtractor, match="one of tuned_pair, tuned_pair:classes"):
        create("tuned_pair:words")


def test_openvino_in_fp32_gives_torch_numbers(tuned_file: Path) -> None:
    ours, theirs = (made(TUNED, engine)[TUNED_GRID].values for engine in ("openvino", "torch"))
    torch.testing.assert_close(ours, theirs, atol=1e-2, rtol=0)


def test_the_name_tag_tells_of_all_three_files(tuned_file: Path) -> None:
    spec = TunedPair(ExtractorOptions(engine="torch", precision="fp32")).spec
    assert spec.weights_sha256 == sha256_of(tuned_file)
    packaged = [find_weights(name).sha256 for name in ("efficientnet-lite2", "efficientnet-lite3")]
    assert all(sha256 in spec.preprocessing for sha256 in packaged)
    assert spec.identity == make_spec(spec.weights_sha256, *packaged).identity
    for plain in (EfficientNetLite2, EfficientNetLite3):
        assert spec.identity != plain(ExtractorOptions(engine="torch", precision="fp32")).spec.identity


def test_the_repositorys_file_is_checked_like_any_other(
    tuned_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_weights(TUNED).file == tuned_file
    assert not find_weights(TUNED).pinned
    whole = tuned_file.read_bytes()
    tuned_file.write_bytes(whole[:-1] + b"?")
    with pytest.raises(WeightsDamaged, match="get the repository, or the image, again"):
        TunedPair()
    tuned_file.unlink()
    monkeypatch.setattr(weights_folder, "MANIFEST", tuned_file)  # whose folder has no networks/
    with pytest.raises(WeightsMissing, match=r"weights/networks/tuned_pair\.safetensors, which comes with"):
        TunedPair()


def test_the_repositorys_own_file_is_the_proven_one() -> None:
    known = find_entry(TUNED, MANIFEST)
    file = MANIFEST.parent / known.path
    if not file.is_file():
        pytest.skip(f"weights/{known.path} absent")
    assert known.sha256 is not None
    found = find_weights(TUNED)
    assert (found.file, found.sha256, file.stat().st_size) == (file, known.sha256, known.bytes)
    plain, ours = made("efficientnet-lite2")["grid"], made("tuned_pair")[TUNED_GRID]
    assert not torch.equal(plain.values, ours.values)


def test_seeded_weights_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the untouched networks', under a name tag of their own."""
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    monkeypatch.setenv("REELWORD_MANIFEST", str(tmp_path / "missing.toml"))
    made = (TunedPair, EfficientNetLite2, EfficientNetLite3)
    options = ExtractorOptions(engine="torch", precision="fp32", weights="seeded")
    specs = [each(options).spec for each in made]
    assert [spec.weights_sha256 for spec in specs] == ["seeded"] * 3
    assert len({spec.identity for spec in specs}) == 3
