"""``make serve``, as people start it: its own entry point, real weights, and what it survives."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import structlog

from app.errors import PortInUse
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Queue
from app.serve.supervised_process import AT_ONCE, FIRST_PAUSE, LONGEST_PAUSE, Backoff, SupervisedProcess
from app.serve.supervisor import REDIS_PAUSE, REMIND_SECONDS, StartReport, Supervisor, free_port
from app.settings import Settings
from tests.app.workers import eventually
from tests.media import write_video

pytestmark = pytest.mark.slow

READY = "Reelword is ready at "
MODULE = (sys.executable, "-m", "app")
START_SECONDS = 240  #: beside others, and where all networks are converted first


class Served:
    """``reelword serve`` with its address and the lines that it prints. log: its standard error."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            line = self._lines.get(timeout=START_SECONDS)
        except queue.Empty:
            line = f"nothing in {START_SECONDS} s"
        assert line.startswith(READY), f"{line}; it wrote\n{log.read_text()}\n{describe(process.pid)}"
        self.address = line.removeprefix(READY)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put("ended without being ready")

    def pids(self, command: str) -> list[int]:
        """Its living descendants whose command line has these words."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [child.pid for child in found if command in command_of(child)]

    @property
    def last_line(self) -> str:
        """The last that it printed, once it has stopped."""
        lines = [self._lines.get() for _ in range(self._lines.qsize())]
        return lines[-2]  # what follows is the reader's own

    def stop(self, by: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(by)
        status = self.process.wait(60)
        self._reader.join(10)
        return status


@contextmanager
def served(
    folder: Path, data: Path, command: Sequence[str | Path] = MODULE, **environment: str
) -> Iterator[Served]:
    data.mkdir(exist_ok=True)
    given = {"REELWORD_DATA": str(data), "PORT": "0", "REDIS_URL": "", **environment}
    log = data.with_suffix(".log")
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*command, "serve"],
            cwd=folder,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield Served(process, log)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def caption(address: str, video: Path) -> dict[str, object]:
    """One job from upload to end."""
    with video.open("rb") as file:
        answer = httpx.post(f"{address}/caption", files={"video": file}, timeout=30)
    assert answer.status_code == 202, answer.text
    place = address + answer.headers["location"]
    eventually(lambda: httpx.get(place).json()["state"] not in ("queued", "running"), 90)
    return dict(httpx.get(place).json())


def test_serve_from_start_to_restart(root: Path, tmp_path: Path) -> None:
    clip = write_video(tmp_path / "clip.mp4", frames=30, width=320, height=240)
    data = tmp_path / "data"
    with served(root, data) as running:
        job = caption(running.address, clip)
        assert job["state"] == "succeeded", job["error"]
        assert isinstance(job["caption"], str)
        assert len(job["caption"].split()) > 2
        attention = httpx.get(f"{running.address}/jobs/{job['id']}/attention").json()
        assert [word["word"] for word in job["captions"][0]["words"]] == attention["words"]  # type: ignore[index]
        survives_kills(running, clip)
        assert running.stop() == 0
        assert running.last_line == "Reelword has stopped; no job waits."
    open_to_others = [file for file in data.rglob("*") if file.stat().st_mode & 0o077]
    assert all("weights" in file.parts for file in open_to_others), open_to_others  # those are public
    with served(root, data, REELWORD_ENGINE="tests.app.engines:Obedient") as again:  # which loads nothing
        assert httpx.get(f"{again.address}/jobs/{job['id']}").json()["caption"] == job["caption"]
        refuses_a_second(root, data)
        everyone = psutil.Process(again.process.pid).children(recursive=True)
        again.stop(signal.SIGKILL)
        eventually(lambda: not any(command_of(process) for process in everyone), 30)


def survives_kills(running: Served, clip: Path) -> None:
    """The worker, the API and Redis die; each is started again, the API at once, and the next job is done."""
    for command in ("app worker", "app api", "app api", "valkey-server"):
        before = running.pids(command)
        assert len(before) == 1
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda name=command, old=before: running.pids(name) not in ([], old), 20)  # type: ignore[misc]
        if command == "app api":
            eventually(lambda: is_alive(running.address), 60)
    eventually(lambda: is_ready(running.address), 120)
    assert caption(running.address, clip)["state"] == "succeeded"


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "no job waits."),
        (1, "1 job waits, and goes on when it starts again."),
        (3, "3 jobs wait, and go on when it starts again."),
    ],
)
def test_the_last_line_says_how_many_jobs_wait(
    settings: Settings, jobs: Jobs, capsys: pytest.CaptureFixture[str], count: int, said: str
) -> None:
    Queue(jobs.server, "somebody", lease=1, keys=jobs.keys).open()
    for number in range(count):
        jobs.submit(f"job{number}", CaptionOptions(), "uploads/x")
    over = threading.Event()
    over.set()
    Supervisor(settings, 0, None).run(over)
    assert capsys.readouterr().out.endswith(f"Reelword has stopped; {said}\n")


def test_the_last_line_is_said_without_redis_too(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    over = threading.Event()
    over.set()
    Supervisor(settings.model_copy(update={"redis_url": "redis://127.0.0.1:9"}), 0, None).run(over)
    assert "what waits in Redis goes on" in capsys.readouterr().out


def refuses_a_second(root: Path, data: Path) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "app", "serve"],
        cwd=root,
        env={**os.environ, "REELWORD_DATA": str(data), "PORT": "0", "REDIS_URL": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1
    assert "Another server uses the data folder" in second.stderr
    assert "Traceback" not in second.stderr


def is_alive(address: str) -> bool:
    try:
        return httpx.get(f"{address}/livez", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def describe(pid: int) -> str:
    """What it and its descendants do, a line each."""
    everyone = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return "\n".join(f"{each.pid} {each.status()} {each.cpu_times()} {command_of(each)}" for each in everyone)


def command_of(process: psutil.Process) -> str:
    """Its command line; empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one too
        return ""


