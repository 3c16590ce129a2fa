"""Stream sets are what the extractors make, and no captioner eats what it was not trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from extractors.extractor import create, find_maker, list_needed_streams, list_weights
from extractors.features import Frames, Stream, StreamSpec
from extractors.pretrained.manifest import MANIFEST, find_candidates
from extractors.video_features.feature_files import (
    FeatureSpec,
    SafetensorsForm,
    SavedFeatures,
    VideoSource,
    load,
)
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windows import Sampling, WindowOptions, Windows
from models.captioners.registry import UnknownStreamSet, find_stream_set, list_stream_sets
from models.captioners.stats.config import StreamConfig
from models.checkpoint import Card, Checkpoint
from models.combining.caption_writers import SingleWriter
from models.decoding.decode import DecodingOptions
from models.feature_sources.feature_source import FeatureSource
from models.feature_sources.stream_checks import (
    StreamMismatch,
    check_extractors,
    check_streams,
    select_stream_set,
)
from models.stream_set import (
    DEMO,
    DEMO_MOTION,
    DEMO_TUNED,
    MADE_BESIDE,
    StreamInput,
    UnknownStream,
    combine_stream_sets,
)
from tests.models.tiny import stats_config, tiny_stats

DUAL_AFR, FUSION, G2L, REFOCUS, STATS = map(
    find_stream_set, ("dual_afr", "fusion", "g2l", "refocus", "stats")
)
SPEC = StreamSpec("i3d", "a" * 64, "middle 224x224")


def test_g2l_keeps_its_stride_however_long_a_video_is() -> None:
    """Half a minute at 25 frames a second has more than the 64 windows that other sets spread over it."""
    cuts = {each.stream: each.windows.over(Windows()).cut(30.0, 25.0) for each in G2L.inputs}
    for stream, seconds in (("inception_v4", 0.2), ("resnext101_3d", 0.2), ("bottom_up:16", 0.6)):
        starts = cuts[stream].start
        np.testing.assert_allclose(np.diff(starts), seconds)
    assert len(cuts["inception_v4"]) == 150
    assert len(cuts["bottom_up:16"]) == 50


def checkpoint(streams: Mapping[str, StreamSpec], fed_by: str | None = None) -> Checkpoint:
    training = {} if fed_by is None else {"streams": fed_by}
    config = stats_config(*(StreamConfig(name=name, width=6) for name in streams))
    return Checkpoint(tiny_stats(config), Card("stats", streams, {}, training), "0" * 64)


def row(spec: StreamSpec) -> Stream:
    return Stream(torch.ones(1, 4, 6), np.zeros(1), np.ones(1), spec)


# ---- what the sets say ----


def test_every_paper_has_its_set() -> None:
    assert {"demo", "stats", "g2l", "refocus", "fusion", "dual_afr"} <= list_stream_sets().keys()
    with pytest.raises(UnknownStreamSet, match="there is no stream set 'blip'; there are: demo, demo-tuned"):
        find_stream_set("blip")


@pytest.mark.parametrize("name", list_stream_sets())
def test_each_extractor_exists_and_its_weights_are_in_the_manifest(name: str) -> None:
    wanted = find_stream_set(name)
    makers = {each.stream: MADE_BESIDE.get(each.extractor, each.extractor) for each in wanted.inputs}
    for extractor in wanted.extractors:
        for needed in list_needed_streams(extractor):
            maker = makers.get(needed) or find_maker(needed)
            assert list(wanted.extractors).index(maker) < list(wanted.extractors).index(extractor)
        for weights in list_weights(extractor):
            assert find_candidates(weights, MANIFEST)


def test_a_network_that_another_runs_in_its_pass_does_not_run_again() -> None:
    pair, both = "tuned_pair", "tuned_pair:classes"
    assert list(DEMO_MOTION.select(["tuned_pair_grid"]).extractors) == [pair]
    assert list(DEMO_MOTION.select(["efficientnet-lite2_logits"]).extractors) == [both]
    for wanted in (DEMO_MOTION.select(["tuned_pair_grid", "labels"]), DEMO_MOTION):
        assert {pair, both} & wanted.extractors.keys() == {both}
        assert {pair, both} & combine_stream_sets([DEMO_TUNED, wanted]).extractors.keys() == {both}


def cut(given: StreamInput, own: Windows, seconds: float = 8.0, fps: float = 30.0) -> NDArray[np.int64]:
    """The frames, by number, that each row looks at."""
    found = given.windows.over(own).cut(seconds, fps)
    frames: NDArray[np.int64] = np.floor(found.instants * fps).astype(np.int64)[found.index]
    return frames


def one(wanted: str, extractor: str) -> StreamInput:
    return next(each for each in find_stream_set(wanted).inputs if each.extractor == extractor)


def test_stats_sees_chunks_of_16_frames() -> None:
    """16 frames at a stride of 16, of the 25 frames a second that I3D was trained with."""
    frames = cut(one("stats", "i3d_rgb"), Windows(64, 64, extraction_fps=25.0))
    assert frames.shape == (13, 16)
    assert frames[1, 0] == pytest.approx(16 * 30 / 25, abs=1)
    assert (STATS.inputs[0].count, STATS.inputs[0].width) == (49, 2 * 1024)


def test_g2l_has_a_clip_a_frame_and_regions_of_every_third() -> None:
    frames = cut(one("g2l", "inception_v4"), Windows())[:, 0]
    clips = cut(one("g2l", "resnext101_3d"), Windows(16, 16))
    regions = cut(one("g2l", "bottom_up:16"), Windows(step_size=15))[:, -1]
    assert frames[:4].tolist() == [0, 5, 10, 15]
    assert clips[:3, 0].tolist() == [0, 5, 10]
    assert clips.shape[1] == 8
    assert regions[:3].tolist() == frames[1:9:3].tolist()


def test_refocus_sees_20_frames_of_any_video() -> None:
    for seconds in (0.1, 8.0, 7200.0):
        assert len(cut(one("refocus", "resnet152"), Windows(), seconds)) == 20


def test_dual_afr_reads_2_frames_a_second_in_windows_that_overlap_by_8() -> None:
    frames = cut(one("dual_afr", "c3d"), Windows(16, 8), seconds=30.0, fps=10.0)
    assert frames.shape[1] == 16
    assert np.diff(frames[0]).tolist() == [5] * 15
    assert frames[1, 0] == frames[0, 8]
    assert frames[2, 0] == frames[0, -1] + 5  # every second window follows without a gap


def test_fusion_looks_at_every_32nd_frame_and_has_objects_of_both_maps() -> None:
    assert cut(one("fusion", "resnext101"), Windows())[:3, 0].tolist() == [0, 32, 64]
    assert cut(one("fusion", "ircsn152"), Windows(32, 32)).shape[1] == 32
    assert {each.count for each in FUSION.inputs if each.regions == "boxes"} == {10}
    assert [each for each in FUSION.extractors if each.startswith("roi:")] == list(FUSION.extractors)[-2:]


def test_a_part_of_a_set_keeps_what_its_streams_are_made_of() -> None:
    part = FUSION.select(["roi:ircsn152@mask_rcnn:10"])
    assert set(part.extractors) == {"ircsn152", "mask_rcnn:10", "roi:ircsn152@mask_rcnn:10"}
    assert set(REFOCUS.select(["resnet152_grid"]).extractors) == {"resnet152"}
    with pytest.raises(UnknownStream, match=r"'g2l' makes inception_v4, .*, and not grid"):
        G2L.select(["grid"])


# ---- they are what the extractors make ----


def test_the_demo_set_is_what_it_says(root: Path) -> None:
    feed = FeatureSource(DEMO, cache=root / "data" / "cache", frames=3)
    assert feed.request.sampling == Sampling(count=3)
    assert feed.request.windows == ()
    pixels = np.zeros((3, 32, 48, 3), np.uint8)
    (streams,) = feed.extract([Frames(pixels, np.arange(3.0), 3.0)])
    given = DEMO.inputs[0]
    assert tuple(streams[given.stream].values.shape) == (3, given.count, given.width)
    assert feed.sampling == "3 frames, each from the middle of an equal part"


@dataclass(frozen=True)
class Blank:
    """One extractor of a set under seeded weights, plain torch, on one window of a grey video."""

    name: str
    windows: WindowOptions

    def streams(self) -> dict[str, Stream]:
        extractor = create(
            self.name, engine="torch", precision="fp32", weights="seeded", windows=self.windows
        )
        assert isinstance(extractor, WindowExtractor)
        windows = extractor.windows
        count = windows.stack_size + windows.ahead
        rate = windows.extraction_fps or 25.0
        pixels = np.full((count, 64, 64, 3), 128, np.uint8)
        (found,) = extractor.extract([Frames(pixels, np.arange(count) / rate, count / rate)])
        return found


def inputs() -> Iterator[tuple[str, StreamInput]]:
    """The quick ones; detectors, flow, and the largest networks take seconds a frame."""
    quick = {"c3d", "i3d_rgb", "resnext101_3d"}
    for wanted in (STATS, G2L, DUAL_AFR):
        yield from ((wanted.name, each) for each in wanted.inputs if each.extractor in quick)


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Stream]]:
    """Extractors that have run already, by name."""
    return {}


@pytest.mark.parametrize(("name", "given"), list(inputs()), ids=lambda each: getattr(each, "stream", each))
def test_streams_have_the_shapes_that_the_sets_tell(
    name: str, given: StreamInput, made: dict[str, dict[str, Stream]]
) -> None:
    if given.extractor not in made:
        made[given.extractor] = Blank(given.extractor, given.windows).streams()
    stream = made[given.extractor][given.stream]
    wanted = (1, given.count, given.width) if given.count > 1 else (1, given.width)
    assert tuple(stream.values.shape) == wanted
    assert stream.spec.weights_sha256 == "seeded"


# ---- a captioner eats what it was trained on ----


@pytest.mark.parametrize("member", ["network", "weights_sha256", "preprocessing"])
def test_features_from_a_file_are_refused_where_they_were_made_otherwise(member: str, tmp_path: Path) -> None:
    """Both name tags are printed."""
    trained = checkpoint({"grid": SPEC})
    other = replace(SPEC, **{member: "another"})
    tag = FeatureSpec("i3d_rgb", other)
    SafetensorsForm().write(
        tmp_path,
        "clip",
        SavedFeatures(tag, VideoSource("clip.mp4", "", "", 0), {}, 25.0, {"grid": row(other)}),
    )
    given = load(tmp_path / "clip.safetensors").streams
    with pytest.raises(StreamMismatch) as refused:
        SingleWriter(trained).caption([given], DecodingOptions())
    for spec in (other, SPEC):
        said = f"{spec.network} / {spec.weights_sha256[:12]} / {spec.preprocessing}"
        assert said in str(refused.value)


def test_features_of_random_weights_are_refused() -> None:
    seeded = replace(SPEC, weights_sha256="seeded")
    with pytest.raises(StreamMismatch, match="i3d / seeded / middle"):
        check_streams(checkpoint({"grid": SPEC}), {"grid": row(seeded)})


def test_sampling_engine_and_precision_may_differ() -> None:
    other = replace(SPEC, sampling="every frame", engine="openvino", precision="bf16")
    check_streams(checkpoint({"grid": SPEC}), {"grid": row(other)})


def test_a_captioner_is_fed_by_the_set_that_its_card_names() -> None:
    assert select_stream_set(checkpoint({"grid": SPEC}).card) == DEMO
    assert (
        select_stream_set(checkpoint({"i3d_rgb_grid": SPEC}, fed_by="stats-flow").card).name == "stats-flow"
    )
    assert set(
        select_stream_set(checkpoint({"i3d_rgb_grid": SPEC}, fed_by="stats-flow").card).extractors
    ) == {"i3d_rgb"}


def test_another_set_is_refused_with_both_named() -> None:
    trained = checkpoint({"grid": SPEC})
    wanted = (
        "stats was trained on grid (i3d / aaaaaaaaaaaa / middle 224x224), but the stream set 'stats' makes"
    )
    with pytest.raises(StreamMismatch, match=re.escape(wanted)):
        select_stream_set(trained.card, "stats")
    with pytest.raises(UnknownStreamSet):
        select_stream_set(trained.card, "blip")


def test_extractors_of_other_weights_are_refused_before_any_video(root: Path) -> None:
    feed = FeatureSource(DEMO, cache=root / "data" / "cache")
    (extractor,) = feed.extractors
    check_extractors(checkpoint({"grid": extractor.spec}), DEMO, feed.extractors)
    older = replace(extractor.spec, weights_sha256="b" * 64)
    with pytest.raises(
        StreamMismatch, match=r"efficientnet-lite2 / 9656183eaeaf .* trained on .* bbbbbbbbbbbb"
    ):
        check_extractors(checkpoint({"grid": older}), DEMO, feed.extractors)
