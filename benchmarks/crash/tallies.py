"""What is counted at the end: every job has the end that it should have, once, and nothing is left over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from benchmarks.crash.deployment import COLLECTED_SECONDS, SWEEP_SECONDS, Deployment, GaveUp
from benchmarks.crash.findings import Finding, seconds
from benchmarks.crash.kills import count_living


def jobs(service: Deployment) -> Iterator[Finding]:
    states = {job_id: (service.job(job_id) or {"state": "lost"})["state"] for job_id in service.expected}
    wrong = [job_id for job_id, state in states.items() if state != service.expected[job_id]]
    successes = service.successes()
    yield Finding("jobs accepted", len(states))
    for state, count in sorted(Counter(states.values()).items()):
        yield Finding(f"  {state}", count)
    yield Finding("  that did not end as they should", len(wrong), limit=0)
    yield Finding("  that succeeded twice", sum(count > 1 for count in successes.values()), limit=0)
    waiting = next(
        line.split()[-1]
        for line in (service.ask("/metrics") or GaveUp).text.splitlines()  # type: ignore[union-attr]
        if line.startswith("reelword_jobs_waiting ")
    )
    yield Finding("  that still wait", float(waiting), limit=0)


def leftovers(service: Deployment) -> Iterator[Finding]:
    """Of a service that runs on: collected without a restart. An upload is kept as long as its result."""
    with_result = {job_id for job_id, end in service.expected.items() if end == "succeeded"}

    def odd_uploads() -> set[str]:
        return set(service.names("blobs/uploads")) ^ with_result

    def are_collected() -> bool:
        return not service.names("staging") and not odd_uploads()

    yield seconds("what nobody needs is gone after", wait(service, are_collected), COLLECTED_SECONDS)
    yield Finding("  staged files left", len(service.names("staging")), limit=0)
    yield Finding("  uploads too many or too few", len(odd_uploads()), limit=0)
    odd = set(service.names("blobs/results")) ^ with_result
    yield Finding("  result folders too many or too few", len(odd), limit=0)


def flushed(service: Deployment) -> Iterator[Finding]:
    """Somebody empties Redis: the results of jobs that nobody can ask for any more go too."""
    yield Finding("result folders", len(service.names("blobs/results")), least=1)
    with service.redis() as client:
        client.flushall()

    def left() -> int:
        return len(service.names("blobs/results")) + len(service.names("blobs/uploads"))

    yield seconds("  and kept uploads, gone after", wait(service, lambda: not left()), 5 * SWEEP_SECONDS)
    yield Finding("  left", left(), limit=0)


def stopped(service: Deployment) -> Iterator[Finding]:
    began = time.monotonic()
    everyone = service.stop()
    yield seconds("it stops within", time.monotonic() - began, 25.0)
    yield Finding("processes left", count_living(everyone), limit=0)


def wait(service: Deployment, condition: object) -> float:
    """Seconds until it holds, or all that were given to it."""
    try:
        return service.wait(condition, COLLECTED_SECONDS + 5)  # type: ignore[arg-type]
    except GaveUp:
        return COLLECTED_SECONDS + 5
