"""Runs the benchmarks one after the other and prints one table of all that they found.

    python -m benchmarks [--quick] [--only NAME,…] [--results out/bench.jsonl]

Each is a process of its own (``python -m benchmarks.NAME --results FILE``), ended where it takes longer than
its budget. Where one fails or is ended the others go on, and the last line says so; the exit
code is then 1. What takes longer, or is about kills, has a target of its own: ``make crash``, ``make soak``.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.support.rows import Row, add_options, print_table

#: Seconds that each may take on two quiet cores.
BUDGETS: Mapping[str, float] = {
    "end_to_end": 150,
    "decode": 180,
}

LEAVE_SECONDS = 60.0  #: for a benchmark that is ended to end what it has started


def main() -> int:
    """Runs what is asked for, and returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--only", default="", help="names with commas between")
    parser.set_defaults(results=Path("out/bench.jsonl"))
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or list(BUDGETS)
    if unknown := [name for name in names if name not in BUDGETS]:
        parser.error(f"there is no benchmark {unknown[0]}; there are: {', '.join(BUDGETS)}")
    arguments.results.unlink(missing_ok=True)
    failures = [why for name in names if (why := run(name, arguments.results, arguments.quick))]
    lines = arguments.results.read_text(encoding="utf-8").splitlines() if arguments.results.exists() else []
    print_table([Row.from_json(line) for line in lines])
    print(f"{len(lines)} rows in {arguments.results}", *failures, sep="\n")
    return 1 if failures else 0


def run(name: str, results: Path, quick: bool) -> str | None:
    """Runs one benchmark.

    Args:
        name: of its module.
        results: its rows are appended to this file.
        quick: whether it is to repeat less.

    Returns:
        Why there may be no rows, None where it ended well.
    """
    command = [sys.executable, "-m", f"benchmarks.{name}", "--results", str(results), *["--quick"] * quick]
    print(f"== {name}", flush=True)
    began = time.monotonic()
    with subprocess.Popen(command) as process:
        try:
            code = process.wait(BUDGETS[name])
        except subprocess.TimeoutExpired:
            end(process)
            return f"{name} was ended after its {BUDGETS[name]:.0f} s"
    print(f"   {time.monotonic() - began:.0f} s", flush=True)
    return f"{name} ended with code {code}" if code else None


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a benchmark as Ctrl-C does, so that it ends what it has started; kills it where it stays."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
