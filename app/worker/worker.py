"""Takes jobs from the queue and has child processes do them.

This process loads no model and opens no media. It owns decoders (media is hostile) and an engine (native
code can crash or hang), and can lose each without losing a job: app/worker/job_runner.py says how. Threads
beside take jobs (app/worker/intake.py), read their videos ahead of the engine
(app/worker/reading/read_ahead.py), and keep the leases and end what is canceled or out of time
(app/worker/watchdog.py). Asked to stop, it takes nothing new, gives the jobs in hand a moment to finish and
hands the others back.
"""

import os
import signal
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import redis
import structlog

from app import __version__
from app.errors import EngineStartFailed, QueueUnavailable, RecordUnreadable
from app.feature_cache.feature_cache import FeatureCache
from app.jobs.blobs import Blobs
from app.jobs.job import Keys
from app.jobs.job_store import Jobs
from app.jobs.keeping.sweeper import Sweeper
from app.jobs.queue import Queue, worker_prefix
from app.jobs.redis_client import connect, redis_url
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from app.search.searches import Searches
from app.settings import Settings
from app.tracing.connection import connect_tracing
from app.worker.engine.process import EngineProcess
from app.worker.intake import UNEXPECTED_PAUSE, Intake
from app.worker.job_runner import JobRunner
from app.worker.job_searches import JobSearches
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder

LATE_SECONDS = 60.0  #: in which features may still be kept of a file whose result is gone
PATIENCE = 30.0  #: seconds of trying again while Redis is away: a result is worth the wait
BRIEF_PATIENCE = 2.0  #: the same for what comes round again anyway, and must notice a signal to stop
TURN_SECONDS = 0.25  #: between two looks whether to stop, or whether the engine has died of itself
log = structlog.get_logger(__name__)


class Worker:
    """Runs jobs until ``stop``. Its children are started by, and end with, the thread that calls ``run``."""

    def __init__(self, settings: Settings, engine: EngineProcess) -> None:
        self.name = f"{worker_prefix(os.getpid())}-{uuid.uuid4().hex[:6]}"
        self._settings = settings
        url, keys = redis_url(settings), Keys(settings.namespace)
        brief = connect(url, BRIEF_PATIENCE)
        self._jobs = Jobs.from_settings(connect(url, PATIENCE), settings)
        self._queue = Queue(
            brief, self.name, lease=settings.lease_seconds, attempts=settings.attempts, keys=keys
        )
        self._registry = WorkerRegistry(brief, keys)
        self._blobs = Blobs(settings.blob_url, settings.staging)
        self._features = FeatureCache(settings, self._blobs)
        self._engine = engine
        self._decoders = [Decoder(settings.decoder) for _ in range(settings.decoder_count)]
        self._brief_jobs = Jobs.from_settings(brief, settings)
        self._sweeper = Sweeper(self._brief_jobs, self._blobs, settings, self._sweep_features)
        self._watch = Watchdog(self._brief_jobs, settings, self._advertise, self._touch_ready_file)
        self._tracing = connect_tracing(settings, "worker", self.name)
        self._runner = JobRunner(
            self._jobs, self._blobs, self._decoders, self._engine, self._watch, settings, self._tracing
        )
        self._intake = Intake(self._jobs, self._queue, self._blobs, self._runner, settings, self.name)
        self._searches = JobSearches(Searches(brief, keys), self._brief_jobs, self._blobs, engine)
        self._started_at = time.time()
        self._forgotten_at = 0.0
        self._is_stopping = False

    def run(self) -> None:
        """Runs jobs. Raises EngineStartFailed, and QueueUnavailable where Redis is not there at the start."""
        try:
            self._run()
        except EngineStartFailed:
            if not self._is_stopping:  # else it was ended while it loaded
                raise
        log.info("worker stopped", worker=self.name)

    def _run(self) -> None:
        self._queue.open()
        with self._runner, self._engine, self._watch, self._sweeper:
            self._runner.start()
            self._advertise()
            log.info("worker ready", worker=self.name)
            self._work_until_stopped()
        self._sign_off()
        self._tracing.close()

    def _sign_off(self) -> None:
        try:
            self._registry.withdraw(self.name)
            self._queue.close()
        except QueueUnavailable as error:  # the list and the group forget this worker by themselves
            log.info("redis is away", reason=str(error))

    def stop(self) -> None:
        """Takes no more jobs, and leaves none behind. May be called from a signal handler."""
        self._is_stopping = True
        self._intake.stop()
        self._runner.leave()
        self._watch.leave(within=self._settings.drain_seconds)
        if not self._engine.is_ready or self._intake.is_idle:  # it loads, or measures between jobs
            self._engine.kill()

    def _work_until_stopped(self) -> None:
        self._intake.start()
        try:
            while not (self._intake.is_over and not self._runner.hand):
                self._turn()
        finally:
            self._intake.stop()
            self._intake.join()
            if self._runner.hand:
                self._runner.hand_back_all()

    def _turn(self) -> None:
        try:
            self._runner.turn(TURN_SECONDS)
            self._searches.answer_next()
            if self._intake.is_idle and not self._is_stopping:
                self._engine.measure_next()
                self._advertise()
                self._intake.go_on()
        except QueueUnavailable as error:
            log.warning("redis is away", reason=str(error))
        except (redis.RedisError, RecordUnreadable):  # its jobs run again once their leases lapse
            log.exception("redis gave an unexpected answer; the worker continues")
            time.sleep(UNEXPECTED_PAUSE)

    def _sweep_features(self) -> None:
        """Forgets the features of files whose results have gone, and those beyond their time and room."""
        # Another process may have kept some of a file a moment after its job's result was deleted.
        forgotten, now = self._brief_jobs.forgotten_since(self._forgotten_at - LATE_SECONDS)
        for sha256 in forgotten:
            self._features.forget(sha256)
        self._forgotten_at = now
        self._features.trim()

    def _advertise(self) -> None:
        info = self._engine.info
        self._registry.advertise(
            WorkerInfo(
                name=self.name,
                pid=os.getpid(),
                host=socket.gethostname(),
                version=__version__,
                is_ready=self._engine.is_ready and not self._is_stopping,
                device=info.device if info else "",
                started_at=self._started_at,
                captioners=list(info.captioners) if info else [],
                default=info.default if info else None,
                engine_restarts=max(0, self._engine.starts - 1),
                engine_started_at=self._engine.started_at if self._engine.is_alive else None,
                memory=self._memory(),
            )
        )

    def _touch_ready_file(self) -> None:
        """Shows health checks, which look at the file's age, that this process lives and can work."""
        if self._settings.ready_file is not None and self._engine.is_ready and not self._is_stopping:
            self._settings.ready_file.touch()

    def _memory(self) -> dict[str, int]:
        """Reads the bytes in RAM of this process and its children."""
        processes: Mapping[str, Sequence[int | None]] = {
            "worker": [os.getpid()],
            "decoder": [decoder.pid for decoder in self._decoders],
            "engine": [self._engine.pid],
        }
        sizes_by_name = {
            name: [size for pid in pids if pid is not None and (size := resident_bytes(pid)) is not None]
            for name, pids in processes.items()
        }
        return {name: sum(sizes) for name, sizes in sizes_by_name.items() if sizes}


def resident_bytes(pid: int) -> int | None:
    """Reads how much of a process lies in RAM; None where that cannot be read, or the process is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def work(settings: Settings, engine: EngineProcess) -> None:
    """Runs one worker with its engine until SIGTERM or Ctrl-C. Raises leaves of StartError."""
    worker = Worker(settings, engine)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
