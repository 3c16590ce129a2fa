"""Takes large files in parts, and goes on where a connection broke: ``/files``, by tus 1.0.

Of https://tus.io/protocols/resumable-upload: the core protocol and the extensions creation, expiration and
termination. ``POST /caption`` takes a file that has come whole by its id in the field ``file``.
"""

import base64
import binascii
from collections.abc import Mapping
from email.utils import formatdate
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from app.api import problems, refusals
from app.api.dependencies import CallerDep, ServiceDep
from app.api.receiving.fields import body_schema
from app.api.receiving.sent_files import SentFile, SentFiles
from app.api.receiving.upload import STALL_SECONDS, UNLIMITED, displayable, too_large, unstalled
from app.documents.job import Document, rfc3339

VERSION = "1.0.0"
PART = "application/offset+octet-stream"
MOST_BYTES = 2**53  #: of a length or an offset; the limit itself is far below

FileId = Annotated[str, Path(description="The last part of the address that POST /files answered with.")]
Length = Annotated[int, Header(alias="Upload-Length", ge=1, le=MOST_BYTES, description="Bytes of the file.")]
Offset = Annotated[
    int, Header(alias="Upload-Offset", ge=0, le=MOST_BYTES, description="Bytes that have come before these.")
]
Metadata = Annotated[
    str,
    Header(
        alias="Upload-Metadata",
        max_length=4096,
        description="Names and values in base64; `filename` is read.",
        examples=["filename Y2xpcC5tcDQ="],
    ),
]


def speak_tus(version: Annotated[str, Header(alias="Tus-Resumable")] = VERSION) -> None:
    """Raises NotTus where a request is of another version."""
    if version != VERSION:
        raise refusals.NotTus


router = APIRouter(prefix="/files", tags=["files"], dependencies=[Depends(speak_tus)])


class SentFileDocument(Document):
    """Describes a file that arrives in parts."""

    id: str = Field(description="For the field `file` of POST /caption, once all has come.")
    filename: str
    size: int = Field(description="Bytes that it will have.")
    received: int = Field(description="Bytes that have come.")
    expires_at: str | None = Field(description="RFC 3339, UTC: when it goes, where nothing more comes of it.")


@router.options("", status_code=204, include_in_schema=False)
@router.options("/{file_id}", status_code=204, include_in_schema=False)
def describe_tus(service: ServiceDep, file_id: str = "") -> Response:
    """Tells what of tus there is."""
    headers = {
        "Allow": "DELETE, GET, HEAD, OPTIONS, PATCH" if file_id else "OPTIONS, POST",
        "Tus-Version": VERSION,
        "Tus-Extension": "creation,expiration,termination",
        "Tus-Max-Size": str(service.settings.max_upload_bytes),
    }
    return Response(status_code=204, headers=_tus(headers))


@router.post(
    "",
    status_code=201,
    response_model=SentFileDocument,
    responses={
        201: {"headers": problems.header("Location", "The file's address.")},
        **problems.openapi_responses(
            refusals.NotTus, refusals.UploadTooLarge, refusals.TooManyFiles, refusals.StorageFull
        ),
    },
)
def create_file(service: ServiceDep, caller: CallerDep, size: Length, metadata: Metadata = "") -> Response:
    """Begins a file that is sent in parts: as `Upload-Length` has it, of which nothing has come yet.

    Its bytes follow by `PATCH` to the address in `Location`. What no job takes is removed a day after its
    last byte.
    """
    if size > (limit := caller.upload_limit(service.settings.max_upload_bytes)):
        raise too_large(limit)
    file = service.files.create(size, _filename(metadata), caller.owner)
    return _show(service.files, file, 201, {"Location": f"{service.root}/files/{file.id}"})


@router.get(
    "/{file_id}", response_model=SentFileDocument, responses=problems.openapi_responses(refusals.UnknownFile)
)
def get_file(file_id: FileId, service: ServiceDep, caller: CallerDep) -> Response:
    """Shows how much of a file has come, in `Upload-Offset` too: where to go on after a break."""
    file = service.files.find(file_id, caller.only)
    return _show(service.files, file, 200, {"Upload-Length": str(file.size)})


@router.patch(
    "/{file_id}",
    status_code=204,
    response_class=Response,
    max_body_size=UNLIMITED,
    openapi_extra=body_schema({PART: {"type": "string", "format": "binary"}}),
    responses={
        204: {"description": "With `Upload-Offset`, how many bytes have come."},
        **problems.openapi_responses(
            refusals.UnknownFile,
            refusals.WrongOffset,
            refusals.NotMultipart,
            refusals.UploadTooLarge,
            refusals.UploadStalled,
            refusals.StorageFull,
        ),
    },
)
async def append_to_file(
    file_id: FileId, request: Request, service: ServiceDep, caller: CallerDep, offset: Offset
) -> Response:
    """Takes the bytes of a file that follow those that have come; what has come stays where it breaks off."""
    if request.headers.get("content-type") != PART:
        raise refusals.NotMultipart(f"The content type is not {PART}.")
    file = await anyio.to_thread.run_sync(service.files.find, file_id, caller.only)
    with service.files.appending(file, offset) as part:
        # not in_pieces, which drops what a broken body has left of its last piece
        async for piece in unstalled(request.stream(), STALL_SECONDS):
            await anyio.to_thread.run_sync(part.append, piece)
    return Response(status_code=204, headers=_progress(service.files, file))


@router.delete(
    "/{file_id}",
    status_code=204,
    response_class=Response,
    responses=problems.openapi_responses(refusals.UnknownFile),
)
def delete_file(file_id: FileId, service: ServiceDep, caller: CallerDep) -> Response:
    """Removes a file that no job has taken."""
    service.files.remove(service.files.find(file_id, caller.only))
    return Response(status_code=204, headers=_tus())


def _show(files: SentFiles, file: SentFile, status: int, headers: Mapping[str, str]) -> Response:
    document = SentFileDocument(
        id=file.id,
        filename=file.filename,
        size=file.size,
        received=files.offset(file),
        expires_at=rfc3339(files.expires_at(file)),
    )
    headers = {**_progress(files, file), "Cache-Control": "no-store", **headers}
    return JSONResponse(document.model_dump(mode="json"), status, headers)


def _progress(files: SentFiles, file: SentFile) -> dict[str, str]:
    expires = formatdate(files.expires_at(file), usegmt=True)
    return _tus({"Upload-Offset": str(files.offset(file)), "Upload-Expires": expires})


def _tus(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"Tus-Resumable": VERSION, **(headers or {})}


def _filename(metadata: str) -> str:
    """Reads the file's name; empty where there is none that can be read."""
    pairs = (pair.strip().partition(" ") for pair in metadata.split(","))
    encoded = {name: value for name, _, value in pairs}.get("filename", "")
    try:
        return displayable(base64.b64decode(encoded, validate=True).decode("utf-8", "replace"))
    except binascii.Error:
        return ""
