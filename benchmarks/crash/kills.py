"""Trials in which processes are killed: each of the service's, and all at once."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import psutil

from benchmarks.crash.deployment import OVER, WORKERS, Deployment, command_of
from benchmarks.crash.findings import Finding, seconds

AT_ONCE = 5.0  #: half of a lease: enough where others compute, and no lease has lapsed by then
LOOK_SECONDS = (
    1.0  #: a worker looks for orphans twice a second: what it takes sooner after a lapse is no fault
)
HALF_UPLOADS = 25
IN_HAND = 8  #: jobs of a worker whose engine is busy: a batch, and one that is read ahead
#: A worker that is told to go has 5 s for the jobs in hand, and waits up to 30 s for a Redis that is away.
LEAVE_SECONDS = 40.0


def plain_jobs(service: Deployment) -> Iterator[Finding]:
    yield seconds(f"Redis, {WORKERS} workers and the API start, models loaded", service.start())
    totals = []
    for _ in range(5):
        job_id = service.submit("plain")
        service.wait_for_all([job_id])
        totals.append((service.job(job_id) or {})["timings"]["total"])
    yield seconds("a job on an idle worker, median of 5", statistics.median(totals))


def worker_killed(service: Deployment) -> Iterator[Finding]:
    """All workers hold batches of long jobs, more wait: those of the killed one go before all that wait."""
    ids = [service.submit("slow") for _ in range(WORKERS)]
    service.wait(lambda: all(service.record(job_id)["state"] == "running" for job_id in ids))
    ids += [service.submit("slow") for _ in range(6 * WORKERS)]
    victim = worker_with_a_batch(service, ids)
    os.kill(victim, signal.SIGSTOP)  # others take its jobs as soon as it is dead
    orphans = held_by(service, ids, victim)
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    # zero where the supervisor has released them already
    lapse = max(int(service.record(job_id)["lease"]) / 1000 for job_id in orphans) or service.redis_now()
    restarts: dict[str, tuple[float, float]] = {}
    while len(restarts) < len(orphans):
        for job_id in set(orphans) - set(restarts):
            # not by its attempt, which is the same where it only waited
            if f"-{victim}-" not in service.record(job_id)["last_worker"]:
                restarts[job_id] = (time.monotonic() - killed, service.redis_now())
        if time.monotonic() - killed > 120:
            break
        time.sleep(0.02)
    yield Finding("jobs that the killed worker held", len(orphans), least=2)
    yield Finding("  of them running again", len(restarts), least=len(orphans))
    slowest = max((after for after, _ in restarts.values()), default=120.0)
    yield seconds("  the last of them runs again after", slowest, 15.0)
    ahead = went_ahead(service, ids, lapse, max((now for _, now in restarts.values()), default=0.0))
    yield Finding("  waiting jobs that went before one of them", ahead, limit=0)
    yield seconds("  all jobs are done after", service.wait_for_all(ids) + slowest)
    service.wait(service.is_whole)


def worker_with_a_batch(service: Deployment, ids: Sequence[str]) -> int:
    """The process that holds most of these jobs, once one holds several."""
    counts: Counter[int] = Counter()

    def is_there() -> bool:
        records = [service.record(job_id) for job_id in ids]
        names = [
            record["worker"] for record in records if record["state"] == "running" and "worker" in record
        ]
        counts.clear()
        counts.update(int(name.rsplit("-", 2)[1]) for name in names)
        return max(counts.values(), default=0) > 1

    service.wait(is_there, 30)
    return counts.most_common(1)[0][0]


def held_by(service: Deployment, ids: Sequence[str], worker: int) -> list[str]:
    records = {job_id: service.record(job_id) for job_id in ids}
    return [
        job_id
        for job_id, record in records.items()
        if record["state"] == "running" and f"-{worker}-" in record.get("worker", "")
    ]


def went_ahead(service: Deployment, ids: Sequence[str], lapse: float, last: float) -> int:
    """Jobs first started, on Redis's clock, while an orphan lay there to be taken."""
    starts = [float(service.record(job_id).get("started_at") or "inf") for job_id in ids]
    return sum(lapse + LOOK_SECONDS < start < last - 0.1 for start in starts)


def engine_killed(service: Deployment) -> Iterator[Finding]:
    job_id = service.submit("slow")
    service.wait_until_at_work(job_id)
    (engine,) = service.pids("app.worker.engine.child", service.worker_pid(job_id))
    os.kill(engine, signal.SIGKILL)
    again = service.wait(lambda: service.record(job_id)["attempt"] == "2")  # whatever HTTP takes meanwhile
    yield seconds("its job is on its next attempt after", again, AT_ONCE)
    yield seconds("  and is done, models loaded again, after", again + service.wait_for_all([job_id]))


def decoder_killed(service: Deployment) -> Iterator[Finding]:
    """Decoders are stopped first: a clip is read too fast to be caught at it."""
    decoders = service.pids("extractors.decoder.child")
    yield Finding("decoders", len(decoders), least=WORKERS)
    for pid in decoders:
        os.kill(pid, signal.SIGSTOP)
    job_id = service.submit("plain")
    service.wait_for(job_id, lambda job: job["state"] == "running" and job["stage"] == "decode")
    mine = service.pids("extractors.decoder.child", service.worker_pid(job_id))
    for pid in decoders:
        os.kill(pid, signal.SIGKILL if pid in mine else signal.SIGCONT)
    again = service.wait(lambda: service.record(job_id)["attempt"] == "2")  # whatever HTTP takes meanwhile
    yield seconds("its job is on its next attempt after", again, AT_ONCE)
    yield seconds("  and is done after", again + service.wait_for_all([job_id]))


