"""Clip networks over windows: each one's numbers are those of the network itself, at few frames."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from extractors.catalog.pytorchvideo import (
    HEADS,
    LAST_NORM,
    PLANS,
    CsnFromBytes,
    SlowFastFromBytes,
    build_library_network,
    from_checkpoint,
    pick_slow_frames,
)
from extractors.extractor import create
from extractors.features import Frames
from extractors.networks import csn, resnet3d, slow_resnet
from extractors.networks.c3d import C3D
from extractors.networks.csn import IrCsn
from extractors.networks.resnet3d import ResNet3D
from extractors.networks.slow_resnet import LAYOUTS, SlowResNet
from extractors.preprocessing.images import crop_middle, resize, shrink_or_enlarge
from extractors.pretrained.load import build_seeded
from extractors.pretrained.parameters import randomize
from extractors.windowing.network_extractor import NetworkExtractor, compact, lengthen
from extractors.windows import Windows
from tests.extractors.moving import moving


def made(name: str, windows: Windows | None = None) -> NetworkExtractor:
    extractor = create(name, engine="torch", precision="fp32", weights="seeded", windows=windows)
    assert isinstance(extractor, NetworkExtractor)
    return extractor


def assert_same(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got.float(), wanted, atol=1e-4 * float(wanted.abs().max()), rtol=0)


def clip(video: Frames, places: Sequence[int], short: int, side: int) -> Tensor:
    """(1, 3, T, side, side) of 0..255."""
    frames = crop_middle(shrink_or_enlarge(torch.from_numpy(video.pixels[list(places)]), short), side)
    return frames.permute(3, 0, 1, 2)[None].float()


def normalised(pixels: Tensor, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
    shape = (1, 3, 1, 1, 1)
    return (pixels - torch.tensor(mean).view(shape)) / torch.tensor(deviation).view(shape)


def resnext() -> ResNet3D:
    return randomize(ResNet3D(resnet3d.LAYOUTS["resnext101"]), ".bn3")


def of_2018(pixels: Tensor) -> Tensor:
    return normalised(pixels, resnet3d.MEAN_2018, (1, 1, 1))


def of_vmz(pixels: Tensor) -> Tensor:
    return normalised(pixels / 255, csn.MEAN, csn.DEVIATION)


@pytest.mark.parametrize(
    ("name", "short", "side", "network", "values"),
    [
        ("resnext101_3d", 112, 112, resnext, of_2018),
        ("ircsn152", 256, 224, lambda: randomize(IrCsn(), ".conv3.1"), of_vmz),
    ],
)
@torch.inference_mode()
def test_rows_are_what_the_network_says_of_each_window(
    name: str, short: int, side: int, network: Callable[[], nn.Module], values: Callable[[Tensor], Tensor]
) -> None:
    """Two windows that overlap, of 4 frames: the stems give 4 or 2 steps, the maps one."""
    video = moving(6, 60, 90)
    (streams,) = made(name, Windows(stack_size=4, step_size=2)).extract([video])
    net = build_seeded(network)
    for row, begin in enumerate((0, 2)):
        said = net(values(clip(video, range(begin, begin + 4), short, side)))
        assert_same(streams[name].values[row], said.pooled[0])
        assert_same(streams[f"{name}_logits"].values[row], said.logits[0])
        cells = said.grid[0].mean(1).flatten(1).T
        assert_same(streams[f"{name}_grid"].values[row], cells)


@torch.inference_mode()
def test_c3d_gives_its_vectors_and_its_maps_step_by_step() -> None:
    """A video of 17 frames has two windows, the second of 9 frames and 7 repetitions."""
    video = moving(17, 60, 92)
    (streams,) = made("c3d").extract([video])
    frames = crop_middle(resize(torch.from_numpy(video.pixels), 128, 171), 112)
    padded = frames[[*range(8, 17), *[16] * 7]]
    said = build_seeded(lambda: randomize(C3D()))(padded.permute(3, 0, 1, 2)[None].float())
    assert_same(streams["c3d_fc6"].values[1], said.fc6[0])
    assert_same(streams["c3d_fc7"].values[1], said.fc7[0])
    assert_same(streams["c3d_logits"].values[1], said.logits[0])
    for name, steps, side in (("pool2", 8, 28), ("pool3", 4, 14), ("pool4", 2, 7), ("pool5", 1, 4)):
        grid = getattr(said, name)[0]
        assert grid.shape[1:] == (steps, side, side)
        assert_same(streams[f"c3d_{name}"].values[1], grid.permute(1, 2, 3, 0).flatten(0, 2))
    mask = streams["c3d_fc7"].mask
    assert mask is not None
    assert mask.tolist() == [True, False]


@torch.inference_mode()
def test_slow_r50_takes_every_eighth_of_thirty_frames_a_second() -> None:
    """Frames 0, 8, … 56 of a video of 30 a second; its head pools over two by two places."""
    video = moving(64, 40, 40, fps=30)
    (streams,) = made("slow_r50").extract([video])
    net = build_seeded(lambda: randomize(SlowResNet(LAYOUTS["slow_r50"]), ".branch2.norm_c"))
    said = net((clip(video, range(0, 64, 8), 256, 256) / 255 - 0.45) / 0.225)
    assert_same(streams["slow_r50"].values[0], said.pooled[0])
    assert_same(streams["slow_r50_logits"].values[0], said.logits[0])
    assert_same(streams["slow_r50_grid"].values[0], said.grid[0].mean(1).flatten(1).T)
    assert len(streams["slow_r50"]) == 1


def test_half_precision_halves_a_map_and_keeps_it_finite() -> None:
    values = torch.tensor([[1e6, -1e6, 0.5]])
    assert compact(values, "fp32").dtype == torch.float32
    assert compact(values, "bf16").tolist() == [[65504.0, -65504.0, 0.5]]


def test_windows_are_lengthened_by_their_last_frame() -> None:
    stacks = torch.arange(6).reshape(2, 3, 1, 1, 1)
    assert lengthen(stacks, 5).flatten(1).tolist() == [[0, 1, 2, 2, 2], [3, 4, 5, 5, 5]]
    assert lengthen(stacks, 3) is stacks


def test_the_slow_pathway_sees_every_fourth_frame_spread_to_the_end() -> None:
    assert pick_slow_frames(32) == [0, 4, 8, 13, 17, 22, 26, 31]


@pytest.fixture
def library() -> None:
    if importlib.util.find_spec("pytorchvideo") is None:
        pytest.skip("pytorchvideo is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library of its own scripts functions when imported
        importlib.import_module("pytorchvideo.models")


@pytest.mark.parametrize("name", ["slowfast_r50", "csn_r101"])
@torch.inference_mode()
def test_what_the_library_builds_says_what_its_own_forward_does(library: None, name: str) -> None:
    """From a checkpoint under its own names; one place of the pool, so that the classifier of the mean is
    the mean of the classifier."""
    weights = build_seeded(lambda: randomize(build_library_network(name), LAST_NORM)).state_dict()
    network = from_checkpoint(name, weights)
    stacks = torch.from_numpy(moving(32, 224, 224).pixels)[None]
    clips = (stacks.permute(0, 4, 1, 2, 3).float() / 255 - 0.45) / 0.225
    pooled, cells, logits = (SlowFastFromBytes if name == "slowfast_r50" else CsnFromBytes)(network)(stacks)
    fed = [clips[:, :, pick_slow_frames(32)], clips] if name == "slowfast_r50" else clips
    assert_same(logits, network(fed))
    assert_same(network.get_submodule(HEADS[name].removesuffix(".weight"))(pooled), logits)
    assert cells.shape == (1, 49, PLANS[name].width)


@torch.inference_mode()
def test_our_slow_r50_is_the_library_s(library: None) -> None:
    hub = importlib.import_module("pytorchvideo.models.hub")
    theirs = build_seeded(lambda: hub.slow_r50(pretrained=False))
    clips = torch.rand(1, 3, 8, 224, 224, generator=torch.Generator().manual_seed(1))
    ours = slow_resnet.from_checkpoint("slow_r50", theirs.state_dict())
    assert_same(ours(clips).logits, theirs(clips))


def test_what_the_library_builds_says_so_where_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("csn", "slowfast"):
        monkeypatch.setitem(sys.modules, f"pytorchvideo.models.{module}", None)
    with pytest.raises(ImportError, match="--group pytorchvideo"):
        build_library_network("csn_r101")
