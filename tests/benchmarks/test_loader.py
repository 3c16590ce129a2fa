"""The loader's benchmark times steps, and computes exponents."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.loader import SMALL_SHAPE, compute_exponent, measure_steps, write_features


def test_steps_are_timed_whatever_is_made_at_a_time(tmp_path: Path) -> None:
    write_features(tmp_path, 4, SMALL_SHAPE)
    for ahead in (1, 3):
        assert measure_steps(tmp_path, 2, 3, ahead).clock > 0


def test_an_exponent_is_that_of_a_power() -> None:
    assert compute_exponent([1, 8, 64], [0.5, 4.0, 32.0]) == pytest.approx(1)
    assert compute_exponent([1, 8, 64], [3.0, 3.0, 3.0]) == pytest.approx(0, abs=1e-9)
