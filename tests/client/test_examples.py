"""The examples of docs/api.md, run as they stand there against a live API."""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook

from tests.app.live_api import LiveApi
from tests.app.scripted_worker import WORDS, ScriptedWorker, working

pytestmark = pytest.mark.slow

CAPTION = " ".join(WORDS)
ADDRESS = "http://127.0.0.1:8000"
SECONDS = 60


def examples(root: Path) -> list[tuple[str, str]]:
    """Language and text of each example, the webhook's receiver last."""
    page = (root / "docs" / "api.md").read_text().partition("\n## Examples\n")[2].partition("\n## ")[0]
    return re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)


ROOT = Path(__file__).parents[2]
EXAMPLES = examples(ROOT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("clip.mp4", "second.mp4"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.fixture
def _working(worker: ScriptedWorker) -> Iterator[None]:
    """A worker that ends all jobs as they come."""
    with working(worker, "stats"):
        yield


def run_example(language: str, text: str, folder: Path) -> str:
    """What an example prints. Skips where the machine lacks what runs it."""
    if language == "js" and shutil.which("node") is None:
        pytest.skip("no Node on this machine")
    if language == "sh" and shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    programs = {"sh": ["bash", "-eu", "-c", text], "python": [sys.executable, "-c", text]}
    (folder / "example.mjs").write_text(text)
    run = subprocess.run(
        programs.get(language, ["node", "example.mjs"]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "client")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, f"{text}\n{run.stdout}\n{run.stderr}"
    return run.stdout


def test_there_are_three_examples_in_each_language_and_a_receiver() -> None:
    assert [language for language, _ in EXAMPLES] == [*["sh", "python", "js"] * 3, "python"]


@pytest.mark.usefixtures("_working")
@pytest.mark.parametrize("number", range(9))
def test_an_example_prints_a_caption(api: LiveApi, folder: Path, number: int) -> None:
    language, text = EXAMPLES[number]
    assert ADDRESS in text
    printed = run_example(language, text.replace(ADDRESS, f"http://127.0.0.1:{api.port}"), folder)
    assert CAPTION in printed
    assert printed.count(CAPTION) >= (2 if "batches" in text or "batch(" in text else 1)


def test_the_receiver_takes_what_is_signed_and_nothing_else() -> None:
    port = _free_port()
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    receiver = subprocess.Popen(
        [sys.executable, "-c", EXAMPLES[9][1].replace("9000", str(port))],
        env={**os.environ, "WEBHOOK_SECRET": secret},
        stdout=subprocess.PIPE,
        text=True,
    )
    body = '{"type": "job.succeeded", "data": {"id": "1", "caption": "a dog runs"}}'
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign("msg_1", now, body),
    }
    try:
        _wait_for(port)
        address = f"http://127.0.0.1:{port}/"
        assert httpx.post(address, content=body, headers=headers).status_code == 204
        assert httpx.post(address, content=body.replace("dog", "cat"), headers=headers).status_code == 401
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "job.succeeded a dog runs\n"
    finally:
        receiver.kill()
        receiver.communicate()


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    for _ in range(200):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the receiver does not listen")
