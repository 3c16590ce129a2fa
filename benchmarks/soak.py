"""Sends jobs while what runs them is killed, and counts what clients were told: one end, one webhook each.

    PYTHONPATH=client python -m benchmarks.soak [--jobs 300] [--real]      make soak

``serve`` itself with four workers. Every job is sent by the client library, followed by its events to the
end, and announced by a webhook to a receiver that checks signatures; meanwhile a worker, an engine or the API
is killed every few seconds, as soon as half of the workers are ready again. A job may fail where as many
kills as it has attempts met it at work. Requests are timed beside it. ``--real`` takes the real engine
instead of one without models. Exit code 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import random
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import psutil
from standardwebhooks import Webhook, WebhookVerificationError

from benchmarks.crash.deployment import WORKERS, Deployment, GaveUp
from benchmarks.crash.findings import Finding, seconds, show
from reelword import AsyncClient

KILL_EVERY = 3.0  #: seconds at the least
WORKER, ENGINE, API = VICTIMS = ("app worker", "app.worker.engine.child", "app api")
ATTEMPTS = 3  #: of a job, REELWORD_ATTEMPTS
DELIVERIES_AT_ONCE = 16  #: of one API
SENDERS = 16  #: uploads at once
SLOW_SHARE = 0.1  #: of jobs that take three seconds
SETTLE_SECONDS = 120.0  #: for the last webhooks
SEED = 7


@dataclass
class Told:
    """Holds what clients were told of their jobs."""

    jobs: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    states: dict[str, str] = field(default_factory=dict)
    lost: int = 0


class Receiver:
    """Takes webhooks and counts them by job and by id; refuses a signature that is not right.

    Every tenth delivery is answered with 500 the first time, as a receiver that has a fault does.
    """

    def __init__(self, secret: str) -> None:
        self.by_job: Counter[str] = Counter()
        self.ids: dict[str, set[str]] = {}
        self.forged = self.turned_away = self.cut = 0
        self._webhook, self._guard, self._seen = Webhook(secret), threading.Lock(), 0

    @contextmanager
    def listening(self) -> Iterator[str]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:  # its sender was killed while it sent
                    receiver.cut += 1
                    return
                self.send_response(receiver.take(dict(self.headers.items()), body))
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                del format, args

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/hook"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        lower = {name.lower(): value for name, value in headers.items()}
        with self._guard:
            try:
                event = self._webhook.verify(body, lower)
            except WebhookVerificationError:
                self.forged += 1
                return 401
            self._seen += 1
            if self._seen % 10 == 0:
                self.turned_away += 1
                return 500
            job_id = str(event["data"]["id"])
            self.by_job[job_id] += 1
            self.ids.setdefault(job_id, set()).add(lower["webhook-id"])
            return 204


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--real", action="store_true", help="the real engine")
    arguments = parser.parse_args()
    engine = "engine:Obedient" if arguments.real else "colours:Sleeping"
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    environment = {
        "REELWORD_WEBHOOK_SECRETS": secret,
        "REELWORD_WEBHOOK_HOSTS": "127.0.0.1",
        "REELWORD_MAX_BACKLOG": "10000",
    }
    receiver = Receiver(secret)
    with tempfile.TemporaryDirectory(prefix="reelword-soak-") as name, receiver.listening() as hook:
        service = Deployment(Path(name), f"benchmarks.crash.{engine}", environment=environment)
        try:
            findings = list(soak(service, receiver, hook, arguments.jobs))
        finally:
            service.stop()
    show([("soak", findings)])
    broken = sum(not finding.is_kept for finding in findings)
    print(f"{broken} promises broken" if broken else "all promises kept: one end and one webhook each")
    return 1 if broken else 0


def soak(service: Deployment, receiver: Receiver, hook: str, count: int) -> Iterator[Finding]:
    """Sends ``count`` jobs under kills, and yields what came of it."""
    yield seconds("it starts", service.start())
    answers, timed, began = Told(), Timed(service), time.monotonic()
    with Killer(service, answers.jobs) as killer, timed:
        asyncio.run(send_all(service, hook, count, answers))
    yield seconds(f"{count} jobs are over", time.monotonic() - began)
    yield Finding("processes killed meanwhile", sum(killer.kills.values()), least=1)
    for victim, kills in sorted(killer.kills.items()):
        yield Finding(f"  {victim}", kills)
    yield from _ends(service, answers, count, timed, killer)
    yield from _webhooks(service, receiver, answers, killer.kills[API])
    yield from timed.findings()


async def send_all(service: Deployment, hook: str, count: int, told: Told) -> None:
    """Sends all jobs and follows each to its end."""
    chance, gate = random.Random(SEED), asyncio.Semaphore(SENDERS)
    clips = ["slow" if chance.random() < SLOW_SHARE else "plain" for _ in range(count)]
    async with AsyncClient(service.address, attempts=30) as client, asyncio.TaskGroup() as tasks:
        for clip in clips:
            tasks.create_task(_follow(client, gate, service.clip(clip), hook, told))


async def _follow(client: AsyncClient, gate: asyncio.Semaphore, clip: Path, hook: str, told: Told) -> None:
    async with gate:
        job = await client.submit(clip, webhook=hook)
    told.jobs.append(job.id)
    async for event in client.events(job):
        told.lost += event.kind == "lost"
        if event.kind == "end":
            told.ends[job.id] += 1
            told.states[job.id] = event.data["state"]


def _ends(service: Deployment, told: Told, count: int, timed: Timed, killer: Killer) -> Iterator[Finding]:
    failures = {job: killer.met[job] for job, state in told.states.items() if state != "succeeded"}
    for job, kills in failures.items():
        print(f"{job} met {kills} kills at work: {(service.job(job) or {}).get('error')}")
    different = len(set(told.jobs))
    yield Finding("jobs", different, limit=count, least=count)
    yield Finding(
        "  whose client was told of one end", sum(told.ends[job] == 1 for job in told.jobs), least=count
    )
    yield Finding("  that succeeded", len(told.states) - len(failures), least=count - len(failures))
    yield Finding(f"  that failed, {ATTEMPTS} kills met them at work", len(failures))
    yield Finding("  that failed after fewer", sum(n < ATTEMPTS for n in failures.values()), limit=0)
    yield Finding(
        "  whose success was written twice", sum(n > 1 for n in service.successes().values()), limit=0
    )
    yield Finding("  with events that were gone", told.lost, limit=0)
    kept = {str(job["id"]) for job in _listed(service)}
    yield Finding(
        "  that nobody sent, in the list", len(kept - {*told.jobs, *timed.jobs}), limit=timed.unanswered
    )


def _listed(service: Deployment) -> Iterator[dict[str, object]]:
    cursor: str | None = None
    while True:
        answer = service.ask("/jobs", params={"limit": 200} | ({"cursor": cursor} if cursor else {}))
        if answer is None:
            raise GaveUp("the list of jobs was not answered")
        page = answer.json()
        yield from page["jobs"]
        cursor = page["next"]
        if cursor is None:
            return


def _webhooks(service: Deployment, receiver: Receiver, told: Told, api_kills: int) -> Iterator[Finding]:
    try:
        settled = service.wait(lambda: len(receiver.by_job) >= len(told.jobs), SETTLE_SECONDS)
    except GaveUp:
        settled = SETTLE_SECONDS
    yield seconds("the last webhook comes after the last end within", settled)
    yield Finding("  jobs that a webhook told of", len(receiver.by_job), least=len(told.jobs))
    yield Finding(
        "  with more than one webhook-id", sum(len(ids) > 1 for ids in receiver.ids.values()), limit=0
    )
    # An API that is killed between sending and noting it sends again, under the same id.
    yield Finding("  delivered again under the same id", sum(n > 1 for n in receiver.by_job.values()))
    yield Finding("  turned away once by the receiver", receiver.turned_away)
    yield Finding("  cut off, their sender killed", receiver.cut, limit=api_kills * DELIVERIES_AT_ONCE)
    yield Finding("  with a wrong signature", receiver.forged, limit=0)


class Killer:
    """Kills one of the service's processes now and then, in a thread, and notes what it met at work."""

    def __init__(self, service: Deployment, jobs: Sequence[str]) -> None:
        self.kills: Counter[str] = Counter()
        self.met: Counter[str] = Counter()  #: kills by job
        self._service, self._stop, self._chance = service, threading.Event(), random.Random(SEED)
        self._jobs = jobs  # those sent so far
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(KILL_EVERY):
            victim = self._chance.choice(VICTIMS)
            pids = self._service.pids(victim)
            if pids and self._is_half_there():
                self._kill(victim, self._chance.choice(pids))

    def _is_half_there(self) -> bool:
        """Returns whether a busy machine has come so far since the last kills; else no job ever ended."""
        answer = self._service.ask("/readyz")
        return answer is not None and answer.status_code == 200 and answer.json()["workers"] >= WORKERS / 2

    def _kill(self, victim: str, pid: int) -> None:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.suspend()  # what it works on is read first
            if victim != API:
                worker = pid if victim == WORKER else process.ppid()
                self.met.update(self._at_work(worker, ("extract", "caption") if victim == ENGINE else None))
            process.kill()
            self.kills[victim] += 1

    def _at_work(self, worker: int, stages: Sequence[str] | None) -> list[str]:
        """Lists the jobs that a worker's children work on, in these stages or any, by their records."""
        jobs = list(self._jobs)
        with self._service.redis() as client:
            records = [client.hmget(f"reelword:job:{job}", "worker", "working", "stage") for job in jobs]
        return [
            job
            for job, (name, working, stage) in zip(jobs, records, strict=True)
            if f"-{worker}-" in (name or "") and working == "1" and (stages is None or stage in stages)
        ]


