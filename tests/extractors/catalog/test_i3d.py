"""I3D over windows: its numbers are the network's own, of pictures and of flow; it names actions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from extractors.catalog.i3d import I3DFlow
from extractors.extractor import create
from extractors.features import Frames, Stream
from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest, Limits
from extractors.networks.i3d import I3D, scale_pixels
from extractors.networks.raft import Raft, quantise_flow
from extractors.preprocessing.images import crop_middle, shrink_or_enlarge
from extractors.pretrained.load import WeightsChoice, build_seeded
from extractors.pretrained.parameters import randomize
from extractors.windowing.network_extractor import NetworkExtractor
from extractors.windows import Sampling, Windows
from tests.extractors.moving import moving


def made(name: str, windows: Windows | None = None, weights: WeightsChoice = "seeded") -> NetworkExtractor:
    extractor = create(name, engine="torch", precision="fp32", weights=weights, windows=windows)
    assert isinstance(extractor, NetworkExtractor)
    return extractor


@pytest.fixture(scope="module")
def rgb() -> NetworkExtractor:
    return made("i3d_rgb", Windows(stack_size=10, step_size=5))


@pytest.fixture(scope="module")
def network() -> I3D:
    """The one that the extractor of pictures has."""
    return build_seeded(lambda: randomize(I3D()))


@pytest.fixture(scope="module")
def flow_network() -> I3D:
    return build_seeded(lambda: randomize(I3D(channels=2)))


def seen(video: Frames, places: list[int]) -> Tensor:
    """Frames float (n, 3, 256, w), as the public extractors resize them."""
    return shrink_or_enlarge(torch.from_numpy(video.pixels[places]), 256).permute(0, 3, 1, 2).float()


def assert_same(got: Tensor, wanted: Tensor, share: float = 1e-4) -> None:
    """Within this share of the largest value."""
    torch.testing.assert_close(got.float(), wanted, atol=share * float(wanted.abs().max()), rtol=0)


@torch.inference_mode()
def assert_row(
    streams: Mapping[str, Stream], name: str, row: int, net: I3D, clip: Tensor, share: float = 1e-4
) -> None:
    """The row is what the network says of the clip (1, C, T, 224, 224)."""
    grid = net(clip)
    head = net.run_head(grid)
    assert_same(streams[name].values[row], head.features[0], share)
    assert_same(streams[f"{name}_logits"].values[row], head.logits[0], share)
    assert grid.shape[2] == 2
    assert_same(streams[f"{name}_grid"].values[row], grid[0].permute(2, 3, 1, 0).reshape(49, 2048), share)


def test_rows_are_what_the_network_says_of_each_window(rgb: NetworkExtractor, network: I3D) -> None:
    """Windows overlap by half; the map has the two steps of time side by side, as STaTS takes it."""
    video = moving(15, 60, 90)
    (streams,) = rgb.extract([video])
    assert {name: tuple(stream.values.shape) for name, stream in streams.items()} == {
        "i3d_rgb": (2, 1024),
        "i3d_rgb_grid": (2, 49, 2048),
        "i3d_rgb_logits": (2, 400),
    }
    for row, begin in enumerate((0, 5)):
        pictures = crop_middle(seen(video, list(range(begin, begin + 10))), 224, (2, 3))
        assert_row(streams, "i3d_rgb", row, network, scale_pixels(pictures).transpose(0, 1)[None])


def test_windows_too_short_for_the_network_repeat_their_last_frame(network: I3D) -> None:
    video = moving(4, 60, 90)
    (streams,) = made("i3d_rgb", Windows(stack_size=4, step_size=4)).extract([video])
    pictures = crop_middle(seen(video, [0, 1, 2, 3, 3, 3, 3, 3, 3]), 224, (2, 3))
    assert_row(streams, "i3d_rgb", 0, network, scale_pixels(pictures).transpose(0, 1)[None])


def test_a_batch_of_windows_gives_what_each_gives_alone(rgb: NetworkExtractor) -> None:
    videos = [moving(10, 60, 90), moving(1, 90, 61, seed=3)]
    rgb.batch = 3
    together = rgb.extract(videos)
    rgb.batch = 1
    for video, streams in zip(videos, together, strict=True):
        (alone,) = rgb.extract([video])
        for name, stream in streams.items():
            assert_same(stream.values, alone[name].values.float())
            assert stream.mask is not None
            assert stream.mask.tolist() == [len(video) == 10]


def by_flow(flow: nn.Module, pictures: Tensor) -> Tensor:
    """The flow input (1, 2, T, 224, 224) of pictures (T + 1, 3, h, w)."""
    between = torch.cat([flow(a[None], b[None]) for a, b in pairwise(pictures)])
    return scale_pixels(quantise_flow(crop_middle(between, 224, (2, 3)))).transpose(0, 1)[None]


def test_flow_rows_look_one_frame_ahead(flow_network: I3D) -> None:
    """Three flows of four frames; at the video's end the last frame is its own successor.

    The last flow is repeated, for the network needs nine.
    """
    video = moving(6, 60, 90)
    extractor = made("i3d_flow", Windows(stack_size=3, step_size=3))
    assert isinstance(extractor, I3DFlow)
    assert isinstance(extractor.flow, Raft)
    extractor.flow.updates = 1
    (streams,) = extractor.extract([video])
    for row, places in enumerate(([0, 1, 2, 3], [3, 4, 5, 5])):
        with torch.inference_mode():
            flows = by_flow(build_seeded(partial(Raft, updates=1)), seen(video, places))
        clip = flows[:, :, [0, 1, 2, 2, 2, 2, 2, 2, 2]]
        assert_row(streams, "i3d_flow", row, flow_network, clip, share=5e-3)
    mask = streams["i3d_flow"].mask
    assert mask is not None
    assert mask.all()


def test_raft_feeds_the_flow_network(flow_network: I3D) -> None:
    """One pair, its flow repeated. A flow at the edge of two levels may fall to either side."""
    video = moving(2, 60, 60)
    extractor = made("i3d_flow", Windows(stack_size=1, step_size=2))
    assert isinstance(extractor, I3DFlow)
    assert isinstance(extractor.flow, Raft)
    extractor.flow.updates = 3
    (streams,) = extractor.extract([video])
    with torch.inference_mode():
        clip = by_flow(build_seeded(partial(Raft, updates=3)), seen(video, [0, 1])).repeat(1, 1, 9, 1, 1)
    assert_row(streams, "i3d_flow", 0, flow_network, clip, share=5e-3)


def test_the_name_tag_tells_what_the_numbers_mean(rgb: NetworkExtractor) -> None:
    other = made("i3d_rgb", Windows(stack_size=16, step_size=16, extraction_fps=25))
    assert other.spec.identity == rgb.spec.identity
    assert other.spec.sampling == "stack_size 16, step_size 16, 25 fps"
    assert rgb.spec.sampling == "stack_size 10, step_size 5, every frame"
    assert rgb.spec.weights_sha256 == "seeded"
    flow = made("i3d_flow").spec
    assert flow.identity != rgb.spec.identity
    assert "RAFT" in flow.preprocessing


def test_by_default_windows_are_those_of_the_public_extractors() -> None:
    extractor = made("i3d_flow")
    assert extractor.windows == Windows(64, 64, extraction_fps=25, ahead=1)
    assert extractor.windows.cut(128 / 25, 25).index.shape == (2, 65)


def test_the_packaged_weights_name_the_action_of_a_clip(shared: Path) -> None:
    file = shared / "data" / "clips" / "mmaction2__demo_spatiotemporal_det.mp4"
    whole = decode_here(file, DecodeRequest(Sampling(fps=25)), Limits()).frames
    extractor = made("i3d_rgb", Windows(32, 32, extraction_fps=25), weights="published")
    (streams,) = extractor.extract([Frames(whole.pixels[:32], whole.pts[:32], 32 / 25)])
    assert extractor.classes is not None
    shares = streams["i3d_rgb_logits"].values.float().mean(0).softmax(0)
    assert extractor.classes[int(shares.argmax())] == "arm wrestling"
    assert shares.max() > 0.5