def api_killed(service: Deployment) -> Iterator[Finding]:
    """While jobs run and uploads are half sent; three times, as a fault seldom comes alone."""
    ids = [service.submit("slow") for _ in range(WORKERS)]
    service.wait_until_at_work(ids[0])
    with ExitStack() as stack:
        for _ in range(HALF_UPLOADS):
            stack.enter_context(half_upload(service))
        service.wait(lambda: len(service.names("staging")) >= HALF_UPLOADS)
        away = [kill_api(service) for _ in range(3)]
    yield Finding("half-sent uploads that it leaves", len(service.names("staging")), least=1)
    yield seconds("the next one is started after, at most of 3 kills", max(began for began, _ in away), 2.0)
    yield seconds("  and answers after (0.9 s where the machine is idle)", max(after for _, after in away))
    yield seconds("  the jobs of that time are done after", service.wait_for_all(ids))
    yield Finding("  attempts that they needed, at most", most_attempts(service, ids), limit=1)


def kill_api(service: Deployment) -> tuple[float, float]:
    """Seconds until the next one is started, and until it answers."""
    (api,) = service.pids("app api")
    os.kill(api, signal.SIGKILL)
    began = time.monotonic()
    service.wait(lambda: service.pids("app api") not in ([], [api]))
    started = time.monotonic() - began
    service.wait(lambda: service.ask("/livez") is not None)
    return started, time.monotonic() - began


def half_upload(service: Deployment) -> socket.socket:
    """A connection on which the first of two megabytes of a video has been sent."""
    host, _, port = service.address.removeprefix("http://").rpartition(":")
    client = socket.create_connection((host, int(port)))
    part = b'--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'
    head = (
        f"POST /caption HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {2 * 2**20}\r\n\r\n"
    )
    client.sendall(head.encode() + part + bytes(2**20))
    return client


def poison(service: Deployment) -> Iterator[Finding]:
    job_id = service.submit("poison", ends="failed")
    others = [service.submit("plain") for _ in range(5)]
    yield seconds("a job that kills its engine each time has failed after", service.wait_for_all([job_id]))
    job = service.job(job_id) or {}
    yield Finding("  attempts that it had", job["attempt"], limit=3, least=3)
    yield Finding("  failed as engine_crashed", (job["error"] or {}).get("code") == "engine_crashed", least=1)
    yield seconds("  five jobs sent with it are done after", service.wait_for_all(others))
    yield Finding("  attempts that they needed, at most", most_attempts(service, others), limit=1)
    service.wait(service.is_whole)


def poison_among_eight(service: Deployment) -> Iterator[Finding]:
    """Engines are stopped first: until they go on, each worker reads ahead as much as it may."""
    engines = service.pids("app.worker.engine.child")
    for pid in engines:
        os.kill(pid, signal.SIGSTOP)
    others = [service.submit("plain") for _ in range(2 * WORKERS)]
    poisoned = service.submit("poison", ends="failed")
    others += [service.submit("plain") for _ in range(IN_HAND * WORKERS - len(others) - 1)]
    service.wait(lambda: service.record(poisoned)["state"] == "running")
    worker = service.worker_pid(poisoned)
    service.wait(lambda: len(held_by(service, [*others, poisoned], worker)) >= IN_HAND)
    most = len(held_by(service, [*others, poisoned], worker))
    for pid in engines:
        os.kill(pid, signal.SIGCONT)
    yield Finding("jobs that its worker has in hand", most, limit=IN_HAND, least=IN_HAND)
    yield seconds("a job that kills its engine each time has failed after", service.wait_for_all([poisoned]))
    job = service.job(poisoned) or {}
    yield Finding("  attempts that it had", job["attempt"], limit=3, least=3)
    yield Finding("  failed as engine_crashed", (job["error"] or {}).get("code") == "engine_crashed", least=1)
    yield seconds("  all others are done after", service.wait_for_all(others))
    yield Finding("  attempts that they needed, at most", most_attempts(service, others), limit=1)
    service.wait(service.is_whole)


def cancel(service: Deployment) -> Iterator[Finding]:
    running = service.submit("slow", "canceled")
    service.wait_until_at_work(running)
    service.ask(f"/jobs/{running}", "DELETE")
    yield seconds("canceling a running job takes", service.wait_for_all([running]), 2.0)
    next_one = service.submit("plain")
    yield seconds("  the next job is done after", service.wait_for_all([next_one]))


def everything_killed(service: Deployment) -> Iterator[Finding]:
    """``serve`` is killed and started again; what the first one started leaves by itself."""
    ids = [service.submit("slow"), *(service.submit("plain") for _ in range(9))]
    service.wait_until_at_work(ids[0])
    everyone, killed = service.kill(), time.monotonic()
    service.start()
    service.wait_for_all(ids)
    yield seconds("started again: 10 accepted jobs are done after", time.monotonic() - killed)
    while count_living(everyone) and time.monotonic() - killed < LEAVE_SECONDS:
        time.sleep(0.1)
    yield Finding(f"  processes of before left after {LEAVE_SECONDS:g} s", count_living(everyone), limit=0)


def count_living(processes: Sequence[psutil.Process]) -> int:
    return sum(bool(command_of(process)) for process in processes)


def most_attempts(service: Deployment, ids: Sequence[str]) -> int:
    return max(int(service.record(job_id)["attempt"]) for job_id in ids)


def are_over(service: Deployment, ids: Sequence[str]) -> bool:
    return all(service.record(job_id)["state"] in OVER for job_id in ids)
