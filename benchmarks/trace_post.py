"""Which files and functions does one POST /caption pass, in all processes of the service?

    python -m benchmarks.trace_post [--functions]

Starts ``reelword serve`` on a temporary data folder, sends a clip to warm up and another copy of it,
which no cache knows, while every process notes which functions of this repository are called. Prints for each
process its files, functions and calls, and the pairs of files that call each other both ways; then all files
together, without those of the supervisor, which no request passes, beside the most that there may be. A
coroutine and a generator count as one call, however often they are resumed. ``--functions`` lists the
functions too. Exits with 1 where the files are too many, and stops where the decoder did nothing: then that
was no whole trip.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from benchmarks.support.served import ServedInstance, copies_of

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES = 115  #: that one request may pass, all processes together: 113, and sweeps that fall into it
SECONDS, RATE, SIZE = 4, 25, (360, 640)  #: of the clip that is sent
SUPERVISOR = "app serve"  #: no request passes it: it looks after the others once a second, clip or none
DECODER = "extractors.decoder.child"

# Python imports sitecustomize at its start, in each process that finds it by PYTHONPATH.
HOOK = """
import inspect, json, os, sys, threading, time
from pathlib import Path

FOLDER, ROOT = Path({folder!r}), {root!r} + os.sep
RESUMABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
calls, edges, state = {{}}, {{}}, [False]

def is_ours(code):
    return code.co_filename.startswith(ROOT) and "/.venv/" not in code.co_filename

def is_resumed(frame):
    # a frame begins with the instruction RESUME 0; after a yield or an await it continues with another number
    return frame.f_code.co_flags & RESUMABLE and frame.f_code.co_code[frame.f_lasti + 1] & 3

def profile(frame, event, argument):
    if not state[0] or event != "call" or not is_ours(frame.f_code) or is_resumed(frame):
        return
    key = (frame.f_code.co_filename[len(ROOT):], frame.f_code.co_qualname)
    calls[key] = calls.get(key, 0) + 1
    caller = frame.f_back
    while caller is not None and not is_ours(caller.f_code):
        caller = caller.f_back
    if caller is not None:
        edges[caller.f_code.co_filename[len(ROOT):], key[0]] = True

def watch():
    while not (FOLDER / "armed").exists():
        time.sleep(0.02)
    state[0] = True
    while not (FOLDER / "over").exists():
        time.sleep(0.02)
    state[0] = False
    words = sys.orig_argv[sys.orig_argv.index("-m") + 1:][:2] if "-m" in sys.orig_argv else ["other"]
    text = json.dumps(dict(
        process=" ".join(word for word in words if not word.lstrip("-").isdigit()),
        calls=[[*key, count] for key, count in calls.copy().items()],
        edges=[list(pair) for pair in edges.copy()],
    ))
    part = FOLDER / f"{{os.getpid()}}.part"
    part.write_text(text)
    part.rename(part.with_suffix(".json"))

threading.Thread(target=watch, name="trace", daemon=True).start()
threading.setprofile(profile)
sys.setprofile(profile)
"""


@dataclass(frozen=True)
class Trace:
    """Holds what one process did."""

    process: str  #: its command line after ``-m``
    calls: Mapping[tuple[str, str], int]  #: (file, function) → how often it was begun
    edges: frozenset[tuple[str, str]]  #: (calling file, called file)

    @classmethod
    def read(cls, file: Path) -> Trace:
        """Reads what a process left."""
        document = json.loads(file.read_text(encoding="utf-8"))
        calls = {(path, function): count for path, function, count in document["calls"]}
        return cls(document["process"], calls, frozenset((a, b) for a, b in document["edges"] if a != b))

    @property
    def files(self) -> frozenset[str]:
        return frozenset(path for path, _ in self.calls)

    @property
    def crossed(self) -> int:
        """How many pairs of files call each other both ways."""
        return sum((b, a) in self.edges for a, b in self.edges if a < b)


def write_clip(file: Path) -> Path:
    """Writes a film of a moving square as H.264."""
    rows, columns = SIZE
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.height, stream.width, stream.pix_fmt = rows, columns, "yuv420p"
        for number in range(SECONDS * RATE):
            picture = np.full((rows, columns, 3), (90, 140, 60), np.uint8)
            picture[100:200, 4 * number : 4 * number + 100] = (200, 60, 40)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return file


def trace_one_post(folder: Path) -> list[Trace]:
    """Runs the service, sends it a clip, and returns what each process did for another one.

    Raises:
        RuntimeError: nothing was decoded.
    """
    first, second = copies_of(write_clip(folder / "clip.mp4").read_bytes(), 2)
    (folder / "sitecustomize.py").write_text(HOOK.format(folder=str(folder), root=str(ROOT)))
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    with ServedInstance(folder / "data", {"PYTHONPATH": path}) as served:
        send(served, first)
        (folder / "armed").touch()
        time.sleep(0.2)
        send(served, second)
        traces = collected(folder)
    if not any(trace.calls for trace in traces if trace.process == DECODER):
        raise RuntimeError("the decoder made no calls: the clip came from a cache, and that is no whole trip")
    return traces


def send(served: ServedInstance, clip: bytes) -> None:
    """Posts a clip and waits for its caption."""
    with served.client() as client:
        response = client.post("/caption", files={"video": ("clip.mp4", clip)}, headers={"Prefer": "wait=60"})
    response.raise_for_status()
    if response.json()["state"] != "succeeded":
        raise RuntimeError(f"the job has not succeeded: {response.text}")


def collected(folder: Path) -> list[Trace]:
    """Waits until the processes have written what they did, and reads it."""
    (folder / "over").touch()
    time.sleep(2.0)
    return sorted((Trace.read(file) for file in folder.glob("*.json")), key=lambda trace: trace.process)


def files_passed(traces: list[Trace]) -> frozenset[str]:
    """Returns the files that the request passed in any process."""
    return frozenset[str]().union(*(trace.files for trace in traces if trace.process != SUPERVISOR))


def report(traces: list[Trace], *, functions: bool) -> None:
    """Prints a line for each process, a sum, and where asked for the functions."""
    print(f"{'process':<40}{'files':>7}{'functions':>11}{'calls':>8}{'crossed both ways':>19}")
    for trace in traces:
        numbers = (
            f"{len(trace.files):>7}{len(trace.calls):>11}{sum(trace.calls.values()):>8}{trace.crossed:>19}"
        )
        print(f"{trace.process:<40}{numbers}")
    passed = [trace for trace in traces if trace.process != SUPERVISOR]
    files = files_passed(traces)
    called = {key for trace in passed for key in trace.calls}
    total = sum(sum(trace.calls.values()) for trace in passed)
    print(f"{'all but the supervisor, each once':<40}{len(files):>7}{len(called):>11}{total:>8}")
    print(f"files at most: {MOST_FILES}. Calls of coroutines and generators are counted once.")
    rooms = Counter(file.rpartition("/")[0] for file in files)
    print("files by folder: " + ", ".join(f"{room} {count}" for room, count in sorted(rooms.items())))
    if functions:
        for trace in traces:
            print(f"\n{trace.process}")
            for (file, function), count in sorted(trace.calls.items()):
                print(f"  {file}:{function} ({count})")


def main() -> int:
    """Traces one POST, prints what it passed, and returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--functions", action="store_true", help="list the functions of each process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        traces = trace_one_post(Path(place))
    report(traces, functions=options.functions)
    return 0 if len(files_passed(traces)) <= MOST_FILES else 1


if __name__ == "__main__":
    sys.exit(main())
