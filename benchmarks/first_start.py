"""How long does `make serve` take to be ready on an empty data folder?

    python -m benchmarks.first_start [--quick]

Starts the service three times in a row, each series three times (quick: once): where no network has been
converted yet, on an empty data folder beside converted networks, and on that folder again. Prints seconds to
the line that says it is ready, and those of the processor, which a busy machine stretches less.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.support.rows import Row, add_options, tell
from benchmarks.support.served import ServedInstance

NAME = "first_start"
#: What was there before → the most seconds that it may take on a quiet machine, 0 for no goal.
GOALS = {"nothing": 0.0, "converted networks": 10.0, "converted networks and data": 5.0}


def measure_series(folder: Path) -> dict[str, tuple[float, float]]:
    """Returns for each of GOALS the seconds of the clock and of the processors until all was ready."""
    measured = {}
    for name, data in zip(GOALS, ("first", "second", "second"), strict=True):
        with ServedInstance(folder / data, {"REELWORD_CACHE": str(folder / "cache")}) as served:
            measured[name] = served.start_seconds, sum(served.cpu_seconds().values())
    return measured


def main() -> None:
    """Measures the series and prints their medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else 3
    seconds = defaultdict[str, list[tuple[float, float]]](list)
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for name, measured in measure_series(Path(folder)).items():
                seconds[name].append(measured)
    rows = []
    for name, each in seconds.items():
        wall, cpu = (statistics.median(column) for column in zip(*each, strict=True))
        goal = f"ours <= {GOALS[name]:g}" if GOALS[name] else ""
        note = f"{cpu:.1f} s of processors; all: " + ", ".join(f"{took:.1f}" for took, _ in each)
        rows.append(Row(NAME, f"start beside {name}", wall, "s", goal=goal, repeats=repeats, note=note))
    tell(rows, arguments.results)


if __name__ == "__main__":
    main()