def test_a_port_in_use_is_said_by_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=str(port)):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", port) == port
    assert free_port("127.0.0.1", 0) > 0


def test_what_keeps_ending_is_started_ever_more_slowly() -> None:
    backoff = Backoff()
    pauses: list[float] = []
    for _ in range(9 + AT_ONCE):
        assert backoff.is_due == (len(pauses) <= AT_ONCE)
        backoff.note_start()
        pauses.append(backoff.note_end())
    assert pauses[:AT_ONCE] == [0.0] * AT_ONCE
    assert pauses[AT_ONCE : AT_ONCE + 3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    assert not backoff.is_due


def test_what_lived_long_is_started_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backoff = Backoff()
    for _ in range(2000):  # days of it, without an overflow
        backoff.note_start()
        assert backoff.note_end() <= LONGEST_PAUSE
    monkeypatch.setattr("app.serve.supervised_process.SETTLED_AFTER", -1.0)
    assert backoff.note_end() == 0.0
    assert backoff.is_due


def test_redis_is_never_waited_for_long() -> None:
    backoff = Backoff(longest=REDIS_PAUSE)
    pauses: list[float] = []
    for _ in range(20):
        backoff.note_start()
        pauses.append(backoff.note_end())
    assert max(pauses) == REDIS_PAUSE == 2.0


def test_a_start_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("app.serve.supervisor.time.monotonic", lambda: now)
    starting = StartReport()
    with structlog.testing.capture_logs() as said:
        for missing, seconds in [("it", 0), ("it", 1), ("a worker", 2), ("a worker", REMIND_SECONDS + 1)]:
            now += seconds
            assert starting.note_missing(missing) == missing
        assert starting.note_missing(None) is None
    assert starting.is_over
    assert [line["event"] for line in said] == ["waiting for it", *["waiting for a worker"] * 2]


def test_a_process_that_will_not_end_is_killed() -> None:
    stubborn = SupervisedProcess("stubborn", [sys.executable, "-c", STUBBORN], {})
    stubborn.ensure_running()
    pid = stubborn.pid
    assert pid is not None
    time.sleep(1)  # for its handler to be in place
    stubborn.terminate()
    stubborn.finish(time.monotonic() + 0.5)
    assert not psutil.pid_exists(pid)


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


def test_a_process_that_cannot_be_started_now_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    kept = SupervisedProcess("sleeper", ["sleep", "60"], {})
    with monkeypatch.context() as patch:
        patch.setattr("subprocess.Popen", out_of_memory)
        kept.ensure_running()
    before = kept.pid
    kept.ensure_running()
    after = kept.pid
    assert before is None
    assert after is not None
    kept.terminate()
    kept.finish(time.monotonic() + 5)
