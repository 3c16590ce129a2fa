"""Keeps the finished segments of a film's job in blobs: for readers while it runs, and for its next attempt.

    results/<job>/<token>/segments/parts/<k>.json         segments in their order, 64 to a part
    results/<job>/<token>/segments/open.json              the last one, while later ones may join it
    results/<job>/<token>/segments/<n>/frame.jpg          the frame that stands for the n-th of them
    results/<job>/<token>/segments/<n>/attention.json     where the captioner looked in it

The last part is replaced whole whenever a segment is added, so that a reader finds it as it was or as it is,
and what is written at a time stays small however long the film. The job's record says where its segments lie
and how many are done. A segment that may still grow is none of them, until nothing follows any more. Each
attempt writes below its own token; it begins with a copy of what an earlier one has left.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Self, TypeAlias

from app.jobs.blobs import BlobMissingError, Blobs

PART = 64  #: segments to a part
Segment: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class KeptSegments:
    """Holds, on a job's record, where its segments lie and how many are done."""

    folder: str
    done: int

    def as_record(self) -> dict[str, Any]:
        return {"folder": self.folder, "done": self.done}

    def read(self, blobs: Blobs, first: int = 0) -> list[dict[str, Any]]:
        """Reads the segments that are done, from ``first`` on; fewer where some have been removed since."""
        part, skipped = divmod(first, PART)
        segments = _all_in(blobs, self.folder, part)
        return list(islice(segments, skipped, max(skipped, self.done - part * PART)))

    def at_the_end(self, blobs: Blobs) -> Self:
        """Counts all that was left of a film that ended in the middle: nothing joins its last one now."""
        return replace(self, done=sum(1 for _ in _all_in(blobs, self.folder)))


def kept_by(answer: Mapping[str, Any]) -> KeptSegments | None:
    """Reads the segments' members of a record's answer; None without any, or of another version."""
    kept = answer.get("segments")
    try:
        return KeptSegments(str(kept["folder"]), int(kept["done"]))  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        return None


@dataclass(eq=False)
class SegmentFolder:
    """Writes the segments of one attempt."""

    blobs: Blobs
    folder: str  #: key that all goes below, the attempt's own
    #: Names all that decides what the segments are; those of an attempt on another basis are not taken over.
    basis: str
    segments: list[Segment] = field(default_factory=list)  #: those that are done
    #: The segment after those, which may still grow, and in ``"state"`` what decides whether it does.
    open: Mapping[str, Any] | None = None

    @property
    def kept(self) -> KeptSegments:
        return KeptSegments(self.folder, len(self.segments))

    @property
    def last_end(self) -> float:
        """Returns up to which second the film is done."""
        last = self.segments[-1:] if self.open is None else [self.open["segment"]]
        return float(last[0]["end"]) if last else 0.0

    def hold(self, segment: Segment, state: Mapping[str, Any]) -> None:
        """Keeps the next segment, or what it has grown to; by ``state`` the next attempt decides on it."""
        self.open = {"segment": segment, "state": state}
        text = json.dumps({"basis": self.basis, "number": len(self.segments), **self.open})
        self.blobs.write(f"{self.folder}/segments/open.json", text.encode())

    def show(self, frame: bytes, attention: bytes | None) -> None:
        """Keeps a JPEG and the attention (JSON) of the segment that is held, or is about to be."""
        self.blobs.write(frame_key(self.folder, len(self.segments)), frame)
        if attention is not None:
            self.blobs.write(attention_key(self.folder, len(self.segments)), attention)

    def close(self) -> None:
        """Counts the segment that is held, if there is one, among those that are done."""
        if self.open is not None:
            self.segments.append(self.open["segment"])
            self.open = None
            self._write_part((len(self.segments) - 1) // PART)

    def take_over(self, job_folder: str) -> None:
        """Copies what the attempt that came farthest has left below the job's folder, where there is any."""
        tokens = sorted(name for name in self.blobs.names(job_folder) if name.isdigit())
        folders = [f"{job_folder}/{token}" for token in tokens if f"{job_folder}/{token}" != self.folder]
        others = [self._left_in(folder) for folder in folders]
        farthest = max(others, key=lambda other: other.last_end, default=None)
        if farthest is None or not farthest.last_end:
            return
        for number in range(len(farthest.segments) + 1):
            self._copy(frame_key(farthest.folder, number), frame_key(self.folder, number))
            self._copy(attention_key(farthest.folder, number), attention_key(self.folder, number))
        self.segments = farthest.segments
        for part in range(-(-len(self.segments) // PART)):
            self._write_part(part)
        if farthest.open is not None:
            self.hold(**farthest.open)

    def remove_earlier(self, job_folder: str) -> None:
        """Removes what earlier attempts have left, once the job's record names this one's segments."""
        own_token = int(self.folder.rpartition("/")[2])
        for token in self.blobs.names(job_folder):
            if token.isdigit() and int(token) < own_token:
                self.blobs.remove(f"{job_folder}/{token}")

    def _left_in(self, folder: str) -> Self:
        """Reads what another attempt has left, nothing where it stood on another basis."""
        parts = [part for part in _parts(self.blobs, folder) if part["basis"] == self.basis]
        segments = [segment for part in parts for segment in part["segments"]]
        open_segment = _open_behind(self.blobs, folder, len(segments))
        if open_segment is None or open_segment["basis"] != self.basis:
            return type(self)(self.blobs, folder, self.basis, segments)
        left = {name: open_segment[name] for name in ("segment", "state")}
        return type(self)(self.blobs, folder, self.basis, segments, left)

    def _copy(self, key: str, to: str) -> None:
        with suppress(BlobMissingError):  # attention that was not asked for
            self.blobs.copy(key, to)

    def _write_part(self, part: int) -> None:
        segments = self.segments[part * PART : (part + 1) * PART]
        text = json.dumps({"basis": self.basis, "segments": segments})
        self.blobs.write(f"{self.folder}/segments/parts/{part}.json", text.encode())


def frame_key(folder: str, number: int) -> str:
    """Names the blob of a segment's representative frame, counted from 0."""
    return f"{folder}/segments/{number}/frame.jpg"


def attention_key(folder: str, number: int) -> str:
    """Names the blob of a segment's attention, counted from 0."""
    return f"{folder}/segments/{number}/attention.json"


def _all_in(blobs: Blobs, folder: str, part: int = 0) -> Iterator[dict[str, Any]]:
    """Reads the segments that are done, from a part on, and after them the one that may still grow."""
    count = part * PART
    for each in _parts(blobs, folder, part):
        yield from each["segments"]
        count += len(each["segments"])
    if (open_segment := _open_behind(blobs, folder, count)) is not None:
        yield open_segment["segment"]


def _open_behind(blobs: Blobs, folder: str, count: int) -> dict[str, Any] | None:
    """Reads the segment after so many that are done; one that has been counted since is none."""
    try:
        open_segment: dict[str, Any] = json.loads(blobs.read(f"{folder}/segments/open.json"))
    except BlobMissingError:
        return None
    return open_segment if open_segment["number"] == count else None


def _parts(blobs: Blobs, folder: str, number: int = 0) -> Iterator[dict[str, Any]]:
    while True:
        try:
            part: dict[str, Any] = json.loads(blobs.read(f"{folder}/segments/parts/{number}.json"))
        except BlobMissingError:
            return
        yield part
        if len(part["segments"]) < PART:
            return
        number += 1