class Timed:
    """Times requests beside everything else, in a thread: the list of captioners, and small uploads."""

    def __init__(self, service: Deployment) -> None:
        self._service, self._stop = service, threading.Event()
        self.jobs: list[str] = []
        self.unanswered = 0
        self._spent: dict[str, list[float]] = {"GET /models": [], "POST /caption": []}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Timed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def findings(self) -> Iterator[Finding]:
        for what, spent in self._spent.items():
            yield seconds(f"{what} meanwhile, median of {len(spent)}", statistics.median(spent))
            yield seconds("  p99", percentile(spent, 0.99))

    def _run(self) -> None:
        clip = self._service.clip("plain").read_bytes()
        with httpx.Client(base_url=self._service.address, timeout=30) as client:
            while not self._stop.wait(0.1):
                self._time("GET /models", lambda: client.get("/models"))
                self._time("POST /caption", lambda: client.post("/caption", files={"video": clip}))

    def _time(self, what: str, ask: Callable[[], httpx.Response]) -> None:
        """Notes how long an answer took; what a killed API did not answer may be a job all the same."""
        began = time.monotonic()
        try:
            answer = ask()
        except httpx.HTTPError:
            self.unanswered += 1
            return
        if answer.status_code == 202:
            self.jobs.append(str(answer.json()["id"]))
        if answer.is_success:
            self._spent[what].append(time.monotonic() - began)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


if __name__ == "__main__":
    sys.exit(main())
