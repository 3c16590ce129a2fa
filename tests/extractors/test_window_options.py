"""What a user says of windows changes that alone."""

from __future__ import annotations

import pytest

from extractors.extractor import ExtractorOptions
from extractors.windows import WindowOptions, Windows

FLOW = Windows(64, 64, extraction_fps=25.0, ahead=1)


def test_what_is_not_said_stays() -> None:
    assert WindowOptions().over(FLOW) == FLOW
    assert WindowOptions(step_size=8).over(FLOW) == Windows(64, 8, extraction_fps=25.0, ahead=1)


def test_a_total_takes_the_place_of_a_rate_and_the_other_way_round() -> None:
    assert WindowOptions(extraction_total=5).over(FLOW) == Windows(64, 64, extraction_total=5, ahead=1)
    assert WindowOptions(extraction_fps=2.0).over(Windows(extraction_total=20)) == Windows(extraction_fps=2.0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        WindowOptions(extraction_fps=2.0, extraction_total=5)
    with pytest.raises(ValueError, match="must be at least 1"):
        WindowOptions(stack_size=0).over(FLOW)


def test_an_extractor_is_told_some_members_or_all_or_none() -> None:
    assert ExtractorOptions(windows=WindowOptions(most=3)).windows_over(FLOW).ahead == 1
    assert ExtractorOptions(windows=Windows(4)).windows_over(FLOW) == Windows(4)
    assert ExtractorOptions().windows_over(FLOW) == FLOW
