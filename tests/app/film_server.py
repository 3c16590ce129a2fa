"""A server of films for tests of fetching, and of all that can go wrong with one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class FilmServer:
    """Serves ``film`` at /clip.mp4. asked, hosts: the paths that were asked for, in their order,
    and by which Host.

    ``/redirect?to=URL`` leads on; ``/status/404`` answers so; ``/flaky`` breaks off twice and then serves;
    ``/cut`` always breaks off; ``/endless`` announces no length and never ends; ``/slow`` drips; ``/silent``
    says nothing; ``/gzip`` sends what nobody asked for.
    """

    def __init__(self, film: bytes) -> None:
        self.film, self.asked, self.hosts = film, list[str](), list[str]()
        self.is_open = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, path: str = "/clip.mp4", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self.is_open = False
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        films = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                films.asked.append(self.path)
                films.hosts.append(self.headers["Host"])
                films.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        place = urlsplit(to.path)
        answers: dict[str, Callable[[], None]] = {
            "/clip.mp4": lambda: self._send(to, len(self.film), self.film),
            "/cut": lambda: self._send(to, len(self.film), self.film[:100]),
            "/endless": lambda: self._drip(to, b"x" * 65536, 0.0),
            "/slow": lambda: self._drip(to, b"x", 0.05),
            "/silent": lambda: self._drip(to, b"", 0.05),
            "/gzip": lambda: self._send(to, 4, b"\x1f\x8b..", {"Content-Encoding": "gzip"}),
            "/flaky": lambda: self._send(
                to, len(self.film), self.film[: 100 if self.asked.count("/flaky") < 3 else None]
            ),
        }
        if place.path == "/redirect":
            self._send(to, 0, b"", {"Location": parse_qs(place.query)["to"][0]}, 302)
        elif place.path.startswith("/status/"):
            self._send(to, 0, b"", status=int(place.path.rpartition("/")[2]))
        else:
            answers[place.path]()

    def _send(
        self,
        to: BaseHTTPRequestHandler,
        announced: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        status: int = 200,
    ) -> None:
        to.send_response(status)
        to.send_header("Content-Length", str(announced))
        for name, value in (headers or {}).items():
            to.send_header(name, value)
        to.end_headers()
        to.wfile.write(body)

    def _drip(self, to: BaseHTTPRequestHandler, piece: bytes, pause: float) -> None:
        to.send_response(200)
        to.end_headers()
        try:
            while self.is_open:
                to.wfile.write(piece)
                to.wfile.flush()
                time.sleep(pause)
        except OSError:  # whoever asked has gone
            return


@contextmanager
def film_server(film: bytes) -> Iterator[FilmServer]:
    server = FilmServer(film)
    try:
        yield server
    finally:
        server.close()
