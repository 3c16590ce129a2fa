"""Traces as a collector gets them: an API and a real worker, one trace, every span below its own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.jobs.job import Keys, Submission
from app.jobs.job_store import Jobs
from app.settings import Settings, load_settings
from app.tracing.connection import connect_tracing
from app.tracing.spans import FinishedSpan, Tracing
from extractors.errors import PackageMissing
from tests.app.live_api import LiveApi, live_api
from tests.app.worker.test_worker import settings_for
from tests.app.workers import Service, eventually, service
from tests.media import write_video

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = f"00-{TRACE}-b7ad6b7169203331-01"


@dataclass(frozen=True)
class Span:
    """What a collector knows of one."""

    process: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    is_error: bool
    attributes: dict[str, Any] = field(hash=False)


class Collector:
    """Takes spans by OTLP over HTTP, as a real one does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def trace(self, trace: str, *names: str, seconds: float = 20) -> dict[str, Span]:
        """The spans of a trace by name, once all of these have come."""

        def found() -> dict[str, Span]:
            return {span.name: span for span in list(self.spans) if span.trace == trace}

        eventually(lambda: set(names) <= set(found()), seconds)
        return found()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        about = {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    process=about["service.name"],
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    is_error=span.status.code == 2,
                    attributes={each.key: _value(each.value) for each in span.attributes},
                )


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def api(settings: Settings, collector: Collector) -> Iterator[LiveApi]:
    """An API that sends its spans."""
    with live_api(settings.model_copy(update={"traces": collector.endpoint})) as running:
        yield running


@pytest.fixture
def crew(server: redis.Redis, api: LiveApi, keys: Keys, tmp_path: Path) -> Iterator[Service]:
    """Workers on the API's Redis, namespace and folder, which send theirs."""
    traces = api.service.settings.traces
    settings = settings_for(tmp_path, keys.namespace).model_copy(update={"traces": traces})
    with service(server, str(api.service.settings.redis_url), settings) as running:
        yield running


def post(api: LiveApi, video: Path, captioner: str, parent: str = CLIENT) -> str:
    with video.open("rb") as file:
        headers = {"traceparent": parent}
        answer = api.client.post(
            "/caption", files={"video": file}, data={"captioner": captioner}, headers=headers
        )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_a_job_is_one_trace_from_its_request_to_its_stages(
    api: LiveApi, crew: Service, collector: Collector, tmp_path: Path
) -> None:
    began = time.time_ns()
    job_id = post(api, write_video(tmp_path / "clip.mp4", frames=5), "echo")
    crew.start_worker()
    assert crew.wait(job_id, seconds=60).state == "succeeded"
    names = ("POST /caption", "submit", "queue", "job", "decode", "extract", "caption")
    spans = collector.trace(TRACE, *names)
    assert set(spans) == set(names)
    parents = {
        "POST /caption": CLIENT.split("-")[2],
        "submit": spans["POST /caption"].id,
        "queue": spans["submit"].id,
        "job": spans["submit"].id,
        "decode": spans["job"].id,
        "extract": spans["job"].id,
        "caption": spans["job"].id,
    }
    assert {name: span.parent for name, span in spans.items()} == parents
    for name, span in spans.items():
        assert span.process == ("reelword-api" if name in ("POST /caption", "submit") else "reelword-worker")
        assert began - 10**9 <= span.start <= span.end <= time.time_ns(), name
        assert not span.is_error
    order = [spans[name] for name in ("decode", "extract", "caption")]
    assert [span.end for span in order[:2]] == [span.start for span in order[1:]]
    assert spans["job"].start <= order[0].start
    assert order[2].end == spans["job"].end
    assert spans["POST /caption"].attributes["http.response.status_code"] == 202
    assert (
        spans["job"].attributes["reelword.job.id"] == job_id == spans["submit"].attributes["reelword.job.id"]
    )
    assert spans["job"].attributes["reelword.job.outcome"] == "succeeded"


def test_a_failure_is_an_error_in_its_trace(
    api: LiveApi, crew: Service, collector: Collector, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"this is no video" * 100)
    job_id = post(api, broken, "echo")
    crew.start_worker()
    assert crew.wait(job_id, seconds=60).state == "failed"
    spans = collector.trace(TRACE, "job", "decode")
    assert spans["job"].is_error
    assert spans["job"].attributes["reelword.job.outcome"] == "failed"
    assert "extract" not in spans


