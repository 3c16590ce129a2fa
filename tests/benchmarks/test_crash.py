"""The crash proof: what it calls broken, and how it reads a log that several processes write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.crash.__main__ import hold
from benchmarks.crash.deployment import SUCCESS, Deployment, GaveUp
from benchmarks.crash.findings import Finding, seconds

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("finding", "is_kept"),
    [
        (Finding("informs", 99), True),
        (seconds("in time", 2.0, 2.0), True),
        (seconds("late", 2.1, 2.0), False),
        (Finding("enough", 2, least=2), True),
        (Finding("too few", 1, least=2), False),
        (Finding("exactly", 3, limit=3, least=3), True),
        (Finding("not so", False, least=1), False),
    ],
)
def test_what_is_a_broken_promise(finding: Finding, is_kept: bool) -> None:
    assert finding.is_kept is is_kept
    assert (finding.verdict == "BROKEN") is not is_kept


def test_a_trial_that_cannot_go_on_is_a_broken_promise(tmp_path: Path) -> None:
    def stuck(_: Deployment) -> Iterator[Finding]:
        yield Finding("before", 1)
        raise GaveUp("it did not happen")

    service = Deployment(tmp_path, "none:None")
    service.log.write_text("the last lines of the log")
    before, given_up = hold(stuck, service)
    assert before.is_kept
    assert not given_up.is_kept
    assert "it did not happen" in given_up.what


def test_successes_are_found_in_lines_that_ran_together() -> None:
    one, two = "0" * 32, "f" * 32
    line = '{"job": "%s", "caption": "a dog", "event": "job succeeded", "level": "info"}'
    other = line.replace("succeeded", "starts again")
    assert SUCCESS.findall(line % one + other % two + "\n\n" + line % two) == [one, two]
