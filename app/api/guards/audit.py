"""Logs who wrote what, and whom the service refused: the event ``audit``, one line a request."""

from __future__ import annotations

from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.dependencies import Caller
from app.api.guards.keys import READING

#: Statuses and problems of a reading request that was refused for who asks, not for what.
REFUSALS = (401, 403, 429)
REFUSED_NAME = "host_not_allowed"
LONGEST_PATH = 200

log = structlog.get_logger(__name__)


class Audit:
    """Writes the line once a request is answered, or its client has gone (ASGI middleware).

    Its members: ``who`` (the key's name; nobody where none is needed or none was right) and ``key`` (its id),
    ``what`` (method and path), ``job`` (that was made or written to), ``outcome`` (the status, 499 where
    nobody waited for it), ``problem`` (a refusal's code), ``address`` of the client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})  # made here, so that all who are behind write into the same one
        status, location = 499, None

        async def watch(message: Message) -> None:
            nonlocal status, location
            if message["type"] == "http.response.start":
                status = message["status"]
                location = Headers(raw=message["headers"]).get("location")
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            is_refused = status in REFUSALS or scope["state"].get("problem") == REFUSED_NAME
            if scope["method"] not in READING or is_refused:
                log.info("audit", **_members(scope, status, location))


def _members(scope: Scope, status: int, location: str | None) -> dict[str, Any]:
    state: dict[str, Any] = scope["state"]
    key = state.get("caller", Caller()).key
    path = scope.get("raw_path", b"").decode("latin-1")[:LONGEST_PATH]  # percent signs instead of what is odd
    job = scope.get("path_params", {}).get("job_id") or (location or "").rpartition("/jobs/")[2]
    return {
        "who": "nobody" if key is None else key.name,
        "key": None if key is None else key.id,
        "what": f"{scope['method']} {path}",
        "job": job or None,
        "outcome": int(status),
        "problem": state.get("problem"),
        "address": None if scope.get("client") is None else scope["client"][0],
    }
