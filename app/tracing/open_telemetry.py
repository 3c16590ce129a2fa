"""Sends spans to a collector by OTLP over HTTP, in a thread of its own: what it costs is a span's making."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import __version__
from app.tracing.spans import Attribute, FinishedSpan, SpanNotes, Tracing

SEND_SECONDS = 5  #: that a collector may take, also at the end
NANOSECONDS = 1_000_000_000


class OtlpTracing(Tracing):
    """Sends spans.

    Args:
        endpoint: the collector's address; without a path ``/v1/traces`` is meant.
        process: ``api`` or ``worker``.
        instance: which of them.
    """

    is_on = True

    def __init__(self, endpoint: str, process: str, instance: str = "") -> None:
        about = {"service.name": f"reelword-{process}", "service.version": __version__}
        resource = Resource.create(about | ({"service.instance.id": instance} if instance else {}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        if not urlsplit(endpoint).path.strip("/"):
            endpoint = f"{endpoint.rstrip('/')}/v1/traces"
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=SEND_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
        self._tracer = self._provider.get_tracer("reelword", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def serve(self, name: str, parent: str | None) -> Iterator[SpanNotes]:
        notes, context = SpanNotes(name), self._context_of(parent)
        with self._tracer.start_as_current_span(name, context, kind=SpanKind.SERVER) as span:
            yield notes
            span.update_name(notes.name)
            _add(span, notes.attributes, notes.error)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Attribute]) -> Iterator[None]:
        with self._tracer.start_as_current_span(name, attributes=attributes):
            yield

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get("traceparent")

    def record(self, parent: str | None, spans: Sequence[FinishedSpan]) -> None:
        context = self._context_of(parent)
        for span in spans:
            self._record(span, context, SpanKind.CONSUMER)

    def _context_of(self, parent: str | None) -> Context:
        return self._propagator.extract({} if parent is None else {"traceparent": parent}, Context())

    def _record(self, told: FinishedSpan, context: Context, kind: SpanKind) -> None:
        began, ended = (round(seconds * NANOSECONDS) for seconds in (told.start, told.end))
        span = self._tracer.start_span(told.name, context, kind, start_time=began)
        _add(span, told.attributes, told.error)
        for child in told.children:
            self._record(child, set_span_in_context(span, context), SpanKind.INTERNAL)
        span.end(max(began, ended))

    def close(self) -> None:
        self._provider.force_flush(SEND_SECONDS * 1000)
        self._provider.shutdown()


def _add(span: Span, attributes: Mapping[str, Attribute], error: str | None) -> None:
    span.set_attributes(dict(attributes))
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
