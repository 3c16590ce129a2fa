"""What feeds several captioners at once: one decode, every extractor once, each set its own frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from extractors.decoder.messages import pack_request, unpack_request
from extractors.features import FrameSize
from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest, Limits
from extractors.windows import Sampling, WindowOptions, Windows
from models.captioners.registry import list_stream_sets
from models.captioners.stats.streams import STATS
from models.feature_sources.feature_source import (
    CombinedFeatureSource,
    ExtractorPool,
    FeatureSource,
    WindowsOfSpreadFrames,
    build_feature_source,
)
from models.stream_set import DEMO, StreamInput, StreamSet, combine_stream_sets
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
    _, sent, _ = unpack_request(pack_request("/clip.mp4", both, Limits()))
    assert sent == both


def test_an_extractor_is_loaded_once_for_all_feeds(pool: ExtractorPool) -> None:
    first, second = FeatureSource(DEMO, pool=pool), FeatureSource(DEMO, pool=pool, frames=3)
    assert first.extractors == second.extractors
    assert build_feature_source([DEMO], pool).extractors == first.extractors


def test_each_set_gets_its_own_frames_of_a_joint_decode(pool: ExtractorPool, clip: Path) -> None:
    """Pictures look at three of twenty frames, motion at all of them; alone and together alike."""
    alone, joint = (
        build_feature_source([DEMO], pool, frames=3),
        build_feature_source([DEMO, STATS], pool, frames=3),
    )
    assert isinstance(joint, CombinedFeatureSource)
    assert joint.sampling_of("grid") == "3 frames, each from the middle of an equal part"
    assert joint.sampling_of("i3d_rgb_grid") is None
    decoded = decode_here(clip, joint.request)
    assert len(decoded.frames) == 20
    (streams,) = joint.extract([decoded.footage])
    (wanted,) = alone.extract([decode_here(clip, alone.request).footage])
    assert streams["grid"].start.tolist() == wanted["grid"].start.tolist()
    assert len(streams["grid"]) == 3
    assert torch.equal(streams["grid"].values, wanted["grid"].values)
    assert streams["i3d_rgb_grid"].values.shape[1:] == (49, 2048)


def test_two_feeds_do_not_make_one_stream(pool: ExtractorPool) -> None:
    windows = named("grid", "efficientnet-lite2", WindowOptions(extraction_fps=2.0))
    with pytest.raises(ValueError, match="'grid' would be made in two ways, of different frames"):
        build_feature_source([DEMO, windows], pool)


def test_motion_is_not_read_off_frames_that_lie_seconds_apart(pool: ExtractorPool) -> None:
    """Eight frames of a long film would be handed to I3D as if they followed each other."""
    mixed = replace(STATS, name="mixed", inputs=(*DEMO.inputs, *STATS.inputs), spread=8)
    with pytest.raises(WindowsOfSpreadFrames, match=r"'mixed' spreads 8 frames.*i3d_rgb looks at windows"):
        FeatureSource(mixed, pool=pool)
    assert FeatureSource(replace(mixed, spread=None), pool=pool).request.windows


def test_every_set_that_spreads_frames_has_extractors_of_single_frames(pool: ExtractorPool) -> None:
    for each in list_stream_sets().values():
        if each.spread is not None:
            assert FeatureSource(each, pool=pool).request.sampling == Sampling(count=each.spread)
