"""The README's commands, typed as they stand there; `make serve` on a free port with an empty data folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.media import write_video

pytestmark = pytest.mark.slow

START_SECONDS = 240  # the first start converts the image network for OpenVINO
JOB_SECONDS = 120
STOP_SECONDS = 60
README_ADDRESS = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Reader:
    """Someone who types the README's commands in a folder with a clip and a checkout."""

    folder: Path
    environment: dict[str, str]
    port: int

    def types(self, command: str, job: str = "") -> str:
        """Runs a line of the README; only the port and the job's id are the reader's own."""
        line = command.replace(README_ADDRESS, f"http://127.0.0.1:{self.port}").replace("<id>", job)
        run = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert run.returncode == 0, f"{line}\n{run.stdout}\n{run.stderr}"
        return run.stdout


def _commands(root: Path) -> list[str]:
    """The commands of the README's shell blocks, without their comments."""
    blocks = re.findall(r"```sh\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def _command(root: Path, start: str) -> str:
    (found,) = [line for line in _commands(root) if re.match(start, line)]
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _curl_for_a_machine_without(folder: Path, root: Path) -> None:
    """The README's reader has curl; a machine that runs only the tests may not."""
    script = folder / "curl"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {root}/tests/curl.py "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


@pytest.fixture(scope="module")
def reader(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("reader")
    write_video(folder / "clip.mp4")
    # the checkout's own files, as if the reader stood in it, and what the commands write stays here
    for entry in (".venv", "app", "extractors", "models", "training", "weights", "benchmarks", "Makefile"):
        (folder / entry).symlink_to(root / entry)
    for entry in ("pyproject.toml", "constraints.txt"):
        (folder / entry).symlink_to(root / entry)
    (root / "data" / "cache").mkdir(parents=True, exist_ok=True)
    (folder / "data").mkdir()
    (folder / "data" / "cache").symlink_to(
        root / "data" / "cache"
    )  # converted networks, kept from run to run
    path = os.environ["PATH"]
    if shutil.which("curl") is None:
        (folder / "bin").mkdir()
        _curl_for_a_machine_without(folder / "bin", root)
        path = f"{folder / 'bin'}{os.pathsep}{path}"
    port = _free_port()
    own = {"PATH": path, "PORT": str(port), "REELWORD_DATA": str(folder / "data")}
    inherited = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "MAKEFLAGS")}
    return Reader(folder, {**inherited, **own}, port)


@pytest.fixture(scope="module")
def served(reader: Reader, root: Path) -> Iterator[Reader]:
    """`make serve`, from the start to the line that says it is ready."""
    log = reader.folder / "serve.log"
    command = _command(root, "make serve")
    with log.open("w") as output:
        server = subprocess.Popen(
            ["bash", "-c", command],
            cwd=reader.folder,
            env=reader.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_it_says_so(server, log, f":{reader.port}")
        yield reader
        os.killpg(server.pid, signal.SIGINT)  # what Ctrl+C does
        server.wait(timeout=STOP_SECONDS)
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_until_it_says_so(server: subprocess.Popen[bytes], log: Path, address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not re.search(rf"ready.*{address}|{address}.*ready", log.read_text(), re.IGNORECASE):
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def _job_ended(reader: Reader, root: Path, job: str) -> dict[str, Any]:
    deadline = time.monotonic() + JOB_SECONDS
    while True:
        answer: dict[str, Any] = json.loads(reader.types(_command(root, r"curl .*/jobs/<id>$"), job))
        if answer["state"] not in ("queued", "running"):
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.3)


def test_curl_posts_a_clip_and_reads_its_caption(served: Reader, root: Path) -> None:
    accepted = json.loads(served.types(_command(root, "curl -F video=@app/")))
    answer = _job_ended(served, root, accepted["id"])
    assert answer["state"] == "succeeded", answer
    assert answer["caption"]
    assert answer["media"]["frames"] > 0


def test_caption_without_a_server(reader: Reader, root: Path) -> None:
    printed = reader.types(_command(root, r".*reelword caption clip.mp4$"))
    answer = json.loads(reader.types(_command(root, r".*reelword caption clip.mp4 --json$")))
    assert answer["state"] == "succeeded"
    assert answer["caption"] in printed
    reader.types(_command(root, r".*reelword caption clip.mp4 --attention out/$"))
    assert list((reader.folder / "out").rglob("*.png"))


def test_links_of_the_readme_lead_somewhere(root: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (root / "README.md").read_text())
    assert links
    for link in links:
        assert link.startswith("https://") or (root / link).exists(), link
