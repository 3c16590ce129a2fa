"""Frames are the ones on screen at the asked times; every tick is in some window, and the tail padded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extractors.windows import Sampling, Windows, find_shown_frames


def test_every_frame_is_in_a_window_and_the_tail_repeats_the_last() -> None:
    cut = Windows(stack_size=4, step_size=4).cut(duration=1.0, fps=10)
    assert cut.index.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
    assert cut.padded.tolist() == [False, False, True]
    assert cut.start == pytest.approx([0.0, 0.4, 0.8])
    assert cut.end == pytest.approx([0.4, 0.8, 1.0])


@pytest.mark.parametrize("frames", [1, 2, 15, 16])
def test_a_video_shorter_than_a_window_is_one_window(frames: int) -> None:
    cut = Windows(stack_size=16, step_size=16).cut(duration=frames / 25, fps=25)
    assert cut.index.tolist() == [[*range(frames), *[frames - 1] * (16 - frames)]]
    assert cut.padded.tolist() == [frames < 16]
    assert (cut.start[0], cut.end[0]) == (0.0, frames / 25)


def test_overlapping_windows_end_with_the_one_that_holds_the_last_frame() -> None:
    cut = Windows(stack_size=4, step_size=2).cut(duration=0.9, fps=10)
    assert cut.index[:, 0].tolist() == [0, 2, 4, 6]
    assert cut.padded.tolist() == [False, False, False, True]


def test_a_step_beyond_the_stack_leaves_frames_out_and_lays_no_window_behind_the_end() -> None:
    cut = Windows(stack_size=10, step_size=50).cut(duration=10.0, fps=10)
    assert cut.start == pytest.approx([0.0, 5.0])
    assert len(cut.instants) == 20


def test_the_rate_of_extraction_sets_the_clock() -> None:
    cut = Windows(extraction_fps=2).cut(duration=3.2, fps=30)
    assert cut.start == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3])
    assert cut.end == pytest.approx([0.5, 1, 1.5, 2, 2.5, 3, 3.2])
    # a little late, so that a time which was rounded up is not missed
    assert cut.instants - cut.start == pytest.approx(0.01)


def test_two_frames_a_second_are_shown_as_often_as_the_clock_asks() -> None:
    times = np.arange(4) / 2
    cut = Windows(stack_size=5, step_size=5, extraction_fps=10).cut(duration=2.0, fps=2)
    positions = find_shown_frames(times, cut.instants)[cut.index]
    assert positions.tolist() == [[0] * 5, [1] * 5, [2] * 5, [3] * 5]
    assert not cut.padded.any()


def test_a_total_is_spread_over_the_whole_time_and_not_cut_down() -> None:
    cut = Windows(extraction_total=100, most=8).cut(duration=50.0, fps=25)
    assert cut.instants == pytest.approx(0.25 + 0.5 * np.arange(100))
    assert (cut.start[0], cut.end[-1]) == (0.0, 50.0)


def test_a_total_of_one_is_the_middle() -> None:
    assert Windows(extraction_total=1).cut(duration=3.0, fps=25).instants.tolist() == [1.5]


def test_too_many_windows_are_laid_further_apart_over_the_whole_time() -> None:
    cut = Windows(stack_size=16, step_size=16, most=10).cut(duration=7200.0, fps=25)
    gaps = np.diff(cut.start)
    assert len(cut) == 10
    assert gaps == pytest.approx(720.0, abs=0.1)
    assert cut.start[0] == pytest.approx(360.0, abs=1.0)
    assert len(cut.instants) == 160


def test_times_rounded_to_milliseconds_still_give_every_frame_once() -> None:
    times = np.round(np.arange(300) / 30, 3)  # Matroska's clock: 0.033, 0.067, 0.1, …
    duration = float(times[-1]) + 0.033
    for windows in (Windows(most=1000), Windows(extraction_fps=30, most=1000)):
        cut = windows.cut(duration, fps=300 / duration)
        assert find_shown_frames(times, cut.instants).tolist() == list(range(300))
    assert len(Windows().cut(duration, fps=300 / duration)) == 64


def test_variable_rates_are_cut_by_time() -> None:
    times = np.concatenate([np.arange(10) / 10, 1 + np.arange(50) / 50])  # ten frames, then fifty
    cut = Windows(stack_size=10, step_size=10).cut(duration=2.0, fps=30)
    assert cut.start == pytest.approx(np.arange(6) / 3)
    positions = find_shown_frames(times, cut.instants)[cut.index]
    assert (positions[:3] < 10).all()
    assert (positions[3:] >= 10).all()


def test_frames_ahead_are_looked_at_and_count_in_no_time() -> None:
    cut = Windows(stack_size=4, step_size=4, ahead=1).cut(duration=0.8, fps=10)
    assert cut.index.tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 7]]
    assert cut.padded.tolist() == [False, False]
    assert cut.end == pytest.approx([0.4, 0.8])


@given(
    windows=st.builds(
        Windows,
        stack_size=st.integers(1, 70),
        step_size=st.integers(1, 90),
        extraction_fps=st.none() | st.floats(0.1, 60),
        most=st.integers(1, 70),
        ahead=st.integers(0, 2),
    ),
    duration=st.floats(0.01, 500),
    fps=st.floats(0.5, 60),
)
def test_whatever_is_asked_the_cut_is_in_order_and_within_the_video(
    windows: Windows, duration: float, fps: float
) -> None:
    cut = windows.cut(duration, fps)
    assert 1 <= len(cut) <= windows.most
    assert cut.index.shape == (len(cut), windows.stack_size + windows.ahead)
    assert (np.diff(cut.instants) > 0).all()
    assert cut.instants[0] >= 0
    assert cut.instants[-1] < duration
    assert np.unique(cut.index).tolist() == list(range(len(cut.instants)))  # nothing is decoded in vain
    assert (np.diff(cut.start) > 0).all()
    assert (cut.start < cut.end).all()
    assert cut.end[-1] <= duration
    assert not cut.padded[:-1].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extraction_fps": 1.0, "extraction_total": 5}, "exclude each other"),
        ({"stack_size": 0}, "at least 1"),
        ({"step_size": 0}, "at least 1"),
        ({"most": 0}, "at least 1"),
        ({"ahead": -1}, "at least 0"),
        ({"extraction_total": 0}, "at least 1"),
        ({"extraction_fps": 0.0}, "above zero"),
        ({"extraction_fps": float("nan")}, "above zero"),
        ({"extraction_fps": float("inf")}, "above zero"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Windows(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("duration", "fps"), [(0.0, 25.0), (1.0, 0.0), (float("nan"), 25.0)])
def test_a_video_without_time_is_refused(duration: float, fps: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        Windows().cut(duration, fps)


def test_count_takes_the_frame_shown_at_the_middle_of_each_part() -> None:
    times = np.arange(100) / 10
    assert Sampling(4).choose(times, 10.0).tolist() == [12, 37, 62, 87]


def test_doubles_are_taken_once() -> None:
    assert Sampling(8).choose(np.array([0.0, 0.1, 0.2]), 0.3).tolist() == [0, 1, 2]


def test_a_rate_takes_what_is_on_screen_at_each_instant() -> None:
    times = np.array([0.0, 0.1, 0.6, 1.6, 1.7])
    assert Sampling(fps=1).choose(times, 2.0).tolist() == [0, 2]


def test_a_frame_due_at_the_asked_instant_is_not_missed_by_rounding() -> None:
    times = np.arange(300, dtype=np.float64) * np.float64(1001 / 30000)
    assert Sampling(fps=30000 / 1001).choose(times, 300 * 1001 / 30000).tolist() == list(range(300))


def test_the_instant_at_the_end_is_not_asked_for() -> None:
    assert Sampling(fps=2).instants(2.0).tolist() == [0.0, 0.5, 1.0, 1.5]


def test_a_rate_that_gives_too_many_is_spread_over_the_whole_time() -> None:
    instants = Sampling(fps=25, max_frames=64).instants(7200.0)
    assert len(instants) == 64
    assert instants[-1] == pytest.approx(7200 * 63 / 64)


def test_an_instant_before_the_first_frame_falls_on_it() -> None:
    assert find_shown_frames(np.array([0.5, 1.0]), np.array([0.0, 0.7, 9.0])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("wrong", [{"count": 0}, {"fps": 0.0}, {"fps": -1.0}, {"max_frames": 0}])
def test_nothing_less_than_one_frame_can_be_asked_for(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        Sampling(**wrong)  # type: ignore[arg-type]
