"""Watches each request and its answer: names, counts, times, audits and spans them, sends browsers what they
may do with the answer, and answers HEAD.

It stands before what may refuse a request (ASGI middleware), so that it sees refusals, too. The
event ``audit`` is one line for each request that writes or is refused.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.dependencies import Caller
from app.api.guards.access import READING
from app.api.guards.forwarding import path_of
from app.api.metrics import Metrics
from app.api.page_files import FILES
from app.tracing.spans import SpanNotes, Tracing

NOTHING = "default-src 'none'; frame-ancestors 'none'"  #: answers that are no pages load nothing
#: The page loads its own script, has its own style, draws on canvases, plays films of this server and of its
#: visitor's own disk (``blob:``), and talks to this server.
PAGE = (
    f"default-src 'none'; script-src 'self'; style-src '{FILES.style_hash}'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: Swagger UI and Redoc start themselves by a script in the page, and set styles as they go; Redoc searches in
#: a worker.
DOCS = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; frame-ancestors 'none'"
)
POLICIES = {"/": PAGE, "/docs": DOCS, "/reference": DOCS}
#: The page needs none of what a browser could ask its user for.
PERMISSIONS = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
HTTPS_ONLY = "max-age=31536000"  #: a browser that came by https uses nothing else for a year
#: Statuses and problems of a reading request that was refused for who asks, not for what.
REFUSALS = (401, 403, 429)
REFUSED_NAME = "host_not_allowed"
LONGEST_PATH = 200
REQUEST_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)
#: Asked for every few seconds by monitors, about no job: they would bury the other traces.
NOT_TRACED = ("/livez", "/readyz", "/metrics")

#: Request headers that are lists, which a client may send on several lines (RFC 9110 5.3).
LISTS = (b"prefer", b"if-none-match")

log = structlog.get_logger(__name__)


@dataclass
class _Answer:
    """Holds what has been seen of an answer."""

    status: int = 499  #: until it begins: the client went away before, as nginx counts it
    location: str | None = None  #: of the job that was made


@dataclass(eq=False)
class WatchRequests:
    """Watches requests.

    A route that has much to send finds ``without_body`` in its scope where HEAD was asked, and need not read
    it.
    """

    app: ASGIApp  #: that it passes requests to
    metrics: Metrics  #: count answers by route template, never by path, which has job ids
    tracing: Tracing  #: spans the answering of requests, where traces are sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope = {**scope, "headers": _join_lists(scope["headers"])}
        # made here, so that all that come after write into the same one
        name = Headers(scope=scope).get("x-request-id", "")  # that the client, or a proxy, gave it
        request = name if REQUEST_NAME.fullmatch(name) else uuid4().hex
        scope.setdefault("state", {})["request"] = request
        is_head, answer, began = scope["method"] == "HEAD", _Answer(), time.perf_counter()
        inner = {**scope, "method": "GET", "without_body": True} if is_head else scope

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                _protect(headers, scope)
                headers["X-Request-Id"] = request
                headers["Server-Timing"] = f"app;dur={1000 * (time.perf_counter() - began):.1f}"
                answer.status, answer.location = message["status"], headers.get("location")
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        with self._spanned(scope["method"], inner, answer):
            try:
                await self.app(inner, receive, watch)
            finally:
                self._count(inner, answer.status, time.perf_counter() - began)
                _audit(inner, answer)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        self.metrics.requests.labels(scope["method"], route, status).inc()
        self.metrics.request_seconds.labels(scope["method"], route).observe(seconds)

    @contextmanager
    def _spanned(self, method: str, scope: Scope, answer: _Answer) -> Iterator[None]:
        """Spans the answering of a request, where traces are sent and it is one that is traced."""
        if not self.tracing.is_on or path_of(scope) in NOT_TRACED:
            yield
            return
        with self.tracing.serve(method, Headers(scope=scope).get("traceparent")) as notes:
            try:
                yield
            finally:
                _describe(notes, method, scope, answer.status)


def _describe(notes: SpanNotes, method: str, scope: Scope, status: int) -> None:
    """Names a span by the route's template, which is known only once the router has found it."""
    notes.attributes["http.request.method"] = method
    notes.attributes["http.response.status_code"] = status
    if status >= 500:
        notes.error = f"answered with {status}"
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        notes.attributes["http.route"] = route
        notes.name = f"{method} {route}"


def _protect(headers: MutableHeaders, scope: Scope) -> None:
    """Sets what a browser may do with an answer: policy, types, referrer, devices, https alone."""
    path = "/" if path_of(scope).startswith("/f/") else path_of(scope)
    headers["Content-Security-Policy"] = POLICIES.get(path, NOTHING)
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Permissions-Policy"] = PERMISSIONS
    headers["X-Frame-Options"] = "DENY"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    if "Access-Control-Allow-Origin" not in headers:  # a page that may ask may show what it got
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
    if scope["scheme"] == "https":
        headers["Strict-Transport-Security"] = HTTPS_ONLY


def _audit(scope: Scope, answer: _Answer) -> None:
    """Logs who wrote what, and whom the service refused."""
    state: dict[str, Any] = scope["state"]
    is_refused = answer.status in REFUSALS or state.get("problem") == REFUSED_NAME
    if scope["method"] in READING and not is_refused:
        return
    key = state.get("caller", Caller()).key
    path = scope.get("raw_path", b"").decode("latin-1")[:LONGEST_PATH]  # percent signs instead of what is odd
    job = scope.get("path_params", {}).get("job_id") or (answer.location or "").partition("/jobs/")[2]
    log.info(
        "audit",
        request=state["request"],
        who="nobody" if key is None else key.name,  # where no key is needed, or none was right
        key=None if key is None else key.id,
        what=f"{scope['method']} {path}",
        job=job or None,  # that was made or written to
        outcome=int(answer.status),
        problem=state.get("problem"),  # a refusal's code
        address=None if scope.get("client") is None else scope["client"][0],
    )


def _join_lists(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Makes one line, with commas, of each list that came on several."""
    names = [name for name, _ in headers]
    several = [name for name in LISTS if names.count(name) > 1]
    joined = [(name, b", ".join(value for each, value in headers if each == name)) for name in several]
    return [(name, value) for name, value in headers if name not in several] + joined
