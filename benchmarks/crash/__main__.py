"""Kills, freezes and fills what runs jobs, and says how soon all was well and that nothing was lost.

    python -m benchmarks.crash [--fast]      make crash

``serve`` itself, four workers, the real decoders and engines, through HTTP, on a small disk where one may be
mounted; ``--fast`` takes an engine without models. Exit code 1 where a promise of docs/operate.md is broken.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.crash import kills, outages, tallies
from benchmarks.crash.deployment import Deployment, GaveUp
from benchmarks.crash.findings import Finding, show

DISK_MIB = 400
TRIALS: tuple[Callable[[Deployment], Iterator[Finding]], ...] = (
    kills.plain_jobs,
    kills.worker_killed,
    kills.engine_killed,
    kills.decoder_killed,
    kills.api_killed,
    kills.poison,
    kills.poison_among_eight,
    kills.cancel,
    outages.redis_killed,
    outages.redis_frozen,
    outages.redis_full,
    outages.disk_full,
    kills.everything_killed,
    tallies.jobs,
    tallies.leftovers,
    tallies.flushed,
    tallies.stopped,
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true", help="an engine without models")
    engine = "colours:Sleeping" if parser.parse_args().fast else "engine:Obedient"
    began = time.monotonic()
    with small_disk() as folder:
        service = Deployment(folder, f"benchmarks.crash.{engine}")
        try:
            results = [(name_of(trial), hold(trial, service)) for trial in TRIALS]
        finally:
            service.stop()
    show(results)
    broken = sum(not finding.is_kept for _, findings in results for finding in findings)
    verdict = f"{broken} promises broken" if broken else "all promises kept: nothing lost, nothing doubled"
    print(f"{verdict} ({time.monotonic() - began:.0f} s)")
    return 1 if broken else 0


def hold(trial: Callable[[Deployment], Iterator[Finding]], service: Deployment) -> list[Finding]:
    """What a trial found; one that cannot go on is a broken promise, and the next ones are held."""
    print(name_of(trial), flush=True)
    findings: list[Finding] = []
    try:
        for finding in trial(service):
            findings.append(finding)
            print(finding, flush=True)
    except (GaveUp, OSError, KeyError, ValueError) as reason:
        findings.append(Finding(f"given up: {reason!r}", 1, limit=0))
        print(findings[-1], flush=True)
        print(service.log.read_text()[-3000:], file=sys.stderr)
    return findings


def name_of(trial: Callable[[Deployment], Iterator[Finding]]) -> str:
    return trial.__name__.replace("_", " ")


@contextmanager
def small_disk() -> Iterator[Path]:
    """A temporary folder, where it may be mounted a disk of its own that can be filled."""
    with tempfile.TemporaryDirectory(prefix="reelword-crash-") as name:
        size = f"size={DISK_MIB}m"
        command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", name]
        has_mount = shutil.which("mount") is not None
        is_mounted = has_mount and subprocess.run(command, capture_output=True).returncode == 0
        try:
            yield Path(name)
        finally:
            if is_mounted:
                subprocess.run(["umount", "--lazy", name], check=True)


if __name__ == "__main__":
    sys.exit(main())
