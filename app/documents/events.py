"""Declares the events of a job as those who follow it are sent them, and the id that each has."""

import re
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from app.documents.job import Document, Fault, JobSegment
from app.jobs.job import Stage, State

#: Of an event: the change that it is about, and, of a segment, its number.
EVENT_ID = r"\d{1,15}(-\d{1,15})?(\.\d{1,9})?"


class StateEvent(Document):
    """Describes how a job that is not over stands (event ``state``)."""

    id: str
    state: State
    stage: Stage | None = None
    progress: float = 0.0
    attempt: int = 0
    place: int | None = Field(None, description="In the queue: 1 is taken next. Null once it does not wait.")
    estimated_seconds: float | None = Field(None, description="Until it starts. Null where nothing is known.")
    workers: int | None = Field(None, description="Of a job that waits: live workers that can run it.")
    cancel_requested: bool = Field(False, description="It runs and has been told to stop.")
    text: str | None = Field(None, description="The best words so far, while a lone caption is written.")


class SegmentEvent(JobSegment):
    """Describes a film's segment that is done (event ``segment``)."""

    number: int = Field(description="Counted from 0, as in the job's `segments`.")


class EndEvent(Document):
    """Describes how a job ended (event ``end``); nothing follows."""

    id: str
    state: State
    caption: str | None = None
    error: Fault | None = None


class LostEvent(Document):
    """Announces that the next events are kept no more (event ``lost``); the present state follows."""

    id: str


@dataclass(frozen=True)
class EventId:
    """Names an event. A client that has seen it has seen all changes before."""

    change: str  #: id of the stream's entry
    #: Number of the segment that it is about, before the rest of the change; None: the change's last event.
    segment: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads an id. Raises ValueError."""
        if not re.fullmatch(EVENT_ID, text):
            raise ValueError(f"{text[:40]} is no id of an event")
        change, _, segment = text.partition(".")
        return cls(change if "-" in change else f"{change}-0", int(segment) if segment else None)

    def __str__(self) -> str:
        return self.change if self.segment is None else f"{self.change}.{self.segment}"
