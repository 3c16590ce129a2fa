"""Trials in which Redis or the disk is away, frozen or full."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import httpx

from benchmarks.crash.deployment import MIB, Deployment
from benchmarks.crash.findings import Finding, seconds
from benchmarks.crash.kills import most_attempts

FROZEN_SECONDS = 8.0  #: less than a lease, so that no job is taken for an orphan
FULL_SECONDS = 8.0
SMALL_DISK = 512 * MIB  #: a larger disk is not filled: that would be somebody's own


def redis_killed(service: Deployment) -> Iterator[Finding]:
    ids = [service.submit("slow") for _ in range(3)]
    service.wait_until_at_work(ids[0])
    workers = service.pids("app worker")
    pid = service.redis_pid
    os.kill(pid, signal.SIGKILL)
    again = service.wait(lambda: service.pids("redis.sock") not in ([], [pid]) and answers(service))
    yield seconds("jobs can be read again after", again, 5.0)
    yield seconds("  three jobs are done after", service.wait_for_all(ids))
    lost = len(set(workers) - set(service.pids("app worker")))
    yield Finding("  workers that did not live through it", lost, limit=0)
    yield Finding("  attempts that the jobs needed, at most", most_attempts(service, ids), limit=1)


def answers(service: Deployment) -> bool:
    answer = service.ask("/models")
    return answer is not None and answer.status_code == 200


def redis_frozen(service: Deployment) -> Iterator[Finding]:
    ids = [service.submit("slow") for _ in range(3)]
    service.wait_until_at_work(ids[0])
    workers, pid = service.pids("app worker"), service.redis_pid
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    requests = {
        "GET /jobs/{id}": lambda: service.ask(f"/jobs/{ids[0]}"),
        "GET /readyz": lambda: service.ask("/readyz"),
        "POST /caption": lambda: service.post("plain"),
    }
    findings = [told_to_come_back(name, ask) for name, ask in requests.items()]
    time.sleep(max(0.0, FROZEN_SECONDS - (time.monotonic() - began)))
    os.kill(pid, signal.SIGCONT)
    for pair in findings:
        yield from pair
    yield seconds(f"frozen for {FROZEN_SECONDS:g} s: jobs are done after", service.wait_for_all(ids))
    lost = len(set(workers) - set(service.pids("app worker")))
    yield Finding("  workers that did not live through it", lost, limit=0)


def told_to_come_back(name: str, ask: Callable[[], httpx.Response | None]) -> tuple[Finding, Finding]:
    """How long the answer took, and whether it is a 503 that says when to ask again."""
    began = time.monotonic()
    answer = ask()
    took = time.monotonic() - began
    is_told = answer is not None and answer.status_code == 503 and "retry-after" in answer.headers
    return seconds(f"{name} is answered within", took, 3.0), Finding(
        "  with 503 and Retry-After", is_told, least=1
    )


def redis_full(service: Deployment) -> Iterator[Finding]:
    """Its memory is: it takes no job, and those in hand end all the same."""
    ids = [service.submit("slow") for _ in range(6)]
    service.wait_until_at_work(ids[0])
    with service.redis() as client:
        client.config_set("maxmemory", 1)
        refused = service.post("plain")
        is_refused = refused is not None and refused.status_code == 503
        yield Finding("an upload is answered with 503", is_refused, least=1)
        yield seconds("jobs in hand and waiting are done after", service.wait_for_all(ids))
        client.config_set("maxmemory", 0)
    service.wait(service.is_whole)
    yield seconds("room again: a job is done after", service.wait_for_all([service.submit("plain")]))
    yield Finding("  attempts that the jobs needed, at most", most_attempts(service, ids), limit=1)


def disk_full(service: Deployment) -> Iterator[Finding]:
    """All of it, by somebody else, and at once: more than any floor can prevent."""
    if service.free() > SMALL_DISK:
        yield Finding("left out: no small disk can be mounted here (that takes root)", 0)
        return
    earlier = service.submit("plain")
    service.wait_for_all([earlier])
    workers = service.pids("app worker")
    fill(service, leave=32 * MIB)
    is_refused = status(service.post("plain")) == 507
    yield Finding("less free than the floor: an upload is answered with 507", is_refused, least=1)
    fill(service, leave=0)  # Redis may have to start again, and is waited for with 503 then
    began, away, codes = time.monotonic(), 0.0, set()
    while time.monotonic() - began < FULL_SECONDS:
        codes.add(status(service.post("plain")))
        if service.job(earlier) is None:
            away = time.monotonic() - began
        time.sleep(0.2)
    odd = codes - {507, 503}
    yield Finding(
        f"nothing free: uploads answered otherwise than with 507, or 503 {sorted(odd) or ''}".strip(),
        len(odd),
        limit=0,
    )
    yield seconds("  jobs cannot be read for", away, 5.0)
    (service.data / "filler").unlink()
    began = time.monotonic()
    service.wait(lambda: status(service.ask("/readyz")) == 200)
    yield seconds("room again: a job is done after", service.wait_for_all([submit_soon(service)]), 30.0)
    lost = len(set(workers) - set(service.pids("app worker")))
    yield Finding("  workers that did not live through it", lost, limit=0)


def fill(service: Deployment, leave: int) -> None:
    """Writes a file until so much is free."""
    with (service.data / "filler").open("ab") as file:
        while (free := service.free() - leave) > 0:
            try:
                file.write(bytes(min(free, MIB)))
                file.flush()
            except OSError:
                return


def status(answer: httpx.Response | None) -> int:
    return 0 if answer is None else answer.status_code


def submit_soon(service: Deployment) -> str:
    """A job as a client sends it that was told to come back."""
    accepted: list[httpx.Response] = []

    def is_taken() -> bool:
        answer = service.post("plain")
        if answer is not None and answer.status_code == 202:
            accepted.append(answer)
        return bool(accepted)

    service.wait(is_taken, 20)
    return service.note(accepted[0])
