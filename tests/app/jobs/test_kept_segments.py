"""Segments of an attempt: never half written, taken over by the next attempt, and by no other kind of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.jobs.blobs import Blobs
from app.jobs.kept_segments import PART, KeptSegments, SegmentFolder, attention_key, frame_key, kept_by

JOB = "results/job"


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(str(tmp_path / "blobs"), tmp_path / "staging")


def segments(count: int) -> list[dict[str, Any]]:
    return [{"start": float(number), "end": number + 1.0, "caption": str(number)} for number in range(count)]


def written(blobs: Blobs, token: str, count: int, basis: str = "same") -> SegmentFolder:
    folder = SegmentFolder(blobs, f"{JOB}/{token}", basis)
    for number, each in enumerate(segments(count)):
        folder.add(each, b"picture %d" % number, str(number).encode())
    return folder


@pytest.mark.parametrize("count", [1, PART, PART + 1, 2 * PART])
def test_what_is_added_is_read(blobs: Blobs, count: int) -> None:
    folder = written(blobs, "1", count)
    assert folder.kept.read(blobs) == segments(count)
    assert folder.last_end == count
    assert kept_by({"segments": folder.kept.as_record()}) == folder.kept


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
    third.add(segments(PART + 4)[-1], b"picture", None)
    assert third.kept.read(blobs) == segments(PART + 4)


def test_segments_on_another_basis_are_not_taken_over(blobs: Blobs) -> None:
    written(blobs, "1", 3, basis="other weights")
    second = SegmentFolder(blobs, f"{JOB}/2", "same")
    second.take_over(JOB)
    assert second.last_end == 0.0
    assert second.kept.read(blobs) == []
