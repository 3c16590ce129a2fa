"""The HTTP service: its routes, how it says what is wrong, and what it adds to every answer.

Imports neither torch nor anything of ``models`` or ``extractors``: its image has none of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import anyio.to_thread
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from app import __version__, api_jobs, api_page, api_status, api_submit, problems
from app.access import CheckAccess
from app.errors import QueueError, RecordUnreadable
from app.headers import HeadAsGet, SecurityHeaders
from app.metrics import CountRequests
from app.problems import Problem, RequestError
from app.service import Service, service_of
from app.settings import Settings
from app.sweeper import Sweeper

#: Requests that may wait at once, most of them for Redis: while it is frozen nobody queues behind them.
THREADS = 200
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
DESCRIPTION = "A video goes in, a caption with its attention comes out."

log = structlog.get_logger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The application; Redis is first spoken to when a request needs it, so that it may come up later."""
    service = Service.connect(settings)
    app: FastAPI = FastAPIOffline(
        title="Reelword",
        version=__version__,
        description=DESCRIPTION,
        redoc_url=None,
        lifespan=_lifespan,
        favicon_url="data:,",
    )
    app.state.service = service
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    for routes in (api_submit.router, api_jobs.router, api_status.router, api_page.router):
        app.include_router(routes, responses=problems.openapi_default())
    app.mount("/static", api_page.static_files())
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(QueueError, _queue_error)
    app.add_exception_handler(RecordUnreadable, _record_unreadable)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(Exception, _internal_error)
    app.add_middleware(CheckAccess, settings=settings)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(CountRequests, metrics=service.metrics)
    app.add_middleware(HeadAsGet)
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description, with the schema of problems, which no route returns by itself."""
    document = FastAPI.openapi(app)
    schemas = document["components"]["schemas"]
    schemas.setdefault("Problem", Problem.model_json_schema(ref_template="#/components/schemas/{model}"))
    return document


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    with Sweeper(service.jobs, service.blobs, service.settings):
        yield
    await anyio.to_thread.run_sync(service.close)


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _answer(request, problems.describe(error, request.url.path), problems.headers_of(error))


async def _queue_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueueError)
    log.warning("queue error", path=request.url.path, error=str(error))
    found = problems.describe_job_error(error, request.url.path)
    return _answer(request, found, {"Retry-After": "5"})


async def _record_unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RecordUnreadable)
    log.error("record unreadable", path=request.url.path, error=str(error))
    return _answer(request, problems.describe_job_error(error, request.url.path), {})


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    detail = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}."
    hint = "GET /docs lists what each route takes."
    title = "A part of the request has a value that is not accepted"
    path = request.url.path
    return _answer(request, problems.problem(422, "invalid_request", title, detail, hint, path), {})


async def _http_error(request: Request, error: Exception) -> Response:
    """What the framework says by itself: no such route, no such method on it."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    path = request.url.path
    detail = f"{request.method} {path}: {error.detail}."
    hint = "GET /docs lists the routes and their methods."
    found = problems.problem(status, status.name.lower(), status.phrase, detail, hint, path)
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods_of(request))
    return _answer(request, found, headers)


def _methods_of(request: Request) -> list[str]:
    """All methods of the path that was asked for; a route that does not fit knows only its own."""
    routes = request.app.router.routes
    found = {
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    }
    return sorted(found | {"HEAD"} if "GET" in found else found)


async def _client_gone(request: Request, _error: Exception) -> Response:
    """Nobody reads this answer. A half-written upload is already removed; an accepted job goes on."""
    log.info("client went away", path=request.url.path)
    return Response(status_code=499)


async def _internal_error(request: Request, error: Exception) -> Response:
    log.error("internal error", path=request.url.path, error=repr(error))  # the server logs its traceback
    title = "The server has a fault"
    detail = "The request could not be answered because of a fault in the server."
    hint = "The server's log has the details; report it with them."
    return _answer(
        request, problems.problem(500, "internal_error", title, detail, hint, request.url.path), {}
    )


def _answer(request: Request, found: Problem, headers: dict[str, str]) -> Response:
    service_of(request).metrics.refused.labels(found.code).inc()
    body = found.model_dump(mode="json", exclude_none=True)
    return JSONResponse(body, found.status, headers, media_type=problems.MEDIA_TYPE)
