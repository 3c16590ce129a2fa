"""Which files and functions does one POST /caption pass, in all processes of the service?

    python -m benchmarks.trace_post [--functions]

Starts ``python -m app serve`` on a temporary data folder, sends a clip once to warm up and once more while
every process notes which functions of this repository are called, and prints for each process its files,
functions and calls, and the pairs of files that call each other both ways; and all files together, without
those of the supervisor, which no request passes. ``--functions`` lists the functions too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import av
import httpx
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 300.0  #: seconds; the first start converts the image networks
SECONDS, RATE, SIZE = 4, 25, (360, 640)  #: of the clip that is sent
SUPERVISOR = "app serve"  #: no request passes it: it looks after the others once a second, clip or none

# Python imports sitecustomize at its start, in each process that finds it by PYTHONPATH.
HOOK = """
import json, os, sys, threading, time
from pathlib import Path

FOLDER, ROOT = Path({folder!r}), {root!r} + os.sep
calls, edges, state = {{}}, {{}}, [False]

def profile(frame, event, argument):
    if not state[0] or event != "call":
        return
    code = frame.f_code
    if not code.co_filename.startswith(ROOT) or "/.venv/" in code.co_filename:
        return
    key = (code.co_filename[len(ROOT):], code.co_qualname)
    calls[key] = calls.get(key, 0) + 1
    caller = frame.f_back
    while caller is not None and (not caller.f_code.co_filename.startswith(ROOT) or "/.venv/" in
    caller.f_code.co_filename):
        caller = caller.f_back
    if caller is not None:
        pair = (caller.f_code.co_filename[len(ROOT):], key[0])
        edges[pair] = edges.get(pair, 0) + 1

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
    """What one process did. calls: (file, function) → how often. edges: (calling file, called file)."""

    process: str
    calls: Mapping[tuple[str, str], int]
    edges: frozenset[tuple[str, str]]

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


def free_port() -> int:
    """Returns a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def service(folder: Path, port: int) -> Iterator[None]:
    """Runs the service with the hook in each of its processes, and ends it."""
    (folder / "sitecustomize.py").write_text(HOOK.format(folder=str(folder), root=str(ROOT)))
    environment = {**os.environ, "PORT": str(port), "REELWORD_DATA": str(folder / "data")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment.pop("REDIS_URL", None)
    log = (folder / "serve.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve"], cwd=ROOT, env=environment, stdout=log, stderr=log
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        log.close()


def send(clip: Path, port: int) -> None:
    """Posts the clip and waits for its caption."""
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + PATIENCE
    with httpx.Client(timeout=90, headers={"Prefer": "wait=60"}) as client:
        while True:
            try:
                answer = client.post(f"{address}/caption", files={"video": (clip.name, clip.read_bytes())})
            except httpx.TransportError:
                answer = None  # the API is not up yet
            if answer is not None and answer.status_code != 503:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service did not take the clip within {PATIENCE:.0f} s")
            time.sleep(0.5)
        answer.raise_for_status()
        document = answer.json()
        while document["state"] not in ("succeeded", "failed"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the job did not end within {PATIENCE:.0f} s")
            document = client.get(f"{address}/jobs/{document['id']}").json()
            time.sleep(0.1)
    if document["state"] != "succeeded":
        raise RuntimeError(f"the job failed: {document['error']}")


def collected(folder: Path) -> list[Trace]:
    """Waits until the processes have written what they did, and reads it."""
    (folder / "over").touch()
    time.sleep(2.0)
    return sorted((Trace.read(file) for file in folder.glob("*.json")), key=lambda trace: trace.process)


def report(traces: list[Trace], *, functions: bool) -> None:
    """Prints a line for each process, a sum, and where asked for the functions."""
    print(f"{'process':<40}{'files':>7}{'functions':>11}{'calls':>8}{'crossed both ways':>19}")
    for trace in traces:
        numbers = (
            f"{len(trace.files):>7}{len(trace.calls):>11}{sum(trace.calls.values()):>8}{trace.crossed:>19}"
        )
        print(f"{trace.process:<40}{numbers}")
    passed = [trace for trace in traces if trace.process != SUPERVISOR]
    files = frozenset[str]().union(*(trace.files for trace in passed))
    called = {key for trace in passed for key in trace.calls}
    total = sum(sum(trace.calls.values()) for trace in passed)
    print(f"{'all but the supervisor, each once':<40}{len(files):>7}{len(called):>11}{total:>8}")
    rooms = Counter(file.rpartition("/")[0] for file in files)
    print("files by folder: " + ", ".join(f"{room} {count}" for room, count in sorted(rooms.items())))
    if functions:
        for trace in traces:
            print(f"\n{trace.process}")
            for (file, function), count in sorted(trace.calls.items()):
                print(f"  {file}:{function} ({count})")


def main() -> None:
    """Traces one POST and prints what it passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--functions", action="store_true", help="list the functions of each process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        clip, port = write_clip(folder / "clip.mp4"), free_port()
        with service(folder, port):
            send(clip, port)
            (folder / "armed").touch()
            time.sleep(0.2)
            send(clip, port)
            traces = collected(folder)
        report(traces, functions=options.functions)


if __name__ == "__main__":
    main()
