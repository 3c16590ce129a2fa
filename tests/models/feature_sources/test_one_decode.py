"""The same file gives the same features whoever asks: ``extract``, or what feeds a captioner.

On a clip larger than any network looks at, of texture so fine that shrinking it twice shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from app.worker.engine.shared_frames import map_frames, write_frames
from extractors.catalog.detectors import RegionsExtractor, TwoStageDetector
from extractors.catalog.torchvision_detectors import TorchvisionDetector
from extractors.child_process import open_shared_memory
from extractors.decoder.decoder import Decoder
from extractors.detection.proposals import ProposalRule
from extractors.extractor import AnyExtractor, create
from extractors.features import Footage, Stream
from extractors.media.decode import decode_here
from extractors.media.errors import DecodeMemory
from extractors.media.request import DecodeRequest, Limits, cut_clip
from extractors.video_features.extract_videos import extract_video
from extractors.windows import WindowOptions
from models.feature_sources.feature_source import (
    SHORT_SIDE,
    CombinedFeatureSource,
    ExtractorPool,
    FeatureSource,
)
from models.stream_set import StreamInput, StreamSet
from tests.media import Picture, write_video

pytestmark = pytest.mark.slow

TWO = WindowOptions(extraction_total=2)
ONE = WindowOptions(extraction_total=1)
CLIPS = WindowOptions(stack_size=16, step_size=16, most=1)
#: One of each way to prepare a frame.
KINDS: Mapping[str, WindowOptions] = {
    "resnet50": TWO,  # short side kept, cut out
    "inception_v4": TWO,  # bicubic
    "i3d_rgb": CLIPS,
    "c3d": CLIPS,  # squashed
    "bottom_up:3": ONE,  # a detector's two limits
    "mask_rcnn:3": ONE,  # frames as stored
    "coco_ssd": TWO,  # shrunk by the decoder
    "efficientnet-lite2": TWO,
    "vggish": WindowOptions(),
}


def lighten(extractor: AnyExtractor) -> AnyExtractor:
    """Takes work off a detector behind its preparation: random weights propose as many boxes as are let."""
    detector = extractor.detector if isinstance(extractor, RegionsExtractor) else None
    if isinstance(detector, TwoStageDetector):
        detector.network.proposals = ProposalRule(100, 6)
    elif isinstance(detector, TorchvisionDetector):  # resizes by itself, behind what is compared
        detector.model.transform.min_size, detector.model.transform.max_size = (160,), 320
    return extractor


class SeededPool(ExtractorPool):
    """Extractors of random weights, in full precision."""

    def __init__(self) -> None:
        super().__init__()
        self._seeded: dict[tuple[str, WindowOptions], AnyExtractor] = {}

    def get(self, name: str, windows: WindowOptions) -> AnyExtractor:
        if (name, windows) not in self._seeded:
            self._seeded[name, windows] = lighten(
                create(name, "cpu", engine="torch", precision="fp32", weights="seeded", windows=windows)
            )
        return self._seeded[name, windows]


def woven(index: int, width: int, height: int) -> Picture:
    """Threads one and two pixels wide, and noise: other at every frame."""
    rng = np.random.default_rng(index)
    noise = rng.integers(0, 90, (height, width, 3), np.uint8)
    rows, columns = np.mgrid[:height, :width]
    threads = ((rows + index) % 2 * 80 + (columns // 2 + index) % 2 * 80).astype(np.uint8)
    picture: Picture = noise + threads[..., None]
    return picture


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("woven") / "clip.mp4"
    return write_video(path, frames=20, width=1280, height=720, painter=woven, audio_seconds=2.0)


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder() as decoder:
        yield decoder


@pytest.fixture(scope="module")
def pool() -> SeededPool:
    return SeededPool()


def set_of(name: str, windows: WindowOptions, spread: int | None = None) -> StreamSet:
    return StreamSet("made", "any", (StreamInput(name, name, 1, windows),), "here", spread)


def feed(name: str, pool: ExtractorPool) -> FeatureSource:
    return FeatureSource(set_of(name, KINDS[name]), pool=pool)


def same(ours: Mapping[str, Stream], theirs: Mapping[str, Stream]) -> None:
    """Also their times, but for frames spread over the time: those are shown from one to the next."""
    assert ours.keys() == theirs.keys()
    for name, stream in ours.items():
        other = theirs[name]
        assert stream.spec == other.spec
        assert stream.view == pytest.approx(other.view)
        if not stream.spec.network.startswith("efficientnet"):
            assert stream.start.tolist() == pytest.approx(other.start.tolist())
        assert torch.equal(stream.values, other.values), name
        assert stream.boxes is None or (other.boxes is not None and torch.equal(stream.boxes, other.boxes))


@pytest.mark.parametrize("name", KINDS)
def test_the_same_features_by_both_ways(name: str, clip: Path, pool: SeededPool, decoder: Decoder) -> None:
    fed = feed(name, pool)
    decoded = decoder.decode(clip, fed.request)
    (ours,) = fed.extract([decoded.footage])
    same(ours, extract_video(decoder, clip, fed.extractors).streams)


def test_the_size_of_one_does_not_depend_on_who_else_is_fed(
    clip: Path, pool: SeededPool, decoder: Decoder
) -> None:
    """Pictures spread over the time beside motion: each as alone, and lent to another process as well."""
    pictures = FeatureSource(set_of("efficientnet-lite2", WindowOptions(), spread=3), pool=pool)
    others = [feed("i3d_rgb", pool), feed("coco_ssd", pool)]
    joint = CombinedFeatureSource([pictures, *others])
    footage = decoder.decode(clip, joint.request).footage
    places, _ = write_frames([footage], shared := open_shared_memory())
    (lent,) = map_frames(places, shared)
    assert isinstance(lent, Footage)
    (streams,) = joint.extract([lent])
    for alone in (pictures, *others):
        (own,) = alone.extract([decoder.decode(clip, alone.request).footage])
        same(own, {name: streams[name] for name in own})


def test_what_is_gathered_is_small_and_upright(clip: Path, tmp_path: Path, pool: SeededPool) -> None:
    request = feed("i3d_rgb", pool).request
    (size,) = request.sizes
    decoded = decode_here(clip, request)
    assert decoded.frames.pixels.shape == (7, SHORT_SIDE, 455, 3)
    assert decoded.sized[size].shape == (7, 256, 455, 3)
    tall = write_video(tmp_path / "tall.mp4", frames=3, width=640, height=360, rotation=90)
    assert decode_here(tall, request).sized[size].shape == (3, 455, 256, 3)
    small = write_video(tmp_path / "small.mp4", frames=3)  # enlarged by its extractor, not before
    assert decode_here(small, request).sized[size].shape == (3, 48, 64, 3)


def test_a_part_of_a_file_is_gathered_as_it_is_decoded(clip: Path, pool: SeededPool) -> None:
    request = feed("c3d", pool).request
    part = DecodeRequest(request.sampling, SHORT_SIDE, None, request.windows, (0.5, 1.5), request.sizes)
    whole = DecodeRequest(request.sampling, SHORT_SIDE, None, request.windows, (0.5, 1.5))
    ours, theirs = (decode_here(clip, each).footage for each in (part, whole))
    assert ours.pts.tolist() == theirs.pts.tolist()
    assert np.array_equal(ours.pixels, theirs.pixels)
    cut = cut_clip(ours, 0.5, 1.5)
    assert isinstance(cut, Footage)
    assert [len(pixels) for pixels in cut.sized.values()] == [len(cut)]


def test_more_than_the_memory_limit_is_refused(clip: Path, pool: SeededPool, decoder: Decoder) -> None:
    request = feed("i3d_rgb", pool).request
    with pytest.raises(DecodeMemory):
        decode_here(clip, request, Limits(memory=3 << 20))
    assert len(decoder.decode(clip, request).frames) == 7
