"""The examples of the documents and of examples/, run as they stand there against a live API."""

from __future__ import annotations

import base64
import json
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

from reelword import Client
from tests.app.live_api import LiveApi
from tests.app.scripted_worker import WORDS, ScriptedWorker, working
from tests.media import write_video

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


def run_example(language: str, text: str, folder: Path, **environment: str) -> str:
    """What an example prints. Skips where the machine lacks what runs it."""
    if language == "js" and shutil.which("node") is None:
        pytest.skip("no Node on this machine")
    if language == "sh" and shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    programs = {"sh": ["bash", "-eu", "-c", text], "python": [sys.executable, "-c", text]}
    if language == "js":
        (folder / "example.mjs").write_text(text)
    run = subprocess.run(
        programs.get(language, ["node", "example.mjs"]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "client"), **environment},
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


PAGES = ("README.md", "docs/api.md", "docs/long-video.md")


def curl_commands() -> list[str]:
    """The manuals' requests, one by one unless they pass on what came; webhooks have tests of their own."""
    texts = [(ROOT / page).read_text().partition("\n## Examples\n")[0] for page in PAGES]
    blocks = [block for text in texts for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    whole = [block for block in blocks if "=$(curl " in block]
    lines = [line for block in blocks if block not in whole for line in block.splitlines()]
    singles = [line.partition("  #")[0].strip() for line in lines]
    return [
        *whole,
        *(line for line in singles if line.startswith("curl ") and "example.org/hook" not in line),
    ]


def test_each_request_of_the_manuals_is_one_that_the_service_takes(
    api: LiveApi, worker: ScriptedWorker, folder: Path
) -> None:
    address, commands = f"http://127.0.0.1:{api.port}", curl_commands()
    assert len(commands) > 12
    (folder / "app").symlink_to(ROOT / "app")  # whose clip README sends
    for name in ("a.mp4", "b.mp4", "film.mp4"):
        (folder / name).write_bytes(b"a video")
    with working(worker, "stats", "g2l"), Client(address) as client:
        for text in commands:
            job = client.batch([b"a video"]) if "/batches/<id>" in text else client.caption(b"a video")
            command = text.replace("curl ", "curl -sS --fail-with-body ").replace("<id>", job.id)
            for named in (ADDRESS, "https://reel.example"):
                command = command.replace(named, address)
            run_example("sh", command.replace("$KEY", "none"), folder)


@pytest.mark.usefixtures("_working")
def test_the_clients_own_example_prints_each_word(api: LiveApi, folder: Path) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "client" / "README.md").read_text(), re.DOTALL)
    lines = run_example("python", text, folder, REELWORD_URL=f"http://127.0.0.1:{api.port}").splitlines()
    assert CAPTION in lines
    assert [line.split()[0] for line in lines[-len(WORDS) :]] == list(WORDS)


@pytest.mark.usefixtures("_working")
def test_the_notebook_runs_from_upload_to_plot(api: LiveApi, tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert (notebook["nbformat"], [cell["outputs"] for cell in cells]) == (4, [[]] * len(cells))
    text = "\n".join("".join(cell["source"]) for cell in cells)
    text += "\nfor number in plt.get_fignums():"
    text += f"\n    plt.figure(number).savefig(Path({str(tmp_path)!r}, f'{{number}}.png'))"
    named = {
        "REELWORD_URL": f"http://127.0.0.1:{api.port}",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(tmp_path),
    }
    printed = run_example("python", text, ROOT / "examples", **named)
    assert "100% succeeded" in printed or "0% succeeded" in printed
    assert "WEBVTT" in printed
    assert {file.name for file in tmp_path.glob("*.png")} == {"1.png", "2.png"}


@pytest.mark.usefixtures("_working")
def test_the_gradio_page_captions(api: LiveApi, folder: Path) -> None:
    peer = pytest.importorskip("gradio_client", reason="gradio is not installed")
    port = _free_port()
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT / "client"), "REELWORD_URL": f"http://127.0.0.1:{api.port}",
        "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False",
    }  # fmt: skip
    page = subprocess.Popen([sys.executable, ROOT / "examples" / "gradio_app.py"], env=environment)
    try:
        _wait_for(port, SECONDS)
        client = peer.Client(f"http://127.0.0.1:{port}")
        write_video(folder / "clip.mp4")
        video = peer.handle_file(str(folder / "clip.mp4"))
        caption, words, clip = client.predict(video, api_name="/caption")
        assert caption == CAPTION
        assert [row[0] for row in words["data"]] == list(WORDS)
        assert Path(clip).stat().st_size > 1000
    finally:
        page.kill()
        page.wait()


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


def _wait_for(port: int, seconds: float = 10) -> None:
    for _ in range(round(20 * seconds)):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the receiver does not listen")
