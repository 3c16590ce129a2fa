"""Segments of an attempt: never half written, taken over by the next attempt, and by no other kind of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.jobs.blobs import Blobs
from app.jobs.keeping.kept_segments import (
    PART,
    KeptSegments,
    SegmentFolder,
    attention_key,
    frame_key,
    kept_by,
)

JOB = "results/job"


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(str(tmp_path / "blobs"), tmp_path / "staging")


def segments(count: int) -> list[dict[str, Any]]:
    return [{"start": float(number), "end": number + 1.0, "caption": str(number)} for number in range(count)]


def written(blobs: Blobs, token: str, count: int, basis: str = "same") -> SegmentFolder:
    folder = SegmentFolder(blobs, f"{JOB}/{token}", basis)
    for number, each in enumerate(segments(count)):
        add(folder, each, b"picture %d" % number, str(number).encode())
    return folder


def add(
    folder: SegmentFolder, segment: dict[str, Any], frame: bytes = b"picture", attention: bytes | None = None
) -> None:
    """Keeps a segment that nothing joins."""
    folder.show(frame, attention)
    folder.hold(segment, {})
    folder.close()


@pytest.mark.parametrize("count", [1, PART, PART + 1, 2 * PART])
def test_what_is_added_is_read(blobs: Blobs, count: int) -> None:
    folder = written(blobs, "1", count)
    assert folder.kept.read(blobs) == segments(count)
    assert folder.last_end == count
    assert kept_by({"segments": vars(folder.kept)}) == folder.kept


def test_no_more_is_read_than_the_record_says(blobs: Blobs) -> None:
    folder = written(blobs, "1", 5)
    assert KeptSegments(folder.folder, 3).read(blobs) == segments(3)


def test_what_has_been_removed_is_not_there(blobs: Blobs) -> None:
    folder = written(blobs, "1", 2)
    blobs.remove(folder.folder)
    assert folder.kept.read(blobs) == []


def test_the_attempt_that_came_farthest_is_taken_over(blobs: Blobs) -> None:
    written(blobs, "1", PART + 3)
    written(blobs, "2", 2)
    blobs.write(f"{JOB}/answer.json", b"{}")  # of an older version
    third = SegmentFolder(blobs, f"{JOB}/3", "same")
    third.take_over(JOB)
    assert third.last_end == PART + 3
    blobs.remove(f"{JOB}/1")
    assert third.kept.read(blobs) == segments(PART + 3)
    assert blobs.read(attention_key(third.folder, PART + 2)) == str(PART + 2).encode()
    assert blobs.read(frame_key(third.folder, PART + 2)) == b"picture %d" % (PART + 2)
    add(third, segments(PART + 4)[-1])
    assert third.kept.read(blobs) == segments(PART + 4)


def test_segments_on_another_basis_are_not_taken_over(blobs: Blobs) -> None:
    written(blobs, "1", 3, basis="other weights")
    second = SegmentFolder(blobs, f"{JOB}/2", "same")
    second.take_over(JOB)
    assert second.last_end == 0.0
    assert second.kept.read(blobs) == []


def test_what_may_still_grow_is_none_of_those_that_are_done(blobs: Blobs) -> None:
    folder = written(blobs, "1", 2)
    folder.show(b"picture", None)
    folder.hold({"start": 2.0, "end": 4.0}, {"longest": 2.0})
    assert folder.kept.read(blobs) == segments(2)
    assert folder.last_end == 4.0
    folder.hold({"start": 2.0, "end": 5.5}, {"longest": 2.0})
    folder.close()
    assert folder.kept.read(blobs)[2:] == [{"start": 2.0, "end": 5.5}]
    folder.close()
    assert folder.kept.done == 3


def test_what_may_still_grow_is_taken_over_with_what_decides_it(blobs: Blobs) -> None:
    first = written(blobs, "1", 1)
    first.show(b"shown", b"seen")
    first.hold({"start": 1.0, "end": 3.0}, {"longest": 2.0})
    second = SegmentFolder(blobs, f"{JOB}/2", "same")
    second.take_over(JOB)
    assert (second.kept.done, second.last_end) == (1, 3.0)
    assert second.open == {"segment": {"start": 1.0, "end": 3.0}, "state": {"longest": 2.0}}
    blobs.remove(first.folder)
    third = SegmentFolder(blobs, f"{JOB}/3", "same")
    third.take_over(JOB)
    assert third.open == second.open
    assert blobs.read(frame_key(third.folder, 1)) == b"shown"
    assert blobs.read(attention_key(third.folder, 1)) == b"seen"


def test_one_that_was_counted_before_the_writer_died_is_counted_once(blobs: Blobs) -> None:
    first = written(blobs, "1", 2)  # what it held last is still there
    second = SegmentFolder(blobs, f"{JOB}/2", "same")
    second.take_over(JOB)
    assert (second.kept.done, second.open, second.last_end) == (2, None, 2.0)
    assert first.kept.at_the_end(blobs).read(blobs) == segments(2)


def test_at_the_end_all_that_was_left_counts(blobs: Blobs) -> None:
    folder = written(blobs, "1", 3)
    folder.hold({"start": 3.0, "end": 4.0}, {})
    kept = KeptSegments(folder.folder, 2)  # by the last beat
    assert kept.at_the_end(blobs).read(blobs) == [*segments(3), {"start": 3.0, "end": 4.0}]


def test_what_may_still_grow_on_another_basis_is_not_taken_over(blobs: Blobs) -> None:
    SegmentFolder(blobs, f"{JOB}/1", "other weights").hold({"start": 0.0, "end": 4.0}, {})
    second = SegmentFolder(blobs, f"{JOB}/2", "same")
    second.take_over(JOB)
    assert (second.open, second.last_end) == (None, 0.0)
