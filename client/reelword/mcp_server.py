"""Shows a Reelword service to agents, by the Model Context Protocol.

    reelword-mcp                      over standard input and output, as desktop clients start it
    reelword-mcp --http --port 8100   over streamable HTTP, at http://127.0.0.1:8100/mcp

REELWORD_URL and REELWORD_KEY name the service and its key. Over HTTP videos are taken by address alone: an
agent that is elsewhere is not to read the files of this machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from reelword.async_client import AsyncClient
from reelword.async_job import AsyncJob
from reelword.calls import is_address
from reelword.documents import FoundMoment, Segment, Word
from reelword.errors import ClientError, JobFailed, NotFinished

REPORT_SECONDS = 2.0  #: between two reports of how far a job is
INSTRUCTIONS = (
    "Captions videos and says from which moment and which place each word of a caption comes. Call "
    "caption_video first; search_films finds moments of all films captioned so far. Captions may be wrong: "
    "confidence is how often captions alike are right, and read_frame shows what was seen."
)


class CaptionedVideo(BaseModel):
    """Holds what was written of a video."""

    job: str  #: its id, for the other tools
    caption: str
    confidence: float | None = None  #: how often captions alike are right; None where it is not known
    words: list[Word]  #: those that name something
    segments: list[Segment]  #: of a film, else empty
    sampled: list[float]  #: seconds of the frames that were looked at, which read_frame counts from 0


def make_server(client: AsyncClient, *, reads_files: bool) -> MCPServer:
    """Makes the server.

    Args:
        client: speaks with the service.
        reads_files: whether a video may be a path on this machine.
    """
    server = MCPServer("reelword", instructions=INSTRUCTIONS)
    films = FilmTools(client, reads_files)
    for tool in (films.caption_video, films.read_caption, films.search_films, films.list_captioners):
        server.add_tool(tool)
    server.add_tool(films.read_frame, structured_output=False)
    return server


class FilmTools:
    """Holds the tools; their docstrings are what an agent reads."""

    def __init__(self, client: AsyncClient, reads_files: bool) -> None:
        self._client, self._reads_files = client, reads_files

    async def caption_video(
        self, video: str, context: Context[Any], captioner: str | None = None, segments: str | None = None
    ) -> CaptionedVideo:
        """Writes a caption of a video and says from which moment and place each of its words comes.

        Args:
            video: an http(s) address, or the path of a file where this server runs on your machine.
            context: of the request.
            captioner: one of list_captioners; by default the service's.
            segments: "shots", "none", "auto" (the default), or seconds: how a long film is cut.
        """
        options: dict[str, Any] = {"captioner": captioner, "segments": segments}
        with _named_errors():
            job = await self._client.submit(self._open(video), **options)
            return await self._describe(await _wait(job, context))

    async def read_caption(self, job: str) -> CaptionedVideo:
        """Reads again what was written of a video, by the id of its job."""
        with _named_errors():
            return await self._describe(await self._client.job(job))

    async def search_films(self, words: str, limit: int = 8) -> list[FoundMoment]:
        """Finds the moments of all captioned films that fit some words best, the best first."""
        with _named_errors():
            return await self._client.search(words, limit)

    async def read_frame(self, job: str, number: int, of_segment: bool = False) -> Image:
        """Shows a frame: the one that stands for a segment of a film, or one that the captioner looked at.

        Args:
            job: the id of its job.
            number: counted from 0, in the order of ``segments`` or of ``sampled``.
            of_segment: whether a segment's is asked for.
        """
        read = self._client.segment_frame if of_segment else self._client.frame
        with _named_errors():
            return Image(data=await read(job, number), format="jpeg")

    async def list_captioners(self) -> dict[str, str]:
        """Lists the captioners that can be chosen, each with what it does."""
        with _named_errors():
            return {each.name: each.about for each in (await self._client.models()).captioners}

    def _open(self, video: str) -> str | Path:
        if is_address(video):
            return video
        path = Path(video).expanduser()
        if not self._reads_files:
            raise ToolError("This server takes videos by http(s) address alone.")
        if not path.is_file():
            raise ToolError(f"There is no file {path}.")
        return path

    async def _describe(self, job: AsyncJob) -> CaptionedVideo:
        if job.state != "succeeded":
            raise JobFailed(job)
        has_words = bool(job.urls and job.urls.get("attention"))
        words = await job.words if has_words else []
        best = job.captions[0] if job.captions else None
        return CaptionedVideo(
            job=job.id,
            caption=job.caption or "",
            confidence=None if best is None else best.confidence,
            words=[word for word in words if word.content],
            segments=job.segments or [],
            sampled=job.sampled or [],
        )


async def _wait(job: AsyncJob, context: Context[Any]) -> AsyncJob:
    """Waits until a job is over, and reports how far it is."""
    while True:
        try:
            return await job.wait(timeout=REPORT_SECONDS)
        except NotFinished as waiting:
            await context.report_progress(waiting.job.progress, 1.0, waiting.job.stage or waiting.job.state)


@contextmanager
def _named_errors() -> Iterator[None]:
    """Tells an agent what the service refused, and why."""
    try:
        yield
    except ClientError as error:
        raise ToolError(str(error)) from error


def main() -> None:
    """Serves until its client goes, or over HTTP until it is stopped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--http", action="store_true", help="serve over streamable HTTP, at /mcp")
    parser.add_argument("--host", default="127.0.0.1", help="to listen on, with --http")
    parser.add_argument("--port", type=int, default=8100, help="to listen on, with --http")
    arguments = parser.parse_args()
    server = make_server(AsyncClient(), reads_files=not arguments.http)
    if arguments.http:
        server.run("streamable-http", host=arguments.host, port=arguments.port)
    else:
        server.run()


if __name__ == "__main__":
    main()
