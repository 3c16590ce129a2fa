"""Defines what a trace is made of, and makes none where REELWORD_TRACES names no collector.

    request          the API, from a client's own trace where it sends one (traceparent)
    └─ submit        the job's record is written; its context goes into the record
       ├─ queue      from acceptance to the first start
       └─ job        one worker's turn, all its attempts
          └─ decode, extract, caption

app/tracing/open_telemetry.py sends them; it alone imports OpenTelemetry, and is imported where it is wanted.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

Attribute = str | int | float | bool


@dataclass
class SpanNotes:
    """Takes what becomes known of a span while it lasts."""

    name: str = ""  #: empty: the one that it began with
    error: str | None = None  #: why it failed
    attributes: dict[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishedSpan:
    """Describes a span that is over."""

    name: str
    start: float  #: seconds since 1970
    end: float  #: likewise
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    children: "Sequence[FinishedSpan]" = ()
    error: str | None = None


class Tracing:
    """Makes no spans."""

    is_on = False

    @contextmanager
    def serve(self, name: str, parent: str | None) -> Iterator[SpanNotes]:  # noqa: ARG002 - the tracing one's parameters
        """Spans the answering of a request, of a client's ``parent``; yields what takes the rest."""
        yield SpanNotes(name)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Attribute]) -> Iterator[None]:  # noqa: ARG002
        """Spans what is done meanwhile, as a part of the span that is under way."""
        yield

    def traceparent(self) -> str | None:
        """Names the span under way as W3C's Trace Context has it; None where there is none."""
        return None

    def record(self, parent: str | None, spans: Sequence[FinishedSpan]) -> None:
        """Sends spans that are over; ``parent`` is what they are a part of, None begins a trace."""

    def close(self) -> None:
        """Sends what is left."""
