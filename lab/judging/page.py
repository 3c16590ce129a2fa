"""The page on which clips are judged: a contact sheet, its captions, and keys for marks.

It is served on this machine alone, and each mark is on the disk before the page shows it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException
from pydantic import BaseModel
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse

from lab.judging.session import JudgingSession, Mark

PAGE = Path(__file__).parent / "static" / "judge.html"
HOSTS = ["127.0.0.1", "localhost", "testserver"]


class CaptionView(BaseModel):
    """A caption as the page has it: who wrote it is told only once the clip has been judged."""

    text: str
    mark: Mark | None
    captioners: tuple[str, ...] | None


class ClipView(BaseModel):
    """A clip as the page has it."""

    name: str
    captions: list[CaptionView]


class GivenMark(BaseModel):
    """A mark from the page; null takes it back."""

    clip: int
    caption: int
    mark: Mark | None


def judging_app(session: JudgingSession) -> FastAPI:
    """The page of one session and its two routes."""
    app = FastAPI(openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)
    lock = threading.Lock()

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(PAGE)

    @app.get("/clips")
    def clips() -> list[ClipView]:
        return [_view(session, place) for place in range(len(session.clips))]

    @app.get("/sheets/{clip}")
    def sheet(clip: int) -> FileResponse:
        if not 0 <= clip < len(session.clips):
            raise HTTPException(404)
        return FileResponse(session.sheet(clip), media_type="image/jpeg")

    @app.post("/marks")
    def mark(given: Annotated[GivenMark, Body()]) -> ClipView:
        with lock:
            if not 0 <= given.clip < len(session.clips):
                raise HTTPException(404)
            if not 0 <= given.caption < len(session.clips[given.clip].captions):
                raise HTTPException(404)
            session.mark(given.clip, given.caption, given.mark)
            return _view(session, given.clip)

    return app


def _view(session: JudgingSession, place: int) -> ClipView:
    clip = session.clips[place]
    captions = [
        CaptionView(text=each.text, mark=each.mark, captioners=each.captioners if clip.is_judged else None)
        for each in clip.captions
    ]
    return ClipView(name=clip.name, captions=captions)
