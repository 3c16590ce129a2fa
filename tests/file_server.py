"""A real HTTP server for one file, with the faults that real ones have."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.http_server import serving_in_thread


@dataclass
class FileServer:
    """Serves ``content`` at /file, sends /elsewhere there and /round to itself; the rest is 404.

    ranges: whether it answers with parts. etag: the version's name; None gives none. kind: the media type.
    cuts: after how many bytes the next answers break off. refusals: statuses of the next answers.
    shift: bytes by which its parts start elsewhere than asked. packed: compressed whatever was asked.
    seconds: how long it thinks before a body.
    """

    content: bytes
    ranges: bool = True
    etag: str | None = '"first"'
    kind: str = "application/octet-stream"
    cuts: list[int] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    shift: int = 0
    packed: bool = False
    seconds: float = 0.0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/file"

    @property
    def asked(self) -> list[str | None]:
        """The Range of each request."""
        return [headers.get("range") for _, headers in self.requests]


@contextmanager
def serving(server: FileServer) -> Iterator[FileServer]:
    """Runs it in a thread of its own on a free port of this machine."""

    class Handler(_Handler):
        files = server

    with serving_in_thread(Handler) as server.port:
        yield server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: FileServer

    def do_GET(self) -> None:
        self.files.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        if self.files.refusals:
            self._empty(self.files.refusals.pop(0), **{"Retry-After": "0"})
        elif self.path == "/elsewhere":
            self._empty(302, Location="/file")
        elif self.path == "/round":
            self._empty(302, Location="/round")
        elif self.path.endswith("/file"):
            self._file()
        else:
            self._empty(404)

    def _file(self) -> None:
        start, total = self._start(), len(self.files.content)
        if start and start >= total:
            self._empty(416, **{"Content-Range": f"bytes */{total}"})
        else:
            self._part(start, total)

    def _part(self, start: int, total: int) -> None:
        files = self.files
        body = files.content[start + (files.shift if start else 0) :]
        if files.packed:
            body = gzip.compress(body)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start + files.shift}-{total - 1}/{total}")
        for name, value in {"Content-Type": files.kind, "ETag": files.etag}.items():
            if value is not None:
                self.send_header(name, value)
        if files.packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._send(body)

    def _start(self) -> int:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, self.files.etag)
        return int(asked[1]) if asked and same and self.files.ranges else 0

    def _send(self, body: bytes) -> None:
        threading.Event().wait(self.files.seconds)
        if self.files.cuts:
            body, self.close_connection = body[: self.files.cuts.pop(0)], True
        with suppress(ConnectionError):  # of a client that has seen enough
            self.wfile.write(body)

    def _empty(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Nothing: the tests look at ``requests``."""
