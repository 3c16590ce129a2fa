"""The page at ``/``: one HTML file, its scripts and its style, served as they lie in ``app/static``."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
def page() -> FileResponse:
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})


def static_files() -> StaticFiles:
    return StaticFiles(directory=STATIC)
