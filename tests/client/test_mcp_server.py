"""The server for agents, asked by the Model Context Protocol's own client, over both of its transports."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from app.documents.search import FoundMoment
from tests.app.api.routes.test_captions import begin
from tests.app.live_api import LiveApi, send
from tests.app.scripted_worker import WORDS, ScriptedWorker, answer, attention_document, working

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MANUAL = (ROOT / "docs" / "agents.md").read_text()
ADDRESS, PORT = "http://127.0.0.1:8000", "8100"  #: of the service and of the server for agents, in the manual
CAPTION = " ".join(WORDS)
TOOLS = {"caption_video", "read_caption", "search_films", "read_frame", "list_captioners"}


@pytest.fixture
def environment(api: LiveApi, tmp_path: Path) -> dict[str, str]:
    """Names the service; ``reelword-mcp`` is on the path, as where the client is installed."""
    program = tmp_path / "bin" / "reelword-mcp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m reelword.mcp_server "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"REELWORD_URL": f"http://127.0.0.1:{api.port}", "PYTHONPATH": str(ROOT / "client"), "PATH": path}


@pytest.fixture
def _working(worker: ScriptedWorker) -> Iterator[None]:
    """A worker ends all jobs as they come."""
    with working(worker, "stats"):
        yield


@asynccontextmanager
async def over_stdio(environment: dict[str, str]) -> AsyncIterator[Client]:
    """Starts the server as a desktop client does that has the manual's configuration."""
    (configuration,) = re.findall(r"```json\n(.*?)```", MANUAL, re.DOTALL)
    server = json.loads(configuration)["mcpServers"]["reelword"]
    assert server["env"] == {"REELWORD_URL": ADDRESS}
    command = StdioServerParameters(
        command=server["command"], args=server.get("args", []), env={**server["env"], **environment}
    )
    async with Client(stdio_client(command)) as client:
        yield client


@asynccontextmanager
async def over_http(environment: dict[str, str]) -> AsyncIterator[Client]:
    """Starts the server by the manual's line, and connects to the manual's address, on a free port."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (line,) = re.findall(rf"^REELWORD_URL={ADDRESS} (reelword-mcp --http .*?) +#", MANUAL, re.MULTILINE)
    (address,) = set(re.findall(rf"http://[\d.]+:{PORT}/\w+", MANUAL))
    command = shlex.split(line.replace(PORT, str(port)))
    process = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.1)
        async with Client(address.replace(PORT, str(port))) as client:
            yield client
    finally:
        process.terminate()
        process.wait(timeout=20)


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer


@pytest.mark.usefixtures("_working")
def test_over_stdio_an_agent_captions_a_file_and_looks_at_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"a video")

    async def talk() -> None:
        async with over_stdio(environment) as client:
            tools = (await client.list_tools()).tools
            assert {each.name for each in tools} == TOOLS
            assert all(each.description for each in tools)
            captioned = (await call(client, "caption_video", video=str(clip))).structured_content
            assert captioned["caption"] == CAPTION
            words = captioned["words"]
            assert {each["text"] for each in words} <= set(WORDS)
            assert words
            assert all(each["content"] for each in words)
            again = await call(client, "read_caption", job=captioned["job"])
            assert again.structured_content == captioned
            frame = (await call(client, "read_frame", job=captioned["job"], number=0)).content[0]
            assert frame.mime_type == "image/jpeg"
            captioners = await call(client, "list_captioners")
            assert "stats" in captioners.structured_content

    asyncio.run(talk())


def test_an_agent_searches_films_and_looks_at_the_moments_that_were_found(
    environment: dict[str, str], api: LiveApi, worker: ScriptedWorker
) -> None:
    location = send(api, segments="shots").headers["location"]
    claim = worker.take()
    folder = begin(worker, claim, 2)
    worker.blobs.write(f"{claim.results}/attention.json", json.dumps(attention_document()).encode())
    assert worker.jobs.succeed(claim, {**answer(), "segments": vars(folder.kept)})
    job = location.rpartition("/")[2]
    worker.found = [
        FoundMoment(
            job=job, source="clip.mp4", start=2.5, end=5.0, representative=3.5, caption="scene 1", fit=0.9,
            picture=f"{location}/segments/1/frame.jpg",
        )
    ]  # fmt: skip

    async def talk() -> None:
        async with over_stdio(environment) as client:
            film = (await call(client, "read_caption", job=job)).structured_content
            assert [each["start"] for each in film["segments"]] == [0.0, 2.5]
            answer = await call(client, "search_films", words="scene one", limit=3)
            (moment,) = answer.structured_content["result"]
            assert (moment["job"], moment["start"], moment["caption"]) == (job, 2.5, "scene 1")
            shown = await call(client, "read_frame", job=moment["job"], number=1, of_segment=True)
            assert base64.b64decode(shown.content[0].data) == b"a picture"

    with working(worker, "stats"):
        asyncio.run(talk())


def test_the_manual_names_each_tool_with_what_it_takes(environment: dict[str, str]) -> None:
    rows = dict(re.findall(r"^\| `(\w+)\(([^)]*)\)`", MANUAL, re.MULTILINE))

    async def talk() -> dict[str, str]:
        async with over_stdio(environment) as client:
            tools = (await client.list_tools()).tools
            return {each.name: ", ".join(each.input_schema["properties"]) for each in tools}

    assert asyncio.run(talk()) == rows


@pytest.mark.usefixtures("_working")
def test_what_the_service_refuses_is_told_in_its_words(environment: dict[str, str], tmp_path: Path) -> None:
    async def talk() -> None:
        async with over_stdio(environment) as client:
            answer = await client.call_tool("read_caption", {"job": "0" * 32})
            assert answer.is_error
            assert "job" in answer.content[0].text  # type: ignore[union-attr]
            answer = await client.call_tool("caption_video", {"video": str(tmp_path / "none.mp4")})
            assert answer.is_error
            assert "There is no file" in answer.content[0].text  # type: ignore[union-attr]

    asyncio.run(talk())


@pytest.mark.usefixtures("_working")
def test_over_http_no_file_of_the_machine_is_read(environment: dict[str, str], tmp_path: Path) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"a video")

    async def talk() -> None:
        async with over_http(environment) as client:
            assert {each.name for each in (await client.list_tools()).tools} == TOOLS
            answer = await client.call_tool("caption_video", {"video": str(clip)})
            assert answer.is_error
            assert "address alone" in answer.content[0].text  # type: ignore[union-attr]
            assert "stats" in (await call(client, "list_captioners")).structured_content

    asyncio.run(talk())
