"""Child processes: how they end, by themselves, asked, killed and with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from extractors.child_process import ROOT, ChildProcess, LinkedProcess, describe_status

SLEEP = [sys.executable, "-c", "import time; print('awake', flush=True); time.sleep(60)"]
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
)
PATIENCE = 20.0  #: seconds for an interpreter to start on a busy machine
#: A linked module: says what it was called with, then repeats what it hears and writes it to the memory.
ECHO = """
import os
from extractors.child_process import join_parent

parent = join_parent()
parent.link.send(list(parent.arguments))
while True:
    heard = parent.link.recv()
    os.pwrite(parent.shared, heard, 0)
    parent.link.send(os.getcwd())
"""


@contextmanager
def reading() -> Iterator[tuple[int, int]]:
    """A pipe for what a child prints."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the module ``echo``, in which linked processes find it."""
    (tmp_path / "echo.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    return tmp_path


def awaken(command: list[str], pipe: tuple[int, int]) -> ChildProcess:
    """Starts a command and waits for its first word."""
    child = ChildProcess(command, output=pipe[1])
    assert os.read(pipe[0], 10)
    return child


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_end_by_itself_is_told() -> None:
    child = ChildProcess([sys.executable, "-c", "raise SystemExit(7)"])
    assert child.explain_end(PATIENCE) == "exit code 7"
    assert (child.status, child.is_alive) == (7, False)


def test_an_end_by_a_signal_is_told_by_number_and_name() -> None:
    child = ChildProcess(["sleep", "60"])
    child.kill()
    assert child.explain_end(PATIENCE) == "signal 9, SIGKILL"
    assert describe_status(-signal.SIGRTMIN - 1) == f"signal {signal.SIGRTMIN + 1}"


def test_what_ends_when_asked_is_not_killed() -> None:
    with reading() as pipe:
        child = awaken(SLEEP, pipe)
        assert child.stop(PATIENCE)
    assert child.status == -signal.SIGTERM
    assert not psutil.pid_exists(child.pid)


def test_what_does_not_end_when_asked_is_killed() -> None:
    with reading() as pipe:
        child = awaken([sys.executable, "-c", STUBBORN], pipe)
        began = time.monotonic()
        assert not child.stop(0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert child.status == -signal.SIGKILL
    assert child.stop(0.0)  # once more does no harm


def test_it_is_apart_from_ctrl_c() -> None:
    with reading() as pipe:
        child = awaken(SLEEP, pipe)
        assert os.getpgid(child.pid) == child.pid != os.getpgrp()
        child.stop(PATIENCE)


def test_a_command_that_is_not_there_raises() -> None:
    with pytest.raises(FileNotFoundError):
        ChildProcess(["no-such-command"])


def test_a_linked_process_has_pipe_memory_arguments_and_folder(echo: Path) -> None:
    child = LinkedProcess("echo", ["one", "two words"], folder=echo)
    try:
        assert child.link.poll(PATIENCE)
        assert child.link.recv() == ["one", "two words"]
        child.link.send(b"in memory")
        assert child.link.recv() == str(echo)
        assert os.pread(child.shared, 20, 0) == b"in memory"
        os.kill(child.pid, signal.SIGINT)  # as Ctrl-C reaches the whole group
        child.link.send(b"again")
        assert child.link.recv() == str(echo)
    finally:
        child.close()
    assert not psutil.pid_exists(child.pid)


def test_nothing_is_left_of_what_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patch:
        patch.setattr("subprocess.Popen", out_of_memory)
        with pytest.raises(BlockingIOError):
            LinkedProcess("echo")
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("kind", ["ChildProcess(['sleep', '60'])", "LinkedProcess('echo')"])
def test_none_outlives_its_parent(echo: Path, kind: str) -> None:
    code = (
        f"import sys; from extractors.child_process import ChildProcess, LinkedProcess\nchild = {kind}\n"
        "ready = isinstance(child, ChildProcess) if not hasattr(child, 'link') else child.link.recv()\n"
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
        deadline = time.monotonic() + PATIENCE
        while not is_gone(pid):
            assert time.monotonic() < deadline, "it lives on"
            time.sleep(0.02)


def test_it_ends_with_the_thread_that_started_it() -> None:
    """As the docstring says: what Linux watches is the thread."""
    found: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: found.append(ChildProcess(["sleep", "60"])))
    thread.start()
    thread.join()
    assert found[0].finish(PATIENCE)
    assert found[0].status == -signal.SIGTERM