def test_a_job_that_kills_its_engine_has_one_turn(
    api: LiveApi, crew: Service, collector: Collector, tmp_path: Path
) -> None:
    job_id = post(api, write_video(tmp_path / "clip.mp4", frames=5), "segfault")
    crew.start_worker()
    assert crew.wait(job_id, seconds=90).state == "failed"
    collector.trace(TRACE, "job")
    turns = [span for span in collector.spans if span.name == "job"]
    assert [span.attributes["reelword.job.attempt"] for span in turns] == [3]
    assert turns[0].is_error


def test_monitors_are_passed_over_and_a_fault_is_an_error(api: LiveApi, collector: Collector) -> None:
    for path in ("/livez", "/readyz", "/metrics", f"/jobs/{'0' * 32}"):
        api.client.get(path, headers={"traceparent": CLIENT})
    spans = collector.trace(TRACE, "GET /jobs/{job_id}")
    assert set(spans) == {"GET /jobs/{job_id}"}
    assert not spans["GET /jobs/{job_id}"].is_error, "404 is the client's"


def test_a_request_without_a_trace_begins_one(api: LiveApi, collector: Collector) -> None:
    api.client.get(f"/jobs/{'0' * 32}", headers={"traceparent": "nonsense"})
    eventually(lambda: len(collector.spans) == 1)
    assert collector.spans[0].parent == ""


def test_a_collector_that_is_away_costs_nobody(settings: Settings) -> None:
    away = settings.model_copy(update={"traces": "http://127.0.0.1:9"})
    with live_api(away) as running:
        began = time.monotonic()
        assert running.client.get(f"/jobs/{'0' * 32}").status_code == 404
        assert time.monotonic() - began < 10


def test_nothing_is_sent_and_nothing_recorded_where_traces_are_off(settings: Settings, jobs: Jobs) -> None:
    with live_api(settings) as running:
        assert type(running.service.tracing) is Tracing
        answer = running.client.post("/caption", files={"video": b"a video"}, headers={"traceparent": CLIENT})
        job = jobs.get(answer.json()["id"])
    assert job is not None
    assert job.submission.traceparent is None
    with Tracing().span("anything", {}):
        assert Tracing().traceparent() is None
    Tracing().record(CLIENT, [FinishedSpan("job", 0.0, 1.0)])


def test_nothing_of_it_is_loaded_where_traces_are_off(root: Path) -> None:
    """FastAPI and redis-py load a part of OpenTelemetry by themselves where that is installed."""
    script = (
        "import sys, app.worker.worker\n"
        "from app.api.application import create_app; from app.settings import Settings\n"
        "create_app(Settings(redis_url='redis://127.0.0.1'))\n"
        "names = ('opentelemetry.exporter', 'opentelemetry.sdk.trace', 'app.tracing.open_telemetry')\n"
        "print([name for name in sys.modules if name.startswith(names)])"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_what_is_not_installed_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "app.tracing.open_telemetry", raising=False)
    # Another test's process may have loaded its modules, which would be found without the package above them.
    loaded = [name for name in sys.modules if name.startswith("opentelemetry.")]
    for name in ("opentelemetry", *loaded):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PackageMissing, match="opentelemetry") as raised:
        connect_tracing(settings.model_copy(update={"traces": "http://127.0.0.1:9"}), "api")
    assert "make setup-tracing" in raised.value.advice


def test_an_endpoint_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REELWORD_TRACES", "collector:4318")
    with pytest.raises(Exception, match="REELWORD_TRACES has a wrong value: collector:4318 is no address"):
        load_settings()


def test_records_without_a_trace_are_read(jobs: Jobs) -> None:
    assert Submission.model_validate_json("{}").traceparent is None
    assert "traceparent" not in Submission().model_dump_json(exclude_defaults=True)


def test_a_client_of_httpx_needs_nothing_of_us(api: LiveApi, collector: Collector) -> None:
    httpx.get(f"http://127.0.0.1:{api.port}/models")
    eventually(lambda: [span.name for span in collector.spans] == ["GET /models"])
