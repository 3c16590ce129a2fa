"""The API as clients meet it: uvicorn on a free port, in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from app import logs
from app.access.keys import ApiKey, Scope
from app.api import application
from app.api.application import create_app
from app.api.dependencies import ApiDependencies
from app.settings import Settings
from tests.app.scripted_worker import ScriptedWorker

LIMIT = 300_000


class LiveApi:
    """``client`` speaks to it over a socket; ``service`` is what its routes use."""

    def __init__(self, port: int, client: httpx.Client, service: ApiDependencies) -> None:
        self.port, self.client, self.service = port, client, service

    @property
    def staged(self) -> list[str]:
        """Names of half-written files that stay: the sweeps write one of theirs for a moment."""
        found, until = self._half_written(), time.monotonic() + 2
        while found and time.monotonic() < until:
            time.sleep(0.02)
            found &= self._half_written()
        return sorted(found)

    def _half_written(self) -> set[str]:
        return {file.name for file in self.service.blobs.staging.glob("*")}

    @property
    def uploads(self) -> list[str]:
        folder = self.service.settings.data / "blobs" / "uploads"
        return [file.name for file in folder.iterdir()] if folder.exists() else []


@contextmanager
def live_api(settings: Settings) -> Iterator[LiveApi]:
    logs.configure_logs(settings)
    app = create_app(settings)
    server = uvicorn.Server(application.configuration(app, settings, port=0, drain_seconds=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield LiveApi(port, client, app.state.service)
    finally:
        server.should_exit = True
        thread.join()


def send(
    api: LiveApi,
    data: bytes = b"a video",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    **options: Any,
) -> Any:
    fields = {name: str(value) for name, value in options.items()}
    return api.client.post("/caption", files={"video": ("clip.mp4", data)}, data=fields, headers=headers)


def finished(api: LiveApi, worker: ScriptedWorker, **options: Any) -> str:
    """The address of a job that has succeeded."""
    location: str = send(api, **options).headers["location"]
    worker.succeed(worker.take())
    return location


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"urn:reelword:problem:{code}"
    assert body["instance"] == response.request.url.path
    for sentence in (body["title"], body["detail"], body["hint"]):
        assert sentence
    return body


def key_of(owner: str, *scopes: Scope, **limits: Any) -> ApiKey:
    """A key as the store has it."""
    scopes = scopes or ("read", "write")
    return ApiKey(id=owner, name=owner, sha256="0" * 64, scopes=scopes, created_at=0.0, **limits)
