"""Segments of a film, read once: where they begin and end, and which frames of them are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from extractors.media.decode import stream_here
from extractors.media.request import DecodeRequest, Video
from extractors.media.stream_parts import FrameChunk, StreamEnd, StreamPart, StreamStart
from extractors.shots.segment import SegmentFrames, SegmentOptions, SegmentPlan
from extractors.shots.segment_reader import read_segments
from extractors.windows import Sampling, Windows
from tests.extractors.shots.scenes import FPS, cuts_of, write_scenes
from tests.media import numbered, read_number, write_video

PLAN = SegmentPlan(count=4, short_side=64)
SHOTS = SegmentOptions("shots")
FRAME = 1 / FPS


def read(
    path: Path, options: SegmentOptions, start: float = 0.0, plan: SegmentPlan = PLAN
) -> list[SegmentFrames]:
    return list(read_segments(stream_here(path, plan.stream_request(options, start)), options, plan, start))


def edges(found: Sequence[SegmentFrames]) -> list[tuple[float, float]]:
    return [(round(each.segment.start, 6), round(each.segment.end, 6)) for each in found]


def test_each_shot_is_a_segment_and_together_they_are_the_film(tmp_path: Path) -> None:
    lengths = [3.0, 4.0, 2.5, 6.0]
    found = edges(read(write_scenes(tmp_path / "film.mp4", lengths), SHOTS))
    bounds = [0.0, *cuts_of(lengths), sum(lengths)]
    assert found == list(pairwise(bounds))


def test_a_shot_that_is_too_short_stays_with_the_one_before(tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "film.mp4", [4.0, 0.5, 4.0, 0.5])
    assert edges(read(film, SHOTS)) == [(0.0, 4.0), (4.0, 9.0)]


def test_no_segment_of_a_fast_montage_is_shorter_than_the_minimum(tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "film.mp4", [0.6] * 20)
    found = edges(read(film, SHOTS))
    assert len(found) > 3
    assert all(end - start >= SHOTS.minimum for start, end in found)


def test_a_long_shot_is_cut_after_the_maximum(tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "film.mp4", [25.0, 3.0])
    options = SegmentOptions("shots", maximum=10.0)
    assert edges(read(film, options)) == [(0.0, 10.0), (10.0, 20.0), (20.0, 25.0), (25.0, 28.0)]


def test_a_shot_that_ends_soon_after_the_maximum_is_left_whole(tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "film.mp4", [11.0, 3.0])
    assert edges(read(film, SegmentOptions("shots", maximum=10.0))) == [(0.0, 11.0), (11.0, 14.0)]


def test_pieces_are_of_equal_length_and_a_short_rest_joins_the_last(tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "film.mp4", [6.5, 4.0])
    assert edges(read(film, SegmentOptions("pieces", 5.0))) == [(0.0, 5.0), (5.0, 10.5)]
    assert edges(read(film, SegmentOptions("pieces", 4.0))) == [(0.0, 4.0), (4.0, 8.0), (8.0, 10.5)]


def test_pieces_look_at_the_frames_that_a_clip_of_that_length_shows(tmp_path: Path) -> None:
    film = write_video(tmp_path / "film.mp4", frames=200, width=64, height=64, fps=FPS, painter=numbered)
    for found in read(film, SegmentOptions("pieces", 5.0)):
        wanted = found.segment.start + Sampling(PLAN.count).instants(5.0)
        numbers = [read_number(picture) for picture in found.footage.pixels]
        assert numbers == [math.floor(instant * FPS + 1e-6) for instant in wanted]
        assert found.footage.pts == pytest.approx(np.array(numbers) / FPS - found.segment.start)
        assert found.footage.duration == pytest.approx(5.0)


@pytest.mark.parametrize("seconds", [4.0, 30.0])
def test_a_shot_looks_at_frames_near_the_middle_of_each_part(tmp_path: Path, seconds: float) -> None:
    """However long it gets: the frames held grow no closer than an eighth of a part allows."""
    frames = round(seconds * FPS)
    film = write_video(tmp_path / "film.mp4", frames=frames, width=64, height=64, fps=FPS, painter=numbered)
    [found] = read(film, SegmentOptions("none"))
    assert [read_number(picture) for picture in found.footage.pixels] == [
        round(time * FPS) for time in found.footage.pts
    ]
    off = np.abs(found.footage.pts - Sampling(PLAN.count).instants(seconds))
    assert off.max() <= max(FRAME, seconds / PLAN.count / 4)


def test_segments_go_on_from_where_one_ended(tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "film.mp4", [3.0, 4.0, 2.5, 23.0, 5.0])
    whole = read(film, SHOTS)
    for place in range(1, len(whole)):
        rest = read(film, SHOTS, start=whole[place - 1].segment.end)
        assert [each.segment for each in rest] == [each.segment for each in whole[place:]]
        for one, other in zip(rest, whole[place:], strict=True):
            assert np.array_equal(one.footage.pixels, other.footage.pixels)
            assert one.footage.pts == pytest.approx(other.footage.pts)


def test_the_frame_that_is_least_like_the_others_does_not_represent_them(tmp_path: Path) -> None:
    def paint(index: int, width: int, height: int) -> np.ndarray:
        shade = 250 if 20 <= index < 28 else 90  # the middle of the film, where one would look
        return np.full((height, width, 3), shade, np.uint8)

    film = write_video(tmp_path / "film.mp4", frames=48, fps=FPS, painter=paint)
    [found] = read(film, SegmentOptions("pieces", 10.0), plan=SegmentPlan(7, 64))
    assert found.footage.pixels[found.picture].mean() < 150
    assert not 2.0 <= found.segment.representative < 2.8


def test_a_film_shorter_than_any_segment_is_one(tmp_path: Path) -> None:
    film = write_video(tmp_path / "film.mp4", frames=3, fps=FPS)
    for options in (SHOTS, SegmentOptions("pieces", 10.0), SegmentOptions("none")):
        [found] = read(film, options)
        assert edges([found]) == [(0.0, 0.3)]
        assert 1 <= len(found.footage) <= 3


def test_a_frame_that_stays_for_minutes_leaves_no_segment_without_frames(tmp_path: Path) -> None:
    stays = [0.0, 1.0, 100.0, 101.0, 102.0, 103.0]
    film = write_video(tmp_path / "film.mkv", frames=6, fps=FPS, pts=stays)
    found = read(film, SHOTS)
    assert [each.segment.start for each in found] == [0.0, 100.0]
    assert all(len(each.footage) for each in found)


VIDEO = Video("mp4", "h264", 9.0, 8, 8, 0, 1.0, 1.0, 9, 9, True, 0, False, False)


def parts(*begins: Sequence[float]) -> Iterator[StreamPart]:
    """A stream that begins as often as there are lists of times."""
    for times in begins:
        yield StreamStart(9.0, 1.0)
        pixels = np.zeros((len(times), 8, 8, 3), np.uint8)
        yield FrameChunk((pixels,), np.array(times), math.inf)
    yield StreamEnd(VIDEO)


def test_a_stream_that_begins_again_goes_on_behind_what_was_handed_over() -> None:
    options, plan = SegmentOptions("pieces", 2.0, minimum=1.0), SegmentPlan(2, 8)
    again = parts([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4.5, 5, 6, 7, 8])
    found = list(read_segments(again, options, plan))
    assert edges(found) == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 9)]


def test_what_the_file_was_like_comes_back_at_the_end() -> None:
    reading = read_segments(parts([0, 1, 2]), SegmentOptions("none"), SegmentPlan(2, 8))
    next(reading)
    with pytest.raises(StopIteration) as end:
        next(reading)
    assert end.value.value == VIDEO


def test_frames_are_chosen_while_a_shot_is_open_where_that_can_be() -> None:
    assert SegmentPlan.of(DecodeRequest(Sampling(count=8))) == SegmentPlan(8, 256)
    for request in (
        DecodeRequest(Sampling(fps=2.0)),
        DecodeRequest(audio_rate=16000),
        DecodeRequest(windows=(Windows(16, 16),)),
    ):
        assert SegmentPlan.of(request) is None
