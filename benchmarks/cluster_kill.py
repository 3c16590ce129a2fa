"""Is each video of a collection captioned once when a node of a cluster is killed, and when the driver is?

    python -m benchmarks.cluster_kill [--videos 48] [--nodes 3] [--real]

The cluster is Ray's own on this machine: a head without work, and nodes of two CPUs, each with its raylet and
object store. First a node with an engine is killed once rows are there; the command must end by itself. Then,
into another folder, the driver is killed and the command given again. Each video must have one row; the one
that kills whatever engine sees it (not with ``--real``) has a code. Exit code 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from ray.cluster_utils import Cluster

from app.errors import JobFailure
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, Report
from benchmarks.crash.colours import COLOURS, Sleeping, draw
from benchmarks.crash.findings import Finding, seconds, show
from extractors.child_process import ROOT
from extractors.features import Frames

CPUS = 2  #: of each node
STORE = 200 * 2**20  #: bytes of each node's object store
SLOW_EVERY = 6  #: of the videos one takes three seconds
PATIENCE = 900.0
FAST, REAL = "benchmarks.cluster_kill:Mortal", "app.pipeline.engine:Engine"


class Mortal(Sleeping):
    """An engine without models that ends at once, as for want of memory, where it sees magenta."""

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        for video in videos:
            red, green, blue = video.pixels.mean(axis=(0, 1, 2))
            if min(red, blue) > 200 and green < 60:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().describe_and_caption(videos, options, report)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=48)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--real", action="store_true", help="the real engine, which needs its weights")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="reelword-cluster-") as name,
        started_cluster(arguments.nodes) as cluster,
    ):
        folder = Path(name)
        videos = draw_collection(folder / "videos", arguments.videos, has_poison=not arguments.real)
        bulk = Bulk(folder, str(cluster.address), REAL if arguments.real else FAST)
        trials = {
            "a node is killed": list(node_killed(bulk, cluster, videos)),
            "the driver is killed": list(driver_killed(bulk, videos)),
        }
    show(list(trials.items()))
    broken = sum(not finding.is_kept for findings in trials.values() for finding in findings)
    print(f"{broken} promises broken" if broken else "all promises kept: one row each, nothing lost")
    return 1 if broken else 0


@contextmanager
def started_cluster(nodes: int) -> Iterator[Cluster]:
    """Starts a head that runs nothing, and nodes; ends them all."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster: Any = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False},
    )
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=CPUS, object_store_memory=STORE)
        yield cluster
    finally:
        cluster.shutdown()


def draw_collection(folder: Path, count: int, *, has_poison: bool) -> list[str]:
    """Draws clips of one colour, no two with the same bytes, and returns their names."""
    folder.mkdir()
    kinds = [
        "poison" if has_poison and k == 1 else "slow" if k % SLOW_EVERY == 0 else "plain"
        for k in range(count)
    ]
    for k, kind in enumerate(kinds):
        file = draw(folder / f"{k:04}-{kind}.mp4", COLOURS[kind])
        with file.open("ab") as end:
            end.write(b"\0\0\0\x0cfree%04d" % k)
    return sorted(file.name for file in folder.iterdir())


class Bulk:
    """Starts ``reelword bulk`` on the cluster, and reads its rows.

    Args:
        folder: with the videos, and where rows go.
        address: of the cluster.
        engine: what captions, as ``module:name``.
    """

    def __init__(self, folder: Path, address: str, engine: str) -> None:
        self._folder, self._address, self._engine = folder, address, engine

    def start(self, out: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "app",
            "bulk",
            "videos",
            "--out",
            out,
            "--engines",
            "2",
            "--batch",
            "4",
        ]
        environment = {
            "PYTHONPATH": str(ROOT),
            "RAY_ADDRESS": self._address,
            "REELWORD_ENGINE": self._engine,
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(
            command, cwd=self._folder, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
        )

    def rows(self, out: str) -> list[dict[str, Any]]:
        """Reads all rows that are whole by now."""
        rows: list[dict[str, Any]] = []
        for part in sorted((self._folder / out).glob("*.parquet")):
            try:
                rows += pq.read_table(part, columns=["file", "caption", "code"]).to_pylist()
            except (OSError, ValueError):  # on its way
                continue
        return rows

    def wait_for_rows(self, out: str, process: subprocess.Popen[str]) -> int:
        """Waits for the first rows, and returns how many there are."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if rows := self.rows(out):
                return len(rows)
            if process.poll() is not None:
                break
            time.sleep(0.1)
        raise TimeoutError(f"no rows: {process.stderr.read() if process.stderr else ''}")


def node_killed(bulk: Bulk, cluster: Any, videos: Sequence[str]) -> Iterator[Finding]:
    """Kills a node that has an engine in the middle of a run."""
    began, process = time.monotonic(), bulk.start("first")
    yield Finding(
        "rows when it is killed", bulk.wait_for_rows("first", process), limit=len(videos) - 1, least=1
    )
    victim = wait_for_engine(cluster)
    killed = works_of(victim, "")
    cluster.remove_node(victim, allow_graceful=False)
    for each in killed:  # what a machine has goes with it
        with _gone():
            each.kill()
    _, report = process.communicate(timeout=PATIENCE)
    yield Finding("its worker processes", len(killed), least=1)
    yield seconds("the command ends by itself after", time.monotonic() - began)
    yield from _check(bulk, "first", videos, process.returncode, report)


def driver_killed(bulk: Bulk, videos: Sequence[str]) -> Iterator[Finding]:
    """Kills the command in the middle, and gives it again at once."""
    process = bulk.start("second")
    yield Finding(
        "rows when it is killed", bulk.wait_for_rows("second", process), limit=len(videos) - 1, least=1
    )
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = bulk.start("second")
    _, report = again.communicate(timeout=PATIENCE)
    yield Finding("rows that were passed over", int(report.rsplit(";", 1)[1].split()[0]), least=1)
    yield from _check(bulk, "second", videos, again.returncode, report)


def _check(bulk: Bulk, out: str, videos: Sequence[str], code: int, said: str) -> Iterator[Finding]:
    rows = bulk.rows(out)
    count = Counter(Path(row["file"]).name for row in rows)
    poison = [name for name in videos if "poison" in name]
    codes = Counter(row["code"] for row in rows if row["code"])
    yield Finding("rows", len(rows), limit=len(videos), least=len(videos))
    yield Finding("  videos without one", len(set(videos) - set(count)), limit=0)
    yield Finding("  videos with two", sum(number > 1 for number in count.values()), limit=0)
    yield Finding(
        "  with a code, as the one that kills engines",
        codes["engine_crashed"],
        limit=len(poison),
        least=len(poison),
    )
    yield Finding("  with another code", sum(codes.values()) - codes["engine_crashed"], limit=0)
    yield Finding("exit code", code, limit=1 if poison else 0)
    if code not in (0, 1):
        print(said, file=sys.stderr)


def wait_for_engine(cluster: Any) -> Any:
    """Returns a node that has an engine, once one has. Raises TimeoutError where none gets one in time."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for node in cluster.worker_nodes:
            if works_of(node, "CaptionVideos"):
                return node
        time.sleep(0.1)
    raise TimeoutError("no node has an engine")


def works_of(node: Any, title: str) -> list[psutil.Process]:
    """Lists the processes below a node's raylet whose title has the text."""
    processes = []
    for process in psutil.Process(node.all_processes["raylet"][0].process.pid).children(recursive=True):
        with _gone():
            if title in " ".join(process.cmdline()):
                processes.append(process)
    return processes


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    sys.exit(main())
