"""Lets a request through by its API key, before its body is read (ASGI middleware).

Where keys are needed, whatever is not named here needs one: GET and HEAD the scope read, all other methods
write. A route that is added later is locked from its first day.
"""

from __future__ import annotations

from typing import Literal

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import keys
from app.access.keys import ApiKey
from app.access.rates import RateState
from app.api import problems
from app.api.dependencies import ApiDependencies, Caller
from app.errors import QueueError

COOKIE = "reelword_session"
SESSION_LENGTH = 64  #: hexadecimal digits
READING = ("GET", "HEAD", "OPTIONS")
#: What anybody may ask for: whether the service lives, the page, its documentation, and signing in.
OPEN = ("/", "/livez", "/readyz", "/session", "/docs", "/openapi.json")
OPEN_BELOW = ("/static/", "/static-offline-docs/")

Need = keys.Scope | Literal["nothing"]


def what_it_needs(method: str, path: str, *, is_metrics_open: bool) -> Need:
    """Decides what a request has to be allowed.

    Args:
        method: of the request.
        path: that it asks for.
        is_metrics_open: whether everybody may read the service's numbers.
    """
    if path == "/metrics":
        return "nothing" if is_metrics_open else "admin"
    if path in OPEN or path.startswith(OPEN_BELOW):
        return "nothing"
    return "read" if method in READING else "write"


class RequireKey:
    """Refuses requests without a key that allows them, and those beyond its rate.

    Args:
        app: what is behind it.
        service: keys, rates, settings, metrics.
    """

    def __init__(self, app: ASGIApp, service: ApiDependencies) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._service.settings
        if scope["type"] != "http" or not settings.needs_key:
            await self._app(scope, receive, send)
            return
        is_metrics_open = settings.metrics_access == "open"
        need = what_it_needs(scope["method"], scope["path"], is_metrics_open=is_metrics_open)
        if need == "nothing":
            await self._app(scope, receive, send)
            return
        try:
            key = await self._admit(scope, need)
            rate = await self._count(scope, key)
            if rate is not None:
                send = _with_headers(send, rate)
                _check_rate(key, rate)
        except problems.RequestError as error:
            await self._refuse(error.code, problems.response(error, scope["path"]), scope, receive, send)
        except QueueError as error:
            await self._refuse(
                error.code, problems.queue_response(error, scope["path"]), scope, receive, send
            )
        else:
            await self._app(scope, receive, send)

    async def _admit(self, scope: Scope, need: keys.Scope) -> ApiKey:
        """Finds the request's key. Raises KeyMissing, KeyWrong, KeyScopeTooSmall, QueueUnavailable."""
        key = await find_key(self._service, Headers(scope=scope))
        scope.setdefault("state", {})["caller"] = Caller(key)
        if not key.allows(need):
            raise problems.KeyScopeTooSmall(f"The key {key.name} has no scope {need}.")
        return key

    async def _count(self, scope: Scope, key: ApiKey) -> RateState | None:
        """Counts the request for its key's rate; None where it has none."""
        is_writing = scope["method"] not in READING
        if key.rate_of(is_writing=is_writing) is None:
            return None
        return await anyio.to_thread.run_sync(lambda: self._service.rates.take(key, is_writing=is_writing))

    async def _refuse(self, code: str, answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
        self._service.metrics.refused.labels(code).inc()
        scope.setdefault("state", {})["problem"] = code
        await answer(scope, receive, send)


def _check_rate(key: ApiKey, rate: RateState) -> None:
    """Raises RateLimited."""
    if not rate.is_within:
        detail = f"The key {key.name} has {rate.amount} such requests in {rate.window} seconds."
        raise problems.RateLimited(detail, retry_after=rate.reset)


def _with_headers(send: Send, rate: RateState) -> Send:
    async def say(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(rate.headers)
        await send(message)

    return say


async def find_key(service: ApiDependencies, headers: Headers) -> ApiKey:
    """Finds the key that a request was sent with: by its Authorization, else by the page's cookie.

    Raises:
        KeyMissing: it has none.
        KeyWrong: it is unknown, revoked or expired.
        QueueUnavailable: keys cannot be read.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if token:
        key = await service.keys.find(token) if scheme.lower() == "bearer" else None
    elif cookie := session_cookie(headers):
        key = await service.keys.find_by_session(cookie)
    else:
        raise problems.KeyMissing
    if key is None:
        raise problems.KeyWrong
    return key


def session_cookie(headers: Headers) -> str | None:
    """Reads what a page's cookie holds; None where there is none that can be one of ours."""
    value = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
    return value if len(value) == SESSION_LENGTH else None
