"""What feeds several captioners at once: one decode, every extractor once, each set its own frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from PIL import Image

from extractors.catalog.labels import read_labels
from extractors.decoder.messages import pack_request, unpack_request
from extractors.features import FrameSize
from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest, Limits
from extractors.pretrained.errors import WeightsMissing
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windows import Sampling, WindowOptions, Windows
from models.captioners.registry import find_stream_set, list_stream_sets
from models.feature_sources.feature_source import (
    CombinedFeatureSource,
    ExtractorPool,
    FeatureSource,
    build_feature_source,
    complete_sampling,
)
from models.stream_set import DEMO, DEMO_MOTION, StreamInput, StreamSet, combine_stream_sets
from tests.media import write_video


@pytest.fixture(scope="module")
def pool(root: Path) -> ExtractorPool:
    return ExtractorPool(cache=root / "data" / "cache")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=20)


def named(stream: str, extractor: str, windows: WindowOptions, spread: int | None = None) -> StreamSet:
    return StreamSet("made", "any", (StreamInput(stream, extractor, 1, windows),), "here", spread)


def test_sets_of_one_spread_become_one_whose_inputs_are_there_once() -> None:
    assert combine_stream_sets([DEMO, DEMO]) == DEMO
    stages = named("stage", "stages", WindowOptions(), spread=8)
    joined = combine_stream_sets([DEMO, stages])
    assert joined.streams == ("grid", "stage")
    assert joined.spread == 8
    assert combine_stream_sets([joined, DEMO]).streams == joined.streams
    other = named("grid", "efficientnet-lite2", WindowOptions(extraction_fps=2.0))
    with pytest.raises(ValueError, match="'grid' would be made in two ways"):
        combine_stream_sets([DEMO, other])


def test_missing_weights_are_named_all_at_once() -> None:
    class EmptyPool(ExtractorPool):
        def get(self, name: str, windows: WindowOptions) -> NoReturn:
            raise WeightsMissing(f"{name} is not here.")

    with pytest.raises(
        WeightsMissing, match=r"inception_v4 is not here. resnext101_3d is not here. "
    ) as error:
        FeatureSource(find_stream_set("g2l"), pool=EmptyPool())
    assert error.value.advice == str(error.value)  # which has the advice


def test_one_decode_has_the_frames_of_all() -> None:
    spread, windows = (
        DecodeRequest(Sampling(count=8)),
        DecodeRequest(short_side=480, windows=(Windows(16, 16),)),
    )
    heard = DecodeRequest(Sampling(count=8), audio_rate=32000)
    assert DecodeRequest.together([spread, spread]) == spread
    assert DecodeRequest.together([spread, heard]) == heard
    both = DecodeRequest.together([spread, windows, heard])
    assert (both.short_side, both.audio_rate) == (480, 32000)
    times = np.arange(100) / 25
    for each in (spread, windows):
        assert set(each.choose(times, 4.0)) <= set(both.choose(times, 4.0))


def test_frames_at_a_rate_and_smaller_ones_join_too() -> None:
    """A rate keeps its own rule of what is most; each frame also comes in the size that it has alone."""
    spread = DecodeRequest(Sampling(count=8), short_side=32)
    at_rates = [DecodeRequest(Sampling(fps=2.0, max_frames=4)), DecodeRequest(Sampling(fps=1.0))]
    both = DecodeRequest.together([spread, *at_rates])
    assert DecodeRequest.together([both, spread]) == both
    assert both.frame_sizes == (FrameSize(256), FrameSize(32))
    times = np.arange(250) / 25
    for of in ([spread, *at_rates], at_rates, at_rates[::-1]):
        wanted = [each.choose(times, 10.0) for each in of]
        assert list(DecodeRequest.together(of).choose(times, 10.0)) == sorted(set(np.concatenate(wanted)))
    for request in (both, replace(both, shown=Sampling(count=8))):
        sent, _ = unpack_request(pack_request(request, Limits()))
        assert sent == request


def test_frames_are_shown_where_every_request_says_which() -> None:
    spread = DecodeRequest(Sampling(count=8))
    windows = DecodeRequest(Sampling(count=8), windows=(Windows(16, 16),), shown=Sampling(count=8))
    assert DecodeRequest.together([spread, windows]).shown == Sampling(count=8)
    assert DecodeRequest.together([spread, replace(windows, shown=None)]).shown is None


def test_an_extractor_is_loaded_once_for_all_feeds(pool: ExtractorPool) -> None:
    first, second = FeatureSource(DEMO, pool=pool), FeatureSource(DEMO, pool=pool, frames=3)
    assert first.extractors == second.extractors
    assert build_feature_source([DEMO], pool).extractors == first.extractors


def test_each_set_gets_its_own_frames_of_a_joint_decode(pool: ExtractorPool, clip: Path) -> None:
    """Pictures look at three of twenty frames, motion at all of them; alone and together alike."""
    alone, joint = (
        build_feature_source([DEMO], pool, frames=3),
        build_feature_source([DEMO, find_stream_set("stats")], pool, frames=3),
    )
    assert isinstance(joint, CombinedFeatureSource)
    decoded = decode_here(clip, joint.request)
    assert len(decoded.frames) == 20
    (streams,) = joint.extract([decoded.footage])
    spread, windows = streams["grid"].spec, streams["i3d_rgb_grid"].spec
    assert (
        complete_sampling(spread.sampling, joint.samplings["grid"])
        == "3 frames, each from the middle of an equal part"
    )
    assert complete_sampling(windows.sampling, joint.samplings["i3d_rgb_grid"]) == windows.sampling
    (wanted,) = alone.extract([decode_here(clip, alone.request).footage])
    assert streams["grid"].start.tolist() == wanted["grid"].start.tolist()
    assert len(streams["grid"]) == 3
    assert torch.equal(streams["grid"].values, wanted["grid"].values)
    assert streams["i3d_rgb_grid"].values.shape[1:] == (49, 2048)


def test_frames_that_are_spread_are_said_beside_windows() -> None:
    spread, windows = "8 frames", "stack_size 16, step_size 16, 25 fps"
    assert complete_sampling("", spread) == spread
    assert complete_sampling(windows, spread) == windows
    assert complete_sampling(f"{windows}; ; 10 boxes", spread) == f"{windows}; {spread}; 10 boxes"
    assert complete_sampling("10 boxes", None) == "10 boxes"


def test_two_feeds_do_not_make_one_stream(pool: ExtractorPool) -> None:
    windows = named("grid", "efficientnet-lite2", WindowOptions(extraction_fps=2.0))
    with pytest.raises(ValueError, match="'grid' would be made in two ways, of different frames"):
        build_feature_source([DEMO, windows], pool)


def test_motion_is_read_off_neighbours_beside_spread_frames(pool: ExtractorPool, clip: Path) -> None:
    """Three frames are looked at as pictures and shown, whole windows by I3D; each as it is alone."""
    windows = WindowOptions(stack_size=4, step_size=4, most=2)
    motion = StreamInput("i3d_rgb_grid", "i3d_rgb", 2048, windows, 49, "grid", "motion")
    mixed = FeatureSource(replace(DEMO, name="mixed", inputs=(*DEMO.inputs, motion)), pool=pool, frames=3)
    decoded = decode_here(clip, mixed.request)
    shown = decode_here(clip, FeatureSource(DEMO, pool=pool, frames=3).request).frames
    assert len(decoded.frames) > len(shown) == 3
    np.testing.assert_array_equal(decoded.footage.shown_frames.pts, shown.pts)
    np.testing.assert_array_equal(decoded.footage.shown_frames.pixels, shown.pixels)
    (streams,) = mixed.extract([decoded.footage])
    assert len(streams["grid"]) == 3
    alone = pool.get("i3d_rgb", windows)
    assert isinstance(alone, WindowExtractor)
    everything = decode_here(clip, DecodeRequest(Sampling(fps=25.0))).frames
    (wanted,) = alone.extract([everything])
    assert torch.equal(streams["i3d_rgb_grid"].values, wanted["i3d_rgb_grid"].values)


def test_a_picture_goes_through_the_set_of_motion(pool: ExtractorPool, tmp_path: Path) -> None:
    """A still is one frame, repeated for networks of windows; labels come of it all the same."""
    Image.fromarray(np.full((80, 90, 3), 90, np.uint8)).save(tmp_path / "still.png")
    source = FeatureSource(DEMO_MOTION, pool=pool)
    (streams,) = source.extract([decode_here(tmp_path / "still.png", source.request).footage])
    assert set(DEMO_MOTION.streams) <= streams.keys()
    assert len(streams["i3d_brief"]) == len(streams["tuned_pair_grid"]) == 1
    labels = read_labels(streams["labels"])
    assert [label.kind for label in labels[:9]] == ["motion"] * 4 + ["picture"] * 5


def test_a_set_that_spreads_frames_shows_them(pool: ExtractorPool) -> None:
    times = np.arange(100) / 25
    for each in list_stream_sets().values():
        if each.spread is not None:
            request = FeatureSource(each, pool=pool).request
            spread = Sampling(count=each.spread)
            assert request.sampling == spread
            assert set(spread.choose(times, 4.0)) <= set(request.choose(times, 4.0))
            assert (request.shown == spread) == bool(request.windows)
