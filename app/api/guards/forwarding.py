"""Reads what proxies say of a request: who asks, by which scheme (both by uvicorn), and below which path.

A proxy may serve the service below a path of its own, ``/reel``, and pass that path on or strip it. From here
on a request's path begins with it in either case, as ASGI has it, and ``root_path`` says how long it is.
``/v1`` is such a path too: each route is below it as well, and the addresses in its answers stay there.
"""

from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.setting_types import ROOT_PATTERN
from app.settings import Settings

PREFIX = "x-forwarded-prefix"
VERSION = "/v1"


class ForwardedHeaders(ProxyHeadersMiddleware):
    """Believes proxies that are trusted (ASGI middleware, the outermost: it sees who is connected)."""

    def __init__(self, app: Any, settings: Settings) -> None:  # uvicorn has types of its own for ASGI's
        super().__init__(app, list(settings.trusted_proxies))
        self._root = settings.root_path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = _below(self._forwarded(scope) or self._root, scope)
        await super().__call__(scope, receive, send)

    def _forwarded(self, scope: Scope) -> str:
        """Returns the path that trusted proxies have stripped, the first one's first; empty for none."""
        address = scope["client"][0] if scope.get("client") else None
        if address not in self.trusted_hosts:
            return ""
        lines = ",".join(Headers(scope=scope).getlist(PREFIX))
        prefixes = [prefix.strip().rstrip("/") for prefix in lines.split(",")]
        return "".join(prefixes) if all(map(ROOT_PATTERN.fullmatch, prefixes)) else ""


def _below(root: str, scope: Scope) -> Scope:
    path: str = scope["path"]
    if not f"{path}/".startswith(f"{root}/"):
        path = root + path
    if path.startswith(f"{root}{VERSION}/"):
        root += VERSION
    return {**scope, "root_path": root, "path": path if path != root else f"{root}/"}


def path_of(scope: Scope) -> str:
    """Returns the path of a request as the service's routes have it."""
    path: str = scope["path"]
    return path.removeprefix(scope["root_path"])
