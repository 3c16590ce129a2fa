"""Runs Redis, workers and the API on one machine until Ctrl-C: ``make serve``.

    serve ─┬─ Redis    embedded, unless REDIS_URL names one; ends last
           ├─ worker   REELWORD_WORKERS of them, each with its decoders and its engine
           └─ api      says that it is ready once Redis answers and a worker has loaded its models

A process that ends is started again. All end with this one, even where it is killed.
"""

import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from contextlib import nullcontext

import redis
import structlog

from app import logs
from app.errors import PortInUse, QueueUnavailable, RedisFailed
from app.jobs.job import Keys
from app.jobs.queue import release_dead_worker, waiting, worker_prefix
from app.jobs.redis_client import connect
from app.jobs.worker_registry import WorkerRegistry
from app.serve.address import announce_address
from app.serve.embedded_redis import RedisServer
from app.serve.supervised_process import Backoff, SupervisedProcess
from app.settings import Settings
from app.terminal import advice_on_names, own_command

LOOK_SECONDS = 0.2
REDIS_PAUSE = 2.0  #: longest pause before Redis is started again: without it nothing works
ANSWER_SECONDS = 1.0  #: longest silence of a Redis that is asked whether all is ready
REMIND_SECONDS = 10.0  #: how often it is said what is waited for
#: What listens on any address is reached by this one.
ON_THIS_MACHINE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
STOP_SECONDS = 15.0  #: beyond the workers' drain time, before what still runs is killed

log = structlog.get_logger(__name__)


def serve(settings: Settings) -> None:
    """Runs everything until SIGTERM or Ctrl-C. Raises leaves of StartError where it cannot begin."""
    logs.configure_logs(settings, process="serve")
    os.umask(0o077)  # Redis's file has all that was sent but the videos: it is this user's alone
    port = free_port(settings.host, settings.port)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    embedded = None if settings.redis_url else RedisServer(settings.redis_folder, settings.redis_bytes)
    address = announce_address(settings.data, address_of(settings.host, port))
    with embedded or nullcontext() as server, address:
        Supervisor(settings, port, server).run(over)


def free_port(host: str, port: int) -> int:
    """Checks that the port can be listened on; finds a free one for 0. Raises PortInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUse(f"Nothing can listen on {host}:{port} ({error.strerror}).") from error
        return int(probe.getsockname()[1])


class Supervisor:
    """Starts the workers and the API, and keeps them and the embedded server running.

    Args:
        settings: of all of them.
        port: that the API listens on.
        server: the embedded one, None where REDIS_URL names another.
    """

    def __init__(self, settings: Settings, port: int, server: RedisServer | None) -> None:
        self._settings, self._redis = settings, server
        self._redis_backoff = Backoff(longest=REDIS_PAUSE)
        url = server.url if server else str(settings.redis_url)
        self._client, self._keys = connect(url, 0.5, ANSWER_SECONDS), Keys(settings.namespace)
        self._registry = WorkerRegistry(self._client, self._keys)
        self._address = address_of(settings.host, port)
        environment = {"REDIS_URL": url, "REELWORD_PORT": str(port), "REELWORD_DATA": str(settings.data)}
        if settings.streams is not None:
            environment["REELWORD_STREAMS"] = settings.streams
        program = [sys.executable, "-m", "app"]
        workers = [
            SupervisedProcess("worker", [*program, "worker"], environment, when_dead=self._release)
            for _ in range(settings.workers)
        ]
        self._processes = [*workers, SupervisedProcess("api", [*program, "api"], environment)]

    def run(self, over: threading.Event) -> None:
        """Keeps all running until ``over`` is set."""
        log.info("starting", redis="embedded" if self._redis else "REDIS_URL", data=str(self._settings.data))
        starting = StartReport()
        try:
            while not over.wait(LOOK_SECONDS):
                self._tick()
                if not starting.is_over and starting.note_missing(self._missing()) is None:
                    keys = own_command("keys add NAME", self._settings)
                    who = f" for those who have a key: {keys} makes one" if self._settings.needs_key else ""
                    print(f"Reelword is ready at {self._address}{who}", flush=True)
                    if advice := advice_on_names(self._settings):
                        print(advice, flush=True)
        finally:
            self._stop()

    def _tick(self) -> None:
        if self._redis is not None and self._redis.is_running:
            self._redis.tend()
        elif self._redis is not None:
            self._restart_redis(self._redis)
        for process in self._processes:
            process.ensure_running()

    def _release(self, pid: int) -> None:
        """Frees the jobs of a worker that has died; without Redis they wait for its leases to lapse."""
        try:
            count = release_dead_worker(self._client, worker_prefix(pid), self._keys)
        except (QueueUnavailable, redis.RedisError) as error:
            log.info("the dead worker's leases are left to lapse", reason=str(error))
        else:
            log.info("the dead worker's jobs are free", count=count)

    def _restart_redis(self, server: RedisServer) -> None:
        if not self._redis_backoff.is_due:
            return
        log.warning("redis ended", again_in=self._redis_backoff.note_end())
        try:
            server.start()
        except (RedisFailed, OSError) as error:
            log.error("redis does not start", reason=str(error))
        self._redis_backoff.note_start()

    def _missing(self) -> str | None:
        """Finds what is not there yet, in a few words. Redis first: the API's log has better to say."""
        try:
            workers = self._registry.workers()
        except QueueUnavailable:
            return "Redis to answer"
        if not any(worker.is_ready for worker in workers):
            return "a worker to load its models, which takes some seconds, and the first time half a minute"
        try:
            with urllib.request.urlopen(f"{self._address}/readyz", timeout=2) as answer:
                return None if answer.status == 200 else "the API to be ready"
        except OSError:  # urllib's errors are OSErrors
            return "the API to answer"

    def _stop(self) -> None:
        log.info("stopping")
        for process in self._processes:
            process.terminate()
        until = time.monotonic() + self._settings.drain_seconds + STOP_SECONDS
        for process in self._processes:
            process.finish(until)
        print(self._last_words(), flush=True)

    def _last_words(self) -> str:
        """Returns how many jobs continue at the next start; the workers have handed back what they had."""
        try:
            count = waiting(self._client, self._keys)
        except (QueueUnavailable, redis.RedisError):
            return "Reelword has stopped; what waits in Redis goes on when it starts again."
        if not count:
            return "Reelword has stopped; no job waits."
        jobs, go = ("job waits", "goes") if count == 1 else ("jobs wait", "go")
        return f"Reelword has stopped; {count} {jobs}, and {go} on when it starts again."


class StartReport:
    """Logs what a start waits for: whenever that changes, and now and then while it does not."""

    def __init__(self) -> None:
        self.is_over = False
        self._began = time.monotonic()
        self._said: str | None = None
        self._said_at = 0.0

    def note_missing(self, missing: str | None) -> str | None:
        """Notes what is missing; None ends the start."""
        now = time.monotonic()
        self.is_over = missing is None
        if missing is not None and (missing != self._said or now - self._said_at > REMIND_SECONDS):
            log.info(f"waiting for {missing}", seconds=round(now - self._began))
            self._said, self._said_at = missing, now
        return missing


def address_of(host: str, port: int) -> str:
    """Returns the address by which a browser on this machine reaches what listens on ``host``."""
    reachable = ON_THIS_MACHINE.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
