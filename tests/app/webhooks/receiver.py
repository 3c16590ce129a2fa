"""Receives webhooks on this machine, answers as told, and verifies signatures as a client would."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + "c2VjcmV0" * 5
OLD_SECRET = "whsec_" + "b2xkZXIu" * 5


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: str
    at: float

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.body)
        return message


@dataclass(frozen=True)
class Reply:
    """``seconds``: how long it lets the sender wait."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class Receiver:
    """``replies`` are given one by one; then all is well."""

    def __init__(self, *replies: Reply) -> None:
        self.received: list[Received] = []
        self._replies, self._guard = list(replies), threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                reply = receiver.take(Received(self.path, dict(self.headers), body, time.monotonic()))
                time.sleep(reply.seconds)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def take(self, received: Received) -> Reply:
        with self._guard:
            self.received.append(received)
            return self._replies.pop(0) if self._replies else Reply()

    @property
    def ids(self) -> list[str]:
        """The webhook ids of all requests, in their order."""
        return [
            {name.lower(): each for name, each in got.headers.items()}["webhook-id"] for got in self.received
        ]


@contextmanager
def receiving(*replies: Reply) -> Iterator[Receiver]:
    receiver = Receiver(*replies)
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()
