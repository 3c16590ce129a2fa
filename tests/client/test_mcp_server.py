"""The server for agents, asked by the Model Context Protocol's own client, over both of its transports."""

from __future__ import annotations

import asyncio
import os
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

from tests.app.live_api import LiveApi
from tests.app.scripted_worker import WORDS, ScriptedWorker, working

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CAPTION = " ".join(WORDS)
TOOLS = {"caption_video", "read_caption", "search_films", "read_frame", "list_captioners"}


@pytest.fixture
def environment(api: LiveApi, worker: ScriptedWorker) -> Iterator[dict[str, str]]:
    """Names the service, a worker of which ends all jobs as they come."""
    address = f"http://127.0.0.1:{api.port}"
    with working(worker, "stats"):
        yield {"REELWORD_URL": address, "PYTHONPATH": str(ROOT / "client"), "PATH": os.environ["PATH"]}


@asynccontextmanager
async def over_stdio(environment: dict[str, str]) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "reelword.mcp_server"], env=environment
    )
    async with Client(stdio_client(command)) as client:
        yield client


@asynccontextmanager
async def over_http(environment: dict[str, str]) -> AsyncIterator[Client]:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "reelword.mcp_server", "--http", "--port", str(port)]
    process = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.1)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            yield client
    finally:
        process.terminate()
        process.wait(timeout=20)


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer


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
