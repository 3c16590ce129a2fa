"""A film's segments are captioned as they are cut, in batches that grow, and can be gone on with."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from app.errors import CaptionerUnknown, JobFailure
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report
from app.segments.caption_segments import SegmentCaption, caption_segments
from extractors.decoder.decoder import Decoder
from extractors.features import Frames
from extractors.media.decode import decode_here
from extractors.media.errors import MissingFile
from extractors.media.request import DecodeRequest, Video, cut_clip
from extractors.shots.segment import SegmentOptions
from extractors.windows import Sampling, Windows
from tests.app.segments.scripted_engine import ColourEngine
from tests.extractors.shots.scenes import cuts_of, write_scenes

LENGTHS = [3.0, 4.0, 2.5, 6.0, 3.0, 2.5, 4.0, 3.5, 2.5]
SHOTS = SegmentOptions("shots")
OPTIONS = CaptionOptions()


Read = Generator[SegmentCaption, None, Video]
Begin = Callable[..., Read]


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder() as running:
        yield running


@pytest.fixture
def begin(decoder: Decoder) -> Begin:
    def begun(film: Path, engine: ColourEngine, segments: SegmentOptions, start: float = 0.0) -> Read:
        return caption_segments(film, engine, OPTIONS, segments, decoder, start_after=start)

    return begun


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("films") / "film.mp4", LENGTHS)


def captions(
    begin: Begin,
    film: Path,
    engine: ColourEngine | None = None,
    segments: SegmentOptions = SHOTS,
    start: float = 0.0,
) -> list[SegmentCaption]:
    return list(begin(film, engine or ColourEngine(), segments, start))


def edges(found: Sequence[SegmentCaption]) -> list[tuple[float, float]]:
    return [(round(each.segment.start, 6), round(each.segment.end, 6)) for each in found]


def texts(found: Sequence[SegmentCaption]) -> list[str]:
    return [each.answer.answer.caption or "" for each in found]


def test_each_shot_has_its_caption(begin: Begin, film: Path) -> None:
    found = captions(begin, film)
    bounds = [0.0, *cuts_of(LENGTHS), sum(LENGTHS)]
    assert edges(found) == list(pairwise(bounds))
    assert len(set(texts(found))) == len(LENGTHS)
    for each in found:
        assert len(each.sampled) == len(each.frames) == 4
        assert all(each.segment.start <= time < each.segment.end for time in each.sampled)
        assert each.segment.representative in each.sampled
        assert each.film == pytest.approx(sum(LENGTHS))


def test_the_first_segment_waits_for_no_other(begin: Begin, film: Path) -> None:
    engine = ColourEngine()
    reading = begin(film, engine, SHOTS)
    next(reading)
    assert [len(batch) for batch in engine.seen] == [1]
    list(reading)
    assert [len(batch) for batch in engine.seen] == [1, 2, 4, 2]


def test_a_film_is_gone_on_with_behind_any_segment(begin: Begin, film: Path) -> None:
    whole = captions(begin, film)
    for place in (1, 4, len(whole) - 1):
        rest = captions(begin, film, start=whole[place - 1].segment.end)
        assert [each.segment for each in rest] == [each.segment for each in whole[place:]]
        assert texts(rest) == texts(whole[place:])


def test_behind_the_last_segment_there_is_only_what_the_file_is_like(begin: Begin, film: Path) -> None:
    reading = begin(film, ColourEngine(), SHOTS, sum(LENGTHS))
    with pytest.raises(StopIteration) as end:
        next(reading)
    assert end.value.value.duration == pytest.approx(sum(LENGTHS))


@pytest.mark.parametrize(
    "request_of",
    [
        DecodeRequest(short_side=48, windows=(Windows(stack_size=8, step_size=8),)),
        DecodeRequest(Sampling(fps=5.0), short_side=48),
    ],
)
def test_neighbouring_frames_are_those_of_a_clip_that_is_cut_out(
    begin: Begin, film: Path, request_of: DecodeRequest
) -> None:
    engine = ColourEngine(request_of)
    found = captions(begin, film, engine)
    given = [video for batch in engine.seen for video in batch]
    assert len(found) == len(given) == len(LENGTHS)
    for each, video in zip(found, given, strict=True):
        part = (each.segment.start, each.segment.end)
        clip = cut_clip(decode_here(film, replace(request_of, part=part)).footage, *part)
        assert np.array_equal(video.pixels, clip.pixels)
        assert video.pts == pytest.approx(clip.pts)
        assert each.sampled == pytest.approx(clip.pts + each.segment.start)


def test_a_film_that_is_not_cut_is_captioned_by_the_frames_of_a_clip(begin: Begin, film: Path) -> None:
    engine = ColourEngine()
    [found] = captions(begin, film, engine, SegmentOptions("none"))
    [[video]] = engine.seen
    expected = decode_here(film, engine.request)
    assert np.array_equal(video.pixels, expected.frames.pixels)
    assert edges([found]) == [(0.0, sum(LENGTHS))]


@pytest.mark.parametrize(("seconds", "cut"), [(50.0, False), (61.0, True)])
def test_films_from_a_minute_on_are_cut_unless_told_otherwise(
    begin: Begin, tmp_path: Path, seconds: float, cut: bool
) -> None:
    film = write_scenes(tmp_path / "film.mp4", [seconds / 2, seconds / 2], fps=4)
    found = captions(begin, film, segments=SegmentOptions("auto"))
    assert (len(found) > 1) == cut


def test_an_engine_that_cannot_caption_ends_it_by_name(begin: Begin, film: Path) -> None:
    reading = begin(film, ColourEngine(fail_at=2), SHOTS)
    next(reading)
    with pytest.raises(CaptionerUnknown):
        next(reading)


def test_a_file_that_cannot_be_read_ends_it_by_name(begin: Begin, tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        captions(begin, tmp_path / "absent.mp4")


def test_what_the_file_is_like_comes_back_at_the_end(begin: Begin, film: Path) -> None:
    reading = begin(film, ColourEngine(), SegmentOptions("pieces", 20.0))
    assert len([next(reading), next(reading)]) == 2
    with pytest.raises(StopIteration) as end:
        next(reading)
    assert end.value.value.frames == round(sum(LENGTHS) * 10)


@dataclass
class TwoCaptioners(ColourEngine):
    """written_by: the captioner of every segment."""

    written_by: list[str | None] = field(default_factory=list)

    @property
    def info(self) -> EngineInfo:
        known = super().info
        return replace(
            known,
            captioners=(*known.captioners, CaptionerInfo(name="quick", weights_sha256="1" * 64, features={})),
        )

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        self.written_by += [each.captioner for each in options]
        return super().describe_and_caption(videos, options, report)


@pytest.mark.parametrize(("asked", "writer"), [(None, "colour"), ("quick", "quick")])
def test_segments_may_have_a_captioner_of_their_own(
    decoder: Decoder, film: Path, asked: str | None, writer: str
) -> None:
    engine = TwoCaptioners()
    options = CaptionOptions(segment_captioner=asked)
    assert len(list(caption_segments(film, engine, options, SHOTS, decoder))) == len(LENGTHS)
    assert engine.written_by == [writer] * len(LENGTHS)


def test_frames_between_those_that_are_spread_are_not_shown(decoder: Decoder, film: Path) -> None:
    """A captioner of motion reads windows of neighbouring frames; a segment shows the spread ones."""
    spread = Sampling(count=4)
    windows = (Windows(extraction_total=4), Windows(stack_size=8, step_size=8, extraction_fps=25.0, most=2))
    engine = ColourEngine(DecodeRequest(spread, short_side=48, windows=windows, shown=spread))
    for each in caption_segments(film, engine, OPTIONS, SHOTS, decoder):
        assert len(each.sampled) == len(each.frames) == 4
    assert all(len(frames) > 4 for videos in engine.seen for frames in videos)
