"""I3D: the checkpoint that comes in a package, its restricted reader, and files that are not its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.models.video import R3D_18_Weights

from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest, Limits
from extractors.networks import i3d
from extractors.networks.efficientnet_lite import compute_same_padding
from extractors.networks.i3d import I3D
from extractors.pretrained.load import build_seeded, load_pretrained
from extractors.pretrained.parameters import WrongCheckpoint, randomize
from extractors.windows import Sampling

KINETICS = R3D_18_Weights.KINETICS400_V1.meta["categories"]
ACTIONS = {
    "PaddleVideo__example.avi": "archery",
    "mmaction2__part_0.mp4": "cleaning pool",
    "mmaction2__demo_spatiotemporal_det.mp4": "arm wrestling",
}


@pytest.fixture(scope="module")
def network() -> I3D:
    return load_pretrained("i3d_rgb", "published", i3d.from_checkpoint, I3D)[0]


def clip(file: Path) -> Tensor:
    """The middle 224×224 of the first 32 frames at 25 a second, in [-1, 1]."""
    request = DecodeRequest(Sampling(fps=25))
    pixels = decode_here(file, request, Limits()).frames.pixels[:32]
    top, left = (pixels.shape[1] - 224) // 2, (pixels.shape[2] - 224) // 2
    middle = torch.from_numpy(pixels[:, top : top + 224, left : left + 224].copy())
    return middle.permute(3, 0, 1, 2)[None].float() / 127.5 - 1


@pytest.mark.parametrize("name", ACTIONS)
def test_the_packaged_weights_name_the_action(network: I3D, shared: Path, name: str) -> None:
    with torch.inference_mode():
        head = network.run_head(network(clip(shared / "data" / "clips" / name)))
    assert KINETICS[int(head.logits.argmax())] == ACTIONS[name]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "zeros"),
    [(11, 7, 2, (3, 3)), (16, 7, 2, (2, 3)), (7, 2, 2, (0, 1)), (8, 2, 2, (0, 0))],
)
def test_padding_depends_on_the_size(size: int, kernel: int, stride: int, zeros: tuple[int, int]) -> None:
    assert compute_same_padding(size, kernel, stride) == zeros


@torch.inference_mode()
def test_a_still_is_one_thing_however_often_it_is_repeated() -> None:
    """Where time is padded by repeated frames; zeros make a clip of its length."""
    still = torch.rand(1, 3, 1, 64, 64, generator=torch.Generator().manual_seed(3)) * 2 - 1
    network = build_seeded(lambda: randomize(I3D()))
    zeros = [network(still.expand(-1, -1, count, -1, -1)).mean(2) for count in (1, 16)]
    network.repeat_frames()
    once, often = (network(still.expand(-1, -1, count, -1, -1)).mean(2) for count in (1, 16))
    torch.testing.assert_close(often, once, atol=1e-4 * float(once.abs().max()), rtol=0)
    assert float((zeros[0] - zeros[1]).abs().max()) > 0.01 * float(zeros[1].abs().max())


def test_a_map_of_one_step_has_a_head() -> None:
    head = I3D().eval().run_head(torch.ones(1, 1024, 1, 7, 7))
    assert (head.features.shape, head.logits.shape) == ((1, 1024), (1, 400))
    assert head.logits_per_step.shape == (1, 400, 1)


def test_another_networks_checkpoint_is_refused(network: I3D) -> None:
    with pytest.raises(WrongCheckpoint, match="Conv3d_1a_7x7"):
        i3d.from_checkpoint({"conv1.weight": torch.zeros(64, 3, 7, 7)})
    short = dict(network.state_dict())
    del short["Mixed_4b.branch0.0.conv.weight"]
    short["Mixed_9z.weight"] = torch.zeros(1)
    with pytest.raises(
        WrongCheckpoint, match=r"2 parameters do not fit.*4b.*is missing; Mixed_9z.*left over"
    ):
        i3d.from_checkpoint(short)
