"""The box of the decoding process: each thing that it refuses, tried in a process that is in it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from extractors.decoder import box, decoder

TRIES = """
import json, os, socket, subprocess, sys, threading, time
from extractors.decoder.box import enter_box, limit_processor_seconds

folder = sys.argv[1]
before = time.perf_counter()
lacking = enter_box()
spent = time.perf_counter() - before
libc = __import__("ctypes").CDLL(None, use_errno=True)

def trace():
    if libc.ptrace(16, os.getppid(), 0, 0) != 0:
        raise PermissionError

tries = {
    "socket": lambda: socket.socket(), "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "pair": lambda: socket.socketpair(), "fork": os.fork, "exec": lambda: os.execv("/bin/true", ["true"]),
    "program": lambda: subprocess.run(["true"]), "trace": trace, "signal": lambda: os.kill(os.getppid(), 0),
    "write": lambda: open(f"{folder}/new", "w"), "change": lambda: open(f"{folder}/old", "a"),
    "remove": lambda: os.unlink(f"{folder}/old"), "folder": lambda: os.mkdir(f"{folder}/more"),
    "files": lambda: [os.dup(0) for _ in range(300)],
}
done = []
for name, attempt in tries.items():
    try:
        attempt()
        done.append(name)
    except OSError:
        pass
os.closerange(3, 256)
thread = threading.Thread(target=lambda: None)
thread.start(), thread.join()
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
print(json.dumps({"lacking": lacking, "done": done, "spent": spent, "status": status}), flush=True)
limit_processor_seconds(-9 / os.cpu_count())  # one second more
while True:
    pass
"""


@pytest.fixture(scope="module")
def lacking() -> list[str]:
    """Layers that this machine's kernel lacks."""
    run = subprocess.run(
        [sys.executable, "-c", "from extractors.decoder.box import enter_box; print(*enter_box())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout.split()


def test_what_no_decoder_needs_is_refused(lacking: list[str], tmp_path: Path) -> None:
    if lacking:
        pytest.skip(f"this kernel lacks {lacking}")
    (tmp_path / "old").write_text("here")
    run = subprocess.run(
        [sys.executable, "-c", TRIES, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert run.stdout, run.stderr
    told = json.loads(run.stdout)
    assert (told["lacking"], told["done"]) == ([], [])
    assert (told["status"]["NoNewPrivs"], told["status"]["Seccomp"]) == ("1", "2")
    assert told["spent"] < 0.5  # half a millisecond; on a busy machine more
    assert run.returncode < 0, "it was to end by its own limit of processor seconds"
    assert [file.name for file in tmp_path.iterdir()] == ["old"]


def test_a_decoder_s_child_is_in_the_box(lacking: list[str]) -> None:
    with decoder.Decoder() as running:
        status = Path(f"/proc/{running.pid}/status").read_text()
    assert ("NoNewPrivs:\t1" in status) == ("no_new_privs" not in lacking)
    assert ("Seccomp:\t2" in status) == ("seccomp" not in lacking)


def test_what_the_kernel_lacks_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    decoder._tell_lacking.cache_clear()
    with caplog.at_level(logging.WARNING):
        for layers in ("landlock seccomp", "landlock seccomp", ""):
            decoder._tell_lacking(layers)
    assert [record.message for record in caplog.records] == [
        "videos are read with less protection: this kernel lacks landlock seccomp"
    ]


def test_a_kernel_without_a_layer_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, where nothing is really given up."""

    def call(name: str, *arguments: object) -> int:
        if name == "syscall":
            raise OSError("Function not implemented")
        return 0

    monkeypatch.setattr(box, "_call", call)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    assert box.enter_box() == ["landlock"]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert box.enter_box() == ["landlock", "seccomp"]
