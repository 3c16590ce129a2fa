"""Checks where a request comes from, tells browsers what they may do with an answer, and counts: before any
route is reached.

A service on a laptop asks for no key and is open to whatever can reach it, and a browser reaches it from any
page; where keys are needed, a browser has the cookie of a page that was signed in on. A page under a name of
its own that it points here (DNS rebinding) is known by its Host, and a page from elsewhere that posts here by
its Origin.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api import problems
from app.api.metrics import Metrics
from app.settings import EVERYWHERE, Settings

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
READING = ("GET", "HEAD", "OPTIONS")
#: Answers that are no pages load nothing.
NOTHING = "default-src 'none'; frame-ancestors 'none'"
#: The page loads its own script and style, draws on canvases, plays films of this server and of its visitor's
#: own disk (``blob:``), and talks to this server.
PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: Swagger UI starts itself by a script in the page and sets styles as it goes.
DOCS = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
POLICIES = {"/": PAGE, "/docs": DOCS}
#: The page needs none of what a browser could ask its user for.
PERMISSIONS = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
HTTPS_ONLY = "max-age=31536000"  #: for whoever came by https: not again without, for a year
#: What pages of other origins may send beside the simplest, and read of the answers.
CORS_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Prefer", "Range",
)  # fmt: skip
CORS_EXPOSED = (
    "Content-Disposition", "ETag", "Idempotency-Replayed", "Link", "Location", "Preference-Applied",
    "RateLimit", "RateLimit-Policy", "Retry-After", "WWW-Authenticate",
)  # fmt: skip
CORS_METHODS = ("GET", "HEAD", "POST", "DELETE")
CORS_SECONDS = 600  #: a browser asks again after


class CountRequests:
    """Counts and times answers by route template, never by path, which has job ids (ASGI middleware)."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 499  # the client went away before an answer, as nginx counts it
        began = time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            self._count(scope, status, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.requests.labels(scope["method"], route, status).inc()
        self._metrics.request_seconds.labels(scope["method"], route).observe(seconds)


class SecurityHeaders:
    """Adds what a browser may do with an answer: a content policy by path, no sniffing of types, no referrer,
    no devices, and by https nothing but https from then on (ASGI middleware).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = POLICIES.get(scope["path"], NOTHING)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Permissions-Policy"] = PERMISSIONS
                headers["X-Frame-Options"] = "DENY"
                if scope["scheme"] == "https":
                    headers["Strict-Transport-Security"] = HTTPS_ONLY
            await send(message)

        await self._app(scope, receive, guarded)


class HeadAsGet:
    """Answers HEAD as GET, without the body (ASGI middleware).

    A route that has much to send finds ``without_body`` in its scope and need not read it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def bodiless(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET", "without_body": True}, receive, bodiless)


def trusted_hosts(settings: Settings) -> list[str]:
    """Lists the names that this service answers to: loopback's, the address it listens on, and those of the
    settings.
    """
    own = [] if settings.host in EVERYWHERE else [settings.host]
    names = [*own, *settings.host_names, *settings.peer_host_names]
    return list(dict.fromkeys([*LOOPBACK, *map(_bracketed, names)]))


class CheckAccess:
    """Refuses a foreign Host by 400, a foreign Origin of a writing request by 403 (ASGI middleware)."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._named = [_bracketed(name) for name in settings.host_names]
        self._origins = settings.origins
        self._trusted = TrustedHostMiddleware(_accept, trusted_hosts(settings), www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not await self._is_trusted(scope, headers):
            error: problems.RequestError = problems.HostNotAllowed(_host_detail(headers))
        elif scope["method"] not in READING and not self._is_same_origin(headers):
            error = problems.OriginNotAllowed(f"The request comes from {headers['origin'][:100]}.")
        else:
            await self._app(scope, receive, send)
            return
        scope["app"].state.service.metrics.refused.labels(error.code).inc()
        scope.setdefault("state", {})["problem"] = error.code
        await problems.response(error, scope["path"])(scope, receive, send)

    async def _is_trusted(self, scope: Scope, headers: Headers) -> bool:
        """Asks Starlette, which decides; its answer, which is no problem document, goes nowhere."""
        refusals: list[Message] = []

        async def refuse(message: Message) -> None:
            refusals.append(message)

        await self._trusted(scope, _no_body, refuse)
        return not refusals and len(headers.getlist("host")) == 1

    def _is_same_origin(self, headers: Headers) -> bool:
        """Checks the Origin.

        Programs send none; a page's is its own address, which is ours, has a name we were given, or is one
        of those that CORS is for.
        """
        host = headers["host"].lower()
        return all(self._is_ours(origin.lower(), host) for origin in headers.getlist("origin"))

    def _is_ours(self, origin: str, host: str) -> bool:
        try:
            place = urlsplit(origin)
            is_known = place.netloc == host or _bracketed(place.hostname or "null") in self._named
            return is_known or origin in self._origins or "*" in self._origins
        except ValueError:  # no address, e.g. http://[
            return False


def allow_origins(app: Starlette, settings: Settings) -> None:
    """Lets pages of the named origins ask from a browser, with a key in a header; cookies stay at home."""
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_HEADERS,
            expose_headers=CORS_EXPOSED,
            max_age=CORS_SECONDS,
        )


async def _accept(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Stands for the application behind Starlette's check: says nothing, so that nothing said means trust."""


async def _no_body() -> Message:
    return {"type": "http.disconnect"}


def _host_detail(headers: Headers) -> str:
    hosts = headers.getlist("host")
    return (
        f"The request asks for {hosts[0][:100]}." if len(hosts) == 1 else "The request needs one Host header."
    )


def _bracketed(name: str) -> str:
    """Writes a name as Host has it: an IPv6 address in brackets."""
    return f"[{name.lower()}]" if ":" in name and not name.startswith("[") else name.lower()
