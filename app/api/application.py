"""Puts the HTTP service together: its routes, how errors are answered, and the process that serves it."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import anyio.to_thread
import structlog
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from app import __version__
from app.api import page, problems, refusals
from app.api.dependencies import ApiDependencies, service_of
from app.api.description import WORDS, describe_api
from app.api.guards.access import CheckAccess, allow_origins
from app.api.guards.connections import limited
from app.api.guards.forwarding import ForwardedHeaders
from app.api.guards.request_watch import WatchRequests
from app.api.problems import Problem
from app.api.routes import (
    batches,
    captions,
    events,
    files,
    job_list,
    jobs,
    recaption,
    search,
    session,
    submit,
    verdicts,
    video,
    webhooks,
)
from app.api.routes import status as api_status
from app.errors import QueueError, RecordUnreadable, ServiceError
from app.jobs.keeping.sweeper import Sweeper
from app.settings import Settings
from app.terminal import advice_on_names, own_command

#: Requests that may wait at once, most of them for Redis: while it is frozen further ones are refused.
THREADS = 200
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
DRAIN_SECONDS = 10  #: a request being answered when the server is stopped may take so long
KEYS_PAUSE = 2.0  #: seconds between two looks whether there are keys, while Redis is away
#: Of a body that no route limits. Those that take videos have limits of their own (UNLIMITED).
BODY_BYTES = 64 * 1024
IDLE_SECONDS = 30  #: after which a connection without a request is closed

log = structlog.get_logger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """Builds the application. Redis is first spoken to when a request needs it, so it may come up later."""
    service = ApiDependencies.connect(settings)
    app: FastAPI = FastAPIOffline(
        title="Reelword",
        version=__version__,
        description=WORDS["description"],
        redoc_url=None,
        redirect_slashes=False,  # an upload to a misspelt path is refused, not sent elsewhere in silence
        lifespan=_lifespan,
        favicon_url="data:,",
        max_body_size=BODY_BYTES,
        generate_unique_id_function=lambda route: to_camel(route.name),  # which a generated client calls
    )
    app.state.service = service
    app.openapi = lambda: describe_api(app)  # type: ignore[method-assign]
    for routes in (
        submit.router,
        batches.router,
        files.router,
        job_list.router,
        jobs.router,
        events.router,
        recaption.router,
        verdicts.router,
        search.router,
        video.router,
        webhooks.router,
        captions.router,
        session.router,
        api_status.router,
        page.router,
    ):
        app.include_router(routes, responses=problems.openapi_default())
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(Exception, _internal_error)
    app.add_middleware(CheckAccess, service=service)  # the innermost: what is added later stands before it
    allow_origins(app, settings)
    app.add_middleware(WatchRequests, metrics=service.metrics, tracing=service.tracing)
    app.add_middleware(ForwardedHeaders, settings=settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: ApiDependencies = app.state.service
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    checking = asyncio.create_task(_say_where_no_key_is(service))
    with Sweeper(service.jobs, service.blobs, service.settings, service.files.sweep):
        async with service.events, service.webhooks:
            yield
    checking.cancel()
    await anyio.to_thread.run_sync(service.close)


async def _say_where_no_key_is(service: ApiDependencies) -> None:
    """Warns in the log, once Redis answers, that a key is needed and there is none."""
    while service.settings.needs_key:
        with suppress(QueueError):
            if await service.keys.count() == 0:
                command = own_command("keys add NAME", service.settings)
                log.warning("a key is needed and there is none", hint=f"Make one: {command}")
            return
        await asyncio.sleep(KEYS_PAUSE)


async def _service_error(request: Request, error: Exception) -> Response:
    """Answers an error of ours; one that the operator has to know of is logged."""
    assert isinstance(error, ServiceError)
    is_ours = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, RecordUnreadable)
    if error.operator_hint and is_ours:
        log.warning(error.code, path=request.url.path, detail=str(error), hint=error.operator_hint)
    return _answer(request, problems.describe(error, request.url.path), problems.headers_of(error))


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    fault = refusals.InvalidRequest(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}.")
    return await _service_error(request, fault)


async def _http_error(request: Request, error: Exception) -> Response:
    """Answers what the framework finds by itself: no such route, no such method on it."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    path, code = request.url.path, status.name.lower()
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        most = refusals.in_units(BODY_BYTES)
        return await _service_error(request, refusals.BodyTooLarge(f"It has more than {most}."))
    document = Problem(
        type=problems.type_of(code),
        title=status.phrase,
        status=status,
        detail=f"{request.method} {path}: {error.detail}.",
        instance=path,
        code=code,
        hint="GET /docs lists the routes and their methods.",
    )
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods_of(request))
        if request.method == "OPTIONS":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
    return _answer(request, document, headers)


def _methods_of(request: Request) -> list[str]:
    """All methods of the path that was asked for; a route that does not fit knows only its own."""
    routes = request.app.router.routes
    methods = {
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    }
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


async def _client_gone(request: Request, _error: Exception) -> Response:
    """Returns an answer that is not read. A half-written upload is removed; an accepted job continues."""
    log.info("client went away", path=request.url.path)
    return Response(status_code=499)


async def _internal_error(request: Request, error: Exception) -> Response:
    log.error("internal error", path=request.url.path, error=repr(error))  # the server logs its traceback
    return await _service_error(request, refusals.InternalError())


def _answer(request: Request, document: Problem, headers: dict[str, str]) -> Response:
    service_of(request).metrics.refused.labels(document.code).inc()
    request.state.problem = document.code  # for the audit
    body = document.model_dump(mode="json", exclude_none=True)
    return JSONResponse(body, document.status, headers, media_type=problems.MEDIA_TYPE)


class ToStructlog(logging.Handler):
    """Turns what uvicorn logs into lines of our own logs."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def run(settings: Settings) -> None:
    """Serves until SIGTERM or Ctrl-C. Raises RedisMissing where no Redis is named or runs."""
    logging.basicConfig(handlers=[ToStructlog()], level=logging.WARNING)
    reached = "this machine alone" if settings.is_open_by_default else "all who reach it"
    access = "with a key" if settings.needs_key else f"open to {reached}"
    log.info("listening", address=f"{settings.host}:{settings.port}", access=access)
    if advice := advice_on_names(settings):
        log.warning("only this machine is served", hint=advice)
    server = uvicorn.Server(configuration(create_app(settings), settings, settings.port))
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(1)  # uvicorn has logged why


def configuration(
    app: FastAPI, settings: Settings, port: int, drain_seconds: int = DRAIN_SECONDS
) -> uvicorn.Config:
    """Returns how uvicorn runs the application.

    Args:
        settings: its host and limits.
        port: what it listens on; 0 takes any.
        drain_seconds: how long requests under way may take once it is stopped.
    """
    return uvicorn.Config(
        app,
        host=settings.host,
        port=port,
        http=limited(settings.max_connections, settings.trusted_proxies),
        log_config=None,
        access_log=False,
        proxy_headers=False,  # ForwardedHeaders reads them
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
        server_header=False,
    )
