"""Answers the page: its HTML with what a chat unfurls of a link, its static files; the API's reference."""

import gzip
import html
import mimetypes
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.api.dependencies import ApiDependencies, ServiceDep
from app.api.etags import answer_compressed
from app.api.page_files import FILES, STATIC
from app.documents.job import document_of
from app.errors import JobError, QueueError
from app.jobs.job import Job
from app.settings import Settings

FOREVER = "public, max-age=31536000, immutable"
HOUR, DAY = 3600, 86400  #: seconds
REFERENCE = (STATIC / "reference.html").read_text()
TITLE = "Reelword"
TAGLINE = "A video goes in. A sentence comes out, and for every word the moment and the place it came from."

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
def page(request: Request) -> Response:
    return _page(request, PLAIN_TAGS)


@router.api_route("/f/{job_id}", methods=["GET", "HEAD"])
async def shared_film(job_id: str, request: Request, service: ServiceDep) -> Response:
    """Answers the page of one job; where no key is needed with its caption and picture for chats."""
    tags = PLAIN_TAGS
    if not service.settings.needs_key:
        tags = await anyio.to_thread.run_sync(_tags_of_job, job_id, request, service)
    return _page(request, tags, is_empty=False)


@router.api_route("/reference", methods=["GET", "HEAD"])
def read_reference(request: Request) -> Response:
    """Answers Redoc over ``/openapi.json``, light or dark; its script comes with fastapi-offline."""
    return HTMLResponse(REFERENCE.replace('="/', f'="{request.scope["root_path"]}/'))


@router.api_route("/static/{version}/{path:path}", methods=["GET", "HEAD"])
def static(version: str, path: str, request: Request) -> Response:
    """Answers a file; one that was asked for by another version's address is not to be kept."""
    file = (STATIC / path).resolve()
    if not file.is_relative_to(STATIC) or not file.is_file():
        raise HTTPException(404)
    headers = {"Cache-Control": FOREVER if version == FILES.version else "no-cache"}
    compressed = FILES.compressed.get(path)
    if compressed is None:
        return FileResponse(file, headers=headers)
    kind = mimetypes.guess_type(path)[0]
    return answer_compressed(request, compressed, kind, headers)


def _page(request: Request, tags: str, *, is_empty: bool = True) -> Response:
    """Answers the page; ``is_empty``: with examples, not with a film, so that nothing jumps as it loads."""
    retention = _say_retention(request.app.state.service.settings)
    page = FILES.page.replace('="/', f'="{request.scope["root_path"]}/')
    text = page.replace("<!-- unfurl -->", tags).replace("<!-- retention -->", retention).encode()
    if not is_empty:
        text = text.replace(b' class="is-empty"', b"", 1)
    data = gzip.compress(text, 5, mtime=0)
    return answer_compressed(request, data, "text/html", {"Cache-Control": "no-cache"})


def _say_retention(settings: Settings) -> str:
    """Says how long what is sent is kept."""
    days = settings.result_ttl / DAY
    result = f"{days:.0f} days" if days >= 2 else f"{settings.result_ttl / HOUR:.0f} hours"
    video = {"result": "Video and answer are", "off": "The answer is"}.get(
        settings.keep_uploads, "The answer is (the video for a shorter time)"
    )
    return f"{video} kept for {result} on the machine of this service alone, or until you delete them."


def _tags(title: str, description: str, picture: str = "", address: str = "") -> str:
    """Writes what a browser's tab and a chat's preview show (Open Graph, https://ogp.me).

    picture: the address of a picture of 1200 × 630; empty for none. address: the page's own, without what is
    beside the film; empty for none.
    """
    named = {
        "og:title": title,
        "og:description": description,
        "og:type": "video.other",
        "og:site_name": TITLE,
    }
    named |= {"og:url": address} if address else {}
    named |= {"og:image": picture, "og:image:width": "1200", "og:image:height": "630"} if picture else {}
    tags = [f"<title>{html.escape(title)}</title>"]
    tags += [f'<meta property="{name}" content="{html.escape(text)}">' for name, text in named.items()]
    tags += [f'<meta name="description" content="{html.escape(description)}">']
    tags += ['<meta name="twitter:card" content="summary_large_image">'] if picture else []
    return "\n".join(tags)


PLAIN_TAGS = _tags(TITLE, TAGLINE)


def _tags_of_job(job_id: str, request: Request, service: ApiDependencies) -> str:
    """Writes the tags of a job that has succeeded; those of the page for any other."""
    try:
        job: Job | None = service.jobs.get(job_id)
        if job is None or job.state != "succeeded":
            return PLAIN_TAGS
        document = document_of(job, service.blobs)
    except (QueueError, JobError):
        return PLAIN_TAGS
    base = str(request.base_url).rstrip("/")
    word = request.query_params.get("w", "")
    described = f"“{word}” and every other word: which moment, which place. {TITLE}" if word else TAGLINE
    picture = f"{base}/jobs/{job.id}/poster.png" + (f"?{urlencode({'word': word})}" if word else "")
    return _tags(document.caption or TITLE, described, picture, f"{base}/f/{job.id}")
