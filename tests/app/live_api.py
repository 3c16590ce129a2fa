"""The API as clients meet it: uvicorn on a free port, in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from app import logs
from app.api import create_app
from app.service import Service
from app.settings import Settings


class LiveApi:
    """``client`` speaks to it over a socket; ``service`` is what its routes use."""

    def __init__(self, port: int, client: httpx.Client, service: Service) -> None:
        self.port, self.client, self.service = port, client, service

    @property
    def staged(self) -> list[str]:
        """Names of half-written files."""
        return [file.name for file in self.service.blobs.staging.glob("*")]

    @property
    def uploads(self) -> list[str]:
        folder = self.service.settings.data / "blobs" / "uploads"
        return [file.name for file in folder.iterdir()] if folder.exists() else []


@contextmanager
def live_api(settings: Settings) -> Iterator[LiveApi]:
    logs.configure(settings)
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=1))
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
