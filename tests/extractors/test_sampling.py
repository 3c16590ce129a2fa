from __future__ import annotations

import numpy as np
import pytest

from extractors.sampling import Sampling, shown


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
    assert shown(np.array([0.5, 1.0]), np.array([0.0, 0.7, 9.0])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("wrong", [{"count": 0}, {"fps": 0.0}, {"fps": -1.0}, {"max_frames": 0}])
def test_nothing_less_than_one_frame_can_be_asked_for(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        Sampling(**wrong)  # type: ignore[arg-type]
