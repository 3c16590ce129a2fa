"""What does each part of ``python -m app bulk`` cost, and what would 10, 100 and 1,000 machines do?

    python -m benchmarks.scale.bulk_load [--quick] [--results FILE]

Measured here: listing, decoding and captioning of a ten-second clip a core (the real engine, where its
weights are), what the driver spends on a row and how memory grows from 50 to 500 rows (an engine without
models, clips of two seconds), writing rows, and finding those that are done. Computed from these: the videos
a second of many machines, as long as no part that is there once is the limit. Times are CPU seconds where it
says so, which hardly depend on what else runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from app.bulk.rows import SCHEMA, find_done
from app.bulk.storage import open_location
from app.bulk.videos import list_videos
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import ignore_progress, load_engine
from app.settings import load_settings
from benchmarks.crash.colours import COLOURS, draw
from benchmarks.support.rows import Row, add_options, cpu_seconds, tell
from extractors.child_process import ROOT
from extractors.errors import ReelwordError
from extractors.media.decode import decode_here

FEW, MANY = 50, 500  #: videos of the two runs whose difference is a row's cost
BATCH = 8
MACHINES = (1, 10, 100, 1000)
CORES = 2  #: of the machine that the table is computed for
PATIENCE = 1800.0
MIB = 2**20


@dataclass(frozen=True)
class Run:
    """Holds what a run of the command took: CPU seconds of the driver, and bytes at their highest.

    actors: of all other processes together, shared memory left out.
    """

    rows: int
    wall: float
    driver_cpu: float
    driver: int
    actors: int


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    arguments = parser.parse_args()
    few, many = (16, 64) if arguments.quick else (FEW, MANY)
    with tempfile.TemporaryDirectory(prefix="reelword-bulk-load-") as name:
        tell(measure(Path(name), few, many, 1 if arguments.quick else 5), arguments.results)
    return 0


def measure(folder: Path, few: int, many: int, rounds: int) -> Iterator[Row]:
    """Runs all parts and yields the rows."""
    yield from _listing(folder, 2_000 * rounds)
    yield from _rows_on_disk(folder, 10_000 * rounds)
    a_core = yield from _one_video(folder, rounds)
    small, large = (run_bulk(folder, count) for count in (few, many))
    a_row = max(large.driver_cpu - small.driver_cpu, 0.01) / (large.rows - small.rows)
    yield _row(
        "driver's CPU a row", 1000 * a_row, "ms", note=f"from {few} to {many} rows; its own process alone"
    )
    for who in ("driver", "actors"):
        yield _row(
            f"memory of {who}, {many} rows", getattr(large, who) / MIB, "MiB", peer=getattr(small, who) / MIB,
            peer_name=f"{few} rows", goal="ratio >= 0.85",
        )  # fmt: skip
    yield _row(
        "rows of the engine without models", large.rows / large.wall, "videos/s", note="with Ray's start"
    )
    if a_core is not None:
        yield from _of_machines(a_core, a_row)


def _listing(folder: Path, count: int) -> Iterator[Row]:
    many = folder / "many"
    many.mkdir()
    for number in range(count):
        (many / f"{number}.mp4").touch()
    seconds, videos = _timed(lambda: list_videos(str(many)))
    shutil.rmtree(many)
    yield _row("files listed in a folder", len(videos) / seconds, "files/s")


def _rows_on_disk(folder: Path, count: int) -> Iterator[Row]:
    """Writes parts as a run does, and finds what is done as the next one does."""
    out = folder / "rows"
    out.mkdir()
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {
        "run": "this",
        "captions": "x" * 500,
        "sampled": [0.0] * 26,
    }
    parts = count // 1000  # of a finished collection, whose parts are larger
    rows = [row | {"file": f"/films/{number}.mp4", "sha256": f"{number:064}"} for number in range(1000)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    small = table.slice(0, 16)
    seconds, _ = _timed(lambda: [pq.write_table(small, out / "part.parquet") for _ in range(50)])
    yield _row("writing a part of 16 rows", 1000 * seconds / 50, "ms CPU")
    for number in range(parts):
        pq.write_table(table, out / f"{number}.parquet")
    seconds, done = _timed(lambda: find_done(open_location(str(out)), "this"))
    yield _row("finding what is done, for 1,000 rows", 1e6 * seconds / count, "ms CPU")
    yield _row("memory of what is done, a video", done.keys.itemsize, "bytes", note="at each decoder")


def _one_video(folder: Path, rounds: int) -> Generator[Row, None, float | None]:
    """Decodes and captions a ten-second clip; returns CPU seconds of both, None without weights."""
    clip, settings = film(folder / "film.mp4"), load_settings()
    try:
        engine = load_engine(settings)
        info = engine.warm_up()
        options = info.resolve(CaptionOptions(attention=False))
    except ReelwordError as error:
        print(f"the real engine is not measured: {error}", file=sys.stderr)
        return None
    request = info.request_for(options.choice)
    decode = statistics.median(_timed(lambda: decode_here(clip, request))[0] for _ in range(rounds))
    videos = [decode_here(clip, request).footage] * BATCH
    caption = statistics.median(
        _timed(lambda: engine.describe_and_caption(videos, [options] * BATCH, ignore_progress))[0] / BATCH
        for _ in range(rounds + 1)
    )
    yield _row("decoding of a 10 s clip, 720p", decode, "s CPU")
    yield _row("features and captions of it", caption, "s CPU", note=f"in batches of {BATCH}")
    return decode + caption


def _of_machines(a_video: float, a_row: float) -> Iterator[Row]:
    """Computes what many machines do: all cores at work, one driver."""
    driver = 1 / a_row
    for machines in MACHINES:
        cores = machines * CORES / a_video
        limit = "the cores" if cores < driver else f"the driver: the cores would do {cores:,.0f}"
        yield _row(
            f"{machines:,} machines of {CORES} cores, computed", min(cores, driver), "videos/s",
            note=f"{limit}; {3600 * min(cores, driver):,.0f} an hour",
        )  # fmt: skip


def run_bulk(folder: Path, count: int) -> Run:
    """Runs the command over so many clips, with an engine without models, and watches its processes."""
    videos, out = folder / f"videos-{count}", folder / f"out-{count}"
    videos.mkdir()
    clip = draw(folder / "plain.mp4", COLOURS["plain"]).read_bytes()
    for number in range(count):
        (videos / f"{number}.mp4").write_bytes(clip + b"\0\0\0\x0cfree%04d" % number)
    given = {
        "REELWORD_ENGINE": "benchmarks.crash.colours:Sleeping",
        "OMP_NUM_THREADS": "1",
        "RAY_ADDRESS": "",
    }
    command = [sys.executable, "-m", "app", "bulk", str(videos), "--out", str(out), "--decoders", "2"]
    environment = {name: value for name, value in {**os.environ, **given}.items() if value}
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    driver_cpu, driver, actors = 0.0, 0, 0
    while process.poll() is None and time.monotonic() - began < PATIENCE:
        try:
            own = psutil.Process(process.pid)
            times = own.cpu_times()
            driver_cpu, driver = times.user + times.system, max(driver, own.memory_full_info().uss)
            actors = max(actors, sum(map(_uss, own.children(recursive=True))))
        except psutil.Error:
            continue
        time.sleep(0.5)
    rows = sum(pq.read_metadata(part).num_rows for part in out.glob("*.parquet"))
    said = process.stderr.read() if process.stderr else ""
    if process.returncode or rows != count:
        raise RuntimeError(f"bulk made {rows} rows of {count}: {said[-2000:]}")
    return Run(rows, time.monotonic() - began, driver_cpu, driver, actors)


def _uss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0


def film(path: Path, seconds: float = 10.0) -> Path:
    """Writes a 720p clip whose colours drift."""
    coarse = np.random.default_rng(0).integers(0, 255, (9, 16, 3), dtype=np.uint8)
    picture = coarse.repeat(80, axis=0).repeat(80, axis=1)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 1280, 720, "yuv420p"
        for number in range(round(25 * seconds)):
            drifted = np.roll(picture, 4 * number, axis=1)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(drifted, format="rgb24")))
        out.mux(stream.encode())
    return path


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the CPU seconds of this process and what the work made."""
    began = cpu_seconds()
    made = work()
    return max(cpu_seconds() - began, 1e-6), made


def _row(name: str, ours: float, unit: str, **more: Any) -> Row:
    return Row("bulk_load", name, ours, unit, better="more" if unit.endswith("/s") else "less", **more)


if __name__ == "__main__":
    sys.exit(main())
