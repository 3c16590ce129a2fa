"""By how much does a hostile key slow another key's clips down?

    python -m benchmarks.fair_share [--clips 12]

``serve`` with one worker and an engine that takes a third of a second a clip. A quiet key sends a clip,
follows its events to the end, reads its result and video and waits for its webhook, again and again: first
alone, then while a hostile key does its worst in nine ways at once. Both keys are as ``keys add`` makes them.
Exit code 1 where something of the quiet key was refused or lost, or its first captions took thrice as long.
"""

from __future__ import annotations

import argparse
import base64
import http.server
import io
import secrets
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from PIL import Image

from app.access.keys import KeyStore, make_key
from app.errors import JobFailure
from app.jobs.job import Keys
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import connect
from app.pipeline.engine_protocol import EngineAnswer, Report
from benchmarks.crash.colours import COLOURS, Sleeping, draw
from benchmarks.crash.findings import Finding, seconds, show
from benchmarks.support.served import ServedInstance
from extractors.features import Frames

CLIP_SECONDS = 0.33  #: that the engine takes
GOAL = 3.0  #: times its time alone that a quiet key's first caption may take
WARM_UP = 15.0  #: seconds that the hostile key has before the quiet one is timed
PATIENCE = 300.0
NEW_KEY = {"rate": "300/minute", "read_rate": "3000/minute", "concurrent": 200, "high": False}


class Costly(Sleeping):
    """Takes the same time for each video."""

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        time.sleep(CLIP_SECONDS * len(videos))
        return super().describe_and_caption(videos, options, report)


@dataclass
class Told:
    """Holds what the quiet key's client was told."""

    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  #: seconds by what
    refused: Counter[str] = field(default_factory=Counter)
    lost: int = 0  #: jobs that did not succeed, or of which no webhook came


