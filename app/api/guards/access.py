"""Decides who may ask: by the name that a request calls the service, by the page it comes from, and by its
API key; all before its body is read.

A service on a laptop asks for no key and is open to whatever can reach it, and a browser reaches it from any
page; where keys are needed, a browser has the cookie of a page that was signed in on. A page under a name of
its own that it points here (DNS rebinding) is known by its Host, and a page from elsewhere that posts here by
its Origin. Where keys are needed, whatever is not named here needs one: GET and HEAD the scope read, all
other methods write. A route that is added later is locked from its first day.
"""

import re
from typing import Literal
from urllib.parse import urlsplit

import anyio.to_thread
import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import keys
from app.access.keys import ApiKey
from app.access.rates import RateState
from app.api import problems, refusals
from app.api.dependencies import ApiDependencies, Caller
from app.api.guards.forwarding import PREFIX, path_of
from app.api.receiving.upload import UNLIMITED
from app.errors import ServiceError
from app.settings import EVERYWHERE, Settings

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
COOKIE = "reelword_session"
SESSION_LENGTH = 64  #: hexadecimal digits
#: Headers that proxies add: who asks is then not on this machine, or may not be.
BY_A_PROXY = (
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", PREFIX, "x-real-ip", "forwarded", "via",
)  # fmt: skip
READING = ("GET", "HEAD", "OPTIONS")
#: What needs no key: whether the service lives, the page, its documentation, and signing in.
OPEN = ("/", "/livez", "/readyz", "/session", "/docs", "/reference", "/openapi.json")
OPEN_BELOW = ("/f/", "/static/", "/static-offline-docs/")
#: What pages of other origins may send beside the simplest, and read of the answers.
CORS_HEADERS = (
    "Authorization", "Content-Disposition", "Content-Type", "Idempotency-Key", "If-None-Match", "If-Range",
    "Last-Event-ID", "Prefer", "Range", "traceparent", "tracestate", "Tus-Resumable", "Upload-Length",
    "Upload-Metadata", "Upload-Offset",
)  # fmt: skip
CORS_EXPOSED = (
    "Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Idempotency-Replayed", "Link",
    "Location", "Preference-Applied", "RateLimit", "RateLimit-Policy", "Retry-After", "Tus-Extension",
    "Tus-Max-Size", "Tus-Resumable", "Tus-Version", "Upload-Expires", "Upload-Length", "Upload-Offset",
    "WWW-Authenticate",
)  # fmt: skip
CORS_METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
CORS_SECONDS = 600  #: a browser asks again after

log = structlog.get_logger(__name__)
Need = keys.Scope | Literal["nothing"]


def what_it_needs(method: str, path: str, *, is_metrics_open: bool) -> Need:
    """Decides what a request has to be allowed.

    Args:
        is_metrics_open: whether everybody may read the service's numbers.
    """
    if path == "/metrics":
        return "nothing" if is_metrics_open else "admin"
    if path in OPEN or path.startswith(OPEN_BELOW):
        return "nothing"
    return "read" if method in READING else "write"


