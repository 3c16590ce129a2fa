"""Spans the answering of each request, named by its route (ASGI middleware)."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.tracing.spans import SpanNotes, Tracing

#: Asked for every few seconds by monitors, about no job: they would bury the other traces.
PASSED_OVER = ("/livez", "/readyz", "/metrics")


class TraceRequests:
    """Spans requests where traces are sent; else it is not there at all (app/api/application.py)."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app, self._tracing = app, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PASSED_OVER:
            await self._app(scope, receive, send)
            return
        with self._tracing.serve(scope["method"], Headers(scope=scope).get("traceparent")) as notes:

            async def watch(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _note_status(notes, message["status"])
                await send(message)

            try:
                await self._app(scope, receive, watch)
            finally:
                _note_route(notes, scope)


def _note_status(notes: SpanNotes, status: int) -> None:
    notes.attributes["http.response.status_code"] = status
    if status >= 500:
        notes.error = f"answered with {status}"


def _note_route(notes: SpanNotes, scope: Scope) -> None:
    """Names the span by the route's template, which is known only once the router has found it."""
    route = getattr(scope.get("route"), "path", None)
    notes.attributes["http.request.method"] = scope["method"]
    if route is not None:
        notes.attributes["http.route"] = route
        notes.name = f"{scope['method']} {route}"