class Listener:
    """Takes webhooks, and is a server whose videos never come."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}

    @contextmanager
    def listening(self) -> Iterator[str]:
        came = self.came

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.path == "/never":
                    time.sleep(14)
                came[body.partition('"id":"')[2][:32]] = time.monotonic()
                self.send_response(500 if self.path == "/never" else 204)
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                with suppress(OSError):
                    for _ in range(30):
                        self.wfile.write(b"x")
                        time.sleep(10)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                del format, args

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clips", type=int, default=12, help="that the quiet key sends, alone and beside")
    arguments = parser.parse_args()
    environment = {
        "REELWORD_ENGINE": "benchmarks.fair_share:Costly",
        "REELWORD_ACCESS": "keys",
        "REELWORD_URL_HOSTS": "127.0.0.1",
        "REELWORD_WEBHOOK_HOSTS": "127.0.0.1",
        "REELWORD_WEBHOOK_SECRETS": "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode(),
    }
    listener = Listener()
    with tempfile.TemporaryDirectory(prefix="reelword-fair-") as name, listener.listening() as hook:
        folder = Path(name)
        clip = draw(folder / "clip.mp4", COLOURS["plain"]).read_bytes()
        with ServedInstance(folder / "data", environment) as service:
            ada, bob = (_token(folder / "data", who) for who in ("ada", "bob"))
            findings = list(_compare(service, listener, hook, clip, (ada, bob), arguments.clips))
    show([("fair share", findings)])
    broken = sum(not finding.is_kept for finding in findings)
    return 1 if broken else 0


def _token(data: Path, name: str) -> str:
    with connect((data / "redis" / "url").read_text(), patience=5) as server:
        key, token = make_key(name, **NEW_KEY)
        KeyStore(server, Keys()).add(key)
    return token


def _compare(
    service: ServedInstance, listener: Listener, hook: str, clip: bytes, tokens: tuple[str, str], count: int
) -> Iterator[Finding]:
    hostile, quiet = tokens
    with _client(service, quiet) as client:
        alone = _send_all(client, listener, hook, clip, count)
        with Hostile(service, hostile, hook, clip) as others:
            time.sleep(WARM_UP)
            beside = _send_all(client, listener, hook, clip, count)
        for what, spent in alone.spent.items():
            late = beside.spent[what]
            limit = GOAL * statistics.median(spent) if what == "first caption" else None
            yield seconds(f"{what}, alone: median of {len(spent)}", statistics.median(spent))
            yield seconds(f"  beside the hostile key: median of {len(late)}", statistics.median(late), limit)
            yield seconds("  the longest", max(late))
        yield Finding("requests of the quiet key that were refused", beside.refused.total(), limit=0)
        yield Finding("jobs or webhooks of it that were lost", beside.lost, limit=0)
    for what, statuses in others.statuses.items():
        for status, times in sorted(statuses.items()):
            yield Finding(f"hostile {what}: answered with {status}", times)


def _client(service: ServedInstance, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=service.address, timeout=PATIENCE, headers={"Authorization": f"Bearer {token}"}
    )


def _send_all(client: httpx.Client, listener: Listener, hook: str, clip: bytes, count: int) -> Told:
    report = Told()
    for _ in range(count):
        _send(client, listener, hook, clip, report)
    return report


def _send(client: httpx.Client, listener: Listener, hook: str, clip: bytes, told: Told) -> None:
    """Sends one clip and does with its job what a page does."""
    began = time.monotonic()

    def note(what: str, since: float) -> float:
        told.spent[what].append(time.monotonic() - since)
        return time.monotonic()

    answer = client.post("/caption", files={"video": ("clip.mp4", clip)}, data={"webhook": f"{hook}/quiet"})
    if not answer.is_success:
        told.refused[f"POST /caption {answer.status_code}"] += 1
        return
    note("upload accepted", began)
    job = answer.headers["location"]
    with client.stream("GET", f"{job}/events") as events:
        if not events.is_success:
            told.refused[f"GET events {events.status_code}"] += 1
        state = [line for line in events.iter_lines() if line.startswith("data:")][-1]
    ended = note("first caption", began)
    told.lost += '"succeeded"' not in state
    for path in (job, f"{job}/video"):
        told.refused[f"GET {path}"] += not client.get(path).is_success
    note("result and video", ended)
    while job.rpartition("/")[2] not in listener.came and time.monotonic() - ended < PATIENCE:
        time.sleep(0.02)
    told.lost += job.rpartition("/")[2] not in listener.came
    note("webhook after the end", ended)


class Hostile:
    """Does its worst in nine ways at once, each in a thread of its own, while it is entered."""

    def __init__(self, service: ServedInstance, token: str, hook: str, clip: bytes) -> None:
        self._service, self._token, self._hook, self._clip = service, token, hook, clip
        self._film, self._over = _animation(), threading.Event()
        self.statuses: dict[str, Counter[int]] = defaultdict(Counter)
        ways: dict[str, Callable[[httpx.Client], httpx.Response | None]] = {
            "clips": lambda client: client.post("/caption", files={"video": ("a.mp4", self._clip)}),
            "urgent clips": lambda client: client.post(
                "/caption", files={"video": ("a.mp4", self._clip)}, data={"priority": "high"}
            ),
            "slow addresses": lambda client: client.post("/caption", json={"url": f"{self._hook}/slow.mp4"}),
            "films of many segments": self._send_film,
            "batches made and cancelled": self._make_and_cancel,
            "webhooks that never answer": self._make_and_cancel,
            "followers": self._follow,
            "uploads of 4 MB": lambda client: client.post(
                "/caption", files={"video": ("a.mp4", self._clip + bytes(4_000_000))}
            ),
            "bodies that stand still": self._stall,
        }
        self._threads = [threading.Thread(target=self._repeat, args=way, daemon=True) for way in ways.items()]

    def __enter__(self) -> Hostile:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(20)

    def _repeat(self, what: str, attack: Callable[[httpx.Client], httpx.Response | None]) -> None:
        with _client(self._service, self._token) as client:
            while not self._over.wait(0.05):
                with suppress(httpx.HTTPError, OSError):
                    answer = attack(client)
                    if answer is not None:
                        self.statuses[what][answer.status_code] += 1

    def _send_film(self, client: httpx.Client) -> httpx.Response:
        return client.post("/caption", files={"video": ("a.gif", self._film)}, data={"segments": "0.5"})

    def _make_and_cancel(self, client: httpx.Client) -> httpx.Response:
        urls = [f"{self._hook}/{number}.mp4" for number in range(50)]
        response = client.post("/batches", json={"urls": urls, "webhook": f"{self._hook}/never"})
        if response.is_success:
            client.delete(response.headers["location"])
        return response

    def _follow(self, client: httpx.Client) -> httpx.Response | None:
        jobs = client.get("/jobs", params={"limit": 1, "state": "queued"}).json().get("jobs")
        if not jobs:
            return None
        request = client.build_request("GET", f"/jobs/{jobs[0]['id']}/events")
        return client.send(request, stream=True)  # never read

    def _stall(self, _: httpx.Client) -> None:
        """Holds a connection with a body that does not come, for as long as it is let."""
        port = int(self._service.address.rpartition(":")[2])
        connections = []
        with suppress(OSError):
            for _number in range(50):
                connection = socket.create_connection(("127.0.0.1", port))
                connection.sendall(
                    b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nk"
                )
                connections.append(connection)
        self._over.wait(20)
        for connection in connections:
            connection.close()


def _animation() -> bytes:
    """Makes a film of 1,000 seconds in few bytes: a GIF with a frame a second."""
    frames = [Image.new("P", (16, 16), number % 2) for number in range(1000)]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=1000, optimize=False)
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