class CheckAccess:
    """Refuses a foreign Host by 400, a foreign Origin of a writing request by 403, and where keys are needed
    a request without one that allows it, or beyond its rate (ASGI middleware).
    """

    def __init__(self, app: ASGIApp, service: ApiDependencies) -> None:
        self._app, self._service = app, service
        settings = service.settings
        self._needs_key, self._origins = settings.needs_key, settings.cors_origins
        self._is_metrics_open = settings.metrics_access == "open"
        self._is_open_by_default = settings.is_open_by_default
        self._logged: set[str] = set()  # codes of refusals
        self._named = [_bracketed(name) for name in settings.allowed_hosts]
        self._trusted = trusted_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            rate = await self._check(scope)
            if rate is not None:
                send = _with_headers(send, rate)
                check_rate(scope["state"]["caller"].key, rate)
        except ServiceError as error:
            await self._refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _check(self, scope: Scope) -> RateState | None:
        """Checks a request, counts it for its key's rate (None without one); raises why it is refused."""
        headers = Headers(scope=scope)
        if not self._is_trusted(headers):
            hosts = headers.getlist("host")
            request = f"asks for {hosts[0][:100]}" if len(hosts) == 1 else "needs one Host header"
            raise self._logged_once(refusals.HostNotAllowed(f"The request {request}."))
        if self._is_open_by_default and (passed := [name for name in BY_A_PROXY if name in headers]):
            raise self._logged_once(refusals.ProxyNotNamed(f"The request has the header {passed[0]}."))
        if scope["method"] not in READING and not self._is_same_origin(headers):
            raise refusals.OriginNotAllowed(f"The request comes from {headers['origin'][:100]}.")
        if not self._needs_key:
            return None
        need = what_it_needs(scope["method"], path_of(scope), is_metrics_open=self._is_metrics_open)
        if need == "nothing":
            return None
        key = await find_key(self._service, headers)
        scope.setdefault("state", {})["caller"] = Caller(key)
        if not key.allows(need):
            raise refusals.KeyScopeTooSmall(f"The key {key.name} has no scope {need}.")
        return await count_request(self._service, key, is_writing=scope["method"] not in READING)

    def _logged_once(self, refusal: refusals.RequestError) -> refusals.RequestError:
        """Logs the first refusal of its kind with what lets such requests in; the audit has the others."""
        if refusal.code not in self._logged:
            self._logged.add(refusal.code)
            log.warning("request refused", code=refusal.code, why=str(refusal), hint=refusal.operator_hint)
        return refusal

    async def _refuse(self, error: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
        self._service.metrics.refused.labels(error.code).inc()
        scope.setdefault("state", {})["problem"] = error.code
        # Read without its body, which may be announced as longer than what routes without files take.
        refusal = RequestBodyLimitMiddleware(problems.response(error, scope["path"]), UNLIMITED)
        await refusal(scope, receive, send)

    def _is_trusted(self, headers: Headers) -> bool:
        """Checks the one Host of a request, its port aside; names may be ``*`` or begin with ``*.``."""
        hosts = headers.getlist("host")
        host = re.sub(r":\d*$", "", hosts[0].lower()) if len(hosts) == 1 else None
        return host is not None and any(
            name in ("*", host) or (name.startswith("*.") and host.endswith(name[1:]))
            for name in self._trusted
        )

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


def trusted_hosts(settings: Settings) -> list[str]:
    """Lists the names that this service answers to: loopback's, its own address, those of the settings."""
    bound = [] if settings.host in EVERYWHERE else [settings.host]
    names = [*bound, *settings.allowed_hosts, *settings.peer_hosts]
    return list(dict.fromkeys([*LOOPBACK, *map(_bracketed, names)]))


def allow_origins(app: Starlette, settings: Settings) -> None:
    """Lets pages of the named origins ask from a browser, with a key in a header; cookies stay at home."""
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_HEADERS,
            expose_headers=CORS_EXPOSED,
            max_age=CORS_SECONDS,
        )


def _bracketed(name: str) -> str:
    """Writes a name as Host has it: an IPv6 address in brackets."""
    return f"[{name.lower()}]" if ":" in name and not name.startswith("[") else name.lower()


async def count_request(service: ApiDependencies, key: ApiKey, *, is_writing: bool) -> RateState | None:
    """Counts a request for its key's rate, None without one. Raises QueueUnavailable.

    Args:
        is_writing: whether it makes or changes something.
    """
    if key.rate_of(is_writing=is_writing) is None:
        return None
    return await anyio.to_thread.run_sync(lambda: service.rates.take(key, is_writing=is_writing))


def check_rate(key: ApiKey, rate: RateState) -> None:
    """Raises RateLimited."""
    if not rate.is_within:
        detail = f"The key {key.name} has {rate.amount} such requests in {rate.window} seconds."
        raise refusals.RateLimited(detail, retry_after=rate.reset)


def _with_headers(send: Send, rate: RateState) -> Send:
    async def say(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(rate.headers)
        await send(message)

    return say


async def find_key(service: ApiDependencies, headers: Headers) -> ApiKey:
    """Finds the key that a request was sent with: by its Authorization, else by the page's cookie.

    Raises KeyMissing, KeyWrong (unknown, revoked or expired), and QueueUnavailable.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if token:
        key = await service.keys.find(token) if scheme.lower() == "bearer" else None
    elif cookie := session_cookie(headers):
        key = await service.keys.find_by_session(cookie)
    else:
        raise refusals.KeyMissing
    if key is None:
        raise refusals.KeyWrong
    return key


def session_cookie(headers: Headers) -> str | None:
    """Reads what a page's cookie holds; None where there is none that can be one of ours."""
    value = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
    return value if len(value) == SESSION_LENGTH else None
