"""Shows how memory and cost grow: with the length of a film, the number of jobs, of workers and of beams.

    python -m benchmarks.growth [--quick] [--results FILE]

Memory is what a process and its decoder hold in RAM together at most while they caption a film of 10 s, of 10
min and of 2 h (drawn patterns, few frames a second, so that the longest takes a minute). Cost is processor
seconds, which other programs on the machine change little; its exponent is the slope of a line through the
curve's points on logarithmic axes: 1 is linear. Of films the cost of starting, that of the shortest one, is
left out; of workers it is what the same jobs cost together, and 0 means that more workers cost no more.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.end_to_end import Parts
from benchmarks.long_film import run
from benchmarks.support.joined_film import EncodedClip, encode_parts, write_joined
from benchmarks.support.rows import Row, add_options, cpu_seconds, measure_in_turns, medians, tell
from benchmarks.support.served import (
    ServedInstance,
    await_jobs,
    copies_of,
    post_clip,
)
from models.decoding.options import DecodingOptions

NAME = "growth"
MIB = 2**20
RATE = 5  #: frames a second of the films
SHORTEST = 60.0  #: seconds of a film's segments, at least
CLIP = 10.0  #: seconds
NOISE = 0.1  #: processor seconds by which two runs of the same film differ
LINEAR, FLAT = "ours <= 1.05", "ours <= 0.1"
GROWTH = "ratio >= 0.9"  #: a tenth more memory than the clip takes
BEAMS = (1, 2, 5, 10, 20)


def main() -> None:
    """Measures the four curves, and prints their rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    arguments = parser.parse_args()
    quick = arguments.quick
    parts = encode_parts([])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = list(measure_films(root, parts, (120.0, 600.0) if quick else (120.0, 600.0, 7200.0)))
        clip = root / "clip.mp4"
        write_joined(clip, parts, CLIP)
        video = clip.read_bytes()
        rows += measure_jobs(root / "jobs", video, (2, 4, 8) if quick else (4, 8, 16, 24))
        rows += measure_workers(root, video, (1, 2) if quick else (1, 2, 4), 4 if quick else 12)
        rows.append(measure_beams(root / "beams", clip, 3 if quick else 7))
    tell(rows, arguments.results)


def measure_films(folder: Path, parts: Sequence[EncodedClip], lengths: Sequence[float]) -> Iterator[Row]:
    """Captions a clip, then films of growing length, each in a process of its own.

    Args:
        folder: for the films.
        parts: that they are joined of.
        lengths: of the films, in seconds.

    Yields:
        A row for the memory of each, and one for the cost of the films.
    """
    peaks, costs = {}, {}
    for seconds in (CLIP, CLIP, *lengths):  # the first one finds the disk's caches cold
        film, data = folder / f"{seconds:.0f}.mp4", folder / f"data-{seconds:.0f}"
        write_joined(film, parts, seconds, rate=RATE)
        data.mkdir(parents=True, exist_ok=True)
        began = cpu_seconds()
        peaks[seconds] = run(film, data, captioner=True, shortest=SHORTEST).peak / MIB
        costs[seconds] = cpu_seconds() - began
    for seconds, peak in peaks.items():
        row = partial(Row, NAME, f"memory, film of {_length(seconds)}", peak, "MiB")
        yield row() if seconds == CLIP else row(peaks[CLIP], f"of {_length(CLIP)}", goal=GROWTH)
    start = costs.pop(CLIP)
    yield _exponent(
        "length of a film", {s: max(cost - start, NOISE) for s, cost in costs.items()}, LINEAR, _length
    )


def measure_jobs(data: Path, video: bytes, counts: Sequence[int]) -> Iterator[Row]:
    """Sends more and more clips at once to one worker.

    Args:
        data: of the service.
        video: the clip.
        counts: how many, each time.

    Yields:
        The row of their cost, and that of the memory after all of them.
    """
    with ServedInstance(data) as served, served.client() as client:
        await_jobs(client, [post_clip(client, each)[0] for each in copies_of(video, 4, 1 << 20)])
        held, costs = sum(served.memory().values()), {}
        for number, count in enumerate(counts):
            before = sum(served.cpu_seconds().values())
            await_jobs(client, [post_clip(client, each)[0] for each in copies_of(video, count, number << 10)])
            costs[float(count)] = sum(served.cpu_seconds().values()) - before
        after = sum(served.memory().values())
    yield _exponent("number of jobs", costs, LINEAR)
    what = f"memory of all processes after {sum(counts)} more jobs"
    yield Row(NAME, what, after / MIB, "MiB", held / MIB, "after four jobs", goal=GROWTH)


def measure_workers(folder: Path, video: bytes, counts: Sequence[int], jobs: int) -> Iterator[Row]:
    """Sends the same number of clips to more and more workers.

    Args:
        folder: for the services' data.
        video: the clip.
        counts: of workers.
        jobs: clips that are sent at once, each time.

    Yields:
        The rows of cost and of memory.
    """
    costs, held = {}, {}
    for workers in counts:
        given = {"REELWORD_WORKERS": str(workers)}
        with ServedInstance(folder / f"workers-{workers}", given) as served, served.client() as client:
            await_jobs(
                client, [post_clip(client, each)[0] for each in copies_of(video, 2 * workers, 1 << 20)]
            )
            before = sum(served.cpu_seconds().values())
            await_jobs(client, [post_clip(client, each)[0] for each in copies_of(video, jobs)])
            costs[float(workers)] = sum(served.cpu_seconds().values()) - before
            held[float(workers)] = sum(served.memory().values()) / MIB
    yield _exponent(f"number of workers, {jobs} jobs", costs, FLAT)
    yield _exponent("number of workers: memory", held, LINEAR, unit="MiB")


def measure_beams(data: Path, clip: Path, rounds: int) -> Row:
    """Captions one clip with more and more beams.

    Args:
        data: of the engine.
        clip: the video.
        rounds: that count.

    Returns:
        The row.
    """
    torch.set_num_threads(1)
    data.mkdir(parents=True, exist_ok=True)
    parts = Parts.load(data, clip)
    assert parts.options.choice is not None
    plan = parts.engine._captioners.plan(parts.options.choice)
    ways = {
        str(beams): partial(plan.caption, [parts.inputs], DecodingOptions(beam_size=beams, attention=False))
        for beams in BEAMS
    }
    taken = medians(measure_in_turns(ways, rounds, clock=cpu_seconds))
    return _exponent("number of beams", {float(beams): spent for beams, spent in taken.items()}, LINEAR)


def fit_exponent(curve: Mapping[float, float]) -> float:
    """Returns the slope of a line through the points on logarithmic axes."""
    across, up = (np.log(np.fromiter(values, float)) for values in (curve.keys(), curve.values()))
    return float(np.polyfit(across, up, 1)[0])


def _exponent(
    name: str, curve: Mapping[float, float], goal: str, label: object = "{:g}".format, unit: str = "CPU s"
) -> Row:
    assert callable(label)
    points = ", ".join(f"{label(at)}: {value:.3g}" for at, value in curve.items())
    return Row(NAME, f"cost by {name}", fit_exponent(curve), "exponent", goal=goal, note=f"{points} {unit}")


def _length(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


if __name__ == "__main__":
    main()
