"""Answers ``/session``: a page is signed in with a key, which its cookie then stands for.

The cookie holds a secret of its own and never the key. Scripts cannot read it, other sites' pages cannot send
it, and a foreign Origin writes nothing (app/api/guards/access.py).
"""

from contextlib import suppress
from typing import Any, Self
from urllib.parse import parse_qs

import anyio.to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from app.access.keys import ApiKey
from app.api import problems, refusals
from app.api.dependencies import ApiDependencies, Caller, ServiceDep
from app.api.guards.access import COOKIE, check_rate, count_request, find_key, session_cookie
from app.api.receiving.fields import body_schema
from app.api.receiving.option_body import PLAIN_FORM
from app.api.receiving.upload import UNLIMITED

FORM_BYTES = 4096  #: a key has less than a hundred

router = APIRouter(prefix="/session", tags=["session"])


class SessionDocument(BaseModel):
    """Describes whose key was sent, for a page that decides whether to ask for a key."""

    required: bool = Field(description="Whether the service asks for a key.")
    name: str | None = Field(description="Whom the key is for; null where there is none, or none that opens.")
    scopes: list[str] = Field(description="What the key may do.")

    @classmethod
    def of(cls, service: ApiDependencies, key: ApiKey | None) -> Self:
        return cls(
            required=service.settings.needs_key,
            name=None if key is None else key.name,
            scopes=[] if key is None else list(key.scopes),
        )


def _form_schema() -> dict[str, Any]:
    """Describes the form for OpenAPI: the body is read by hand, within its few bytes."""
    key = {"type": "string", "description": "As `keys add` printed it."}
    return body_schema({PLAIN_FORM: {"type": "object", "required": ["key"], "properties": {"key": key}}})


@router.get("")
async def get_session(request: Request, service: ServiceDep) -> SessionDocument:
    """Returns whether a key is needed, and whose this request was sent with."""
    key = None
    if service.settings.needs_key:
        with suppress(refusals.KeyMissing, refusals.KeyWrong):
            key = await find_key(service, request.headers)
    return SessionDocument.of(service, key)


@router.post(
    "",
    max_body_size=UNLIMITED,
    openapi_extra=_form_schema(),
    response_model=SessionDocument,
    responses=problems.openapi_responses(refusals.KeyMissing, refusals.KeyWrong, refusals.MalformedForm),
)
async def sign_in(request: Request, service: ServiceDep) -> JSONResponse:
    """Takes a key in a form and sets the page's cookie, for a week. Where no key is needed it sets none."""
    token = await _read_key(request)
    if not service.settings.needs_key:
        return _answer(SessionDocument.of(service, None))
    key = await find_key(service, Headers({"authorization": f"Bearer {token}"}))
    request.state.caller = Caller(key)
    if (rate := await count_request(service, key, is_writing=True)) is not None:
        check_rate(key, rate)
    secret, seconds = await anyio.to_thread.run_sync(service.keys.store.open_session, key)
    answer = _answer(SessionDocument.of(service, key))
    _set_cookie(answer, request, secret, seconds)
    return answer


@router.delete("", response_model=SessionDocument)
async def sign_out(request: Request, service: ServiceDep) -> JSONResponse:
    """Ends the page's session: its cookie opens nothing any more, wherever it was copied to."""
    cookie = session_cookie(request.headers)
    if cookie is not None:
        await service.keys.close_session(cookie)
    answer = _answer(SessionDocument.of(service, None))
    _set_cookie(answer, request, "", 0)
    return answer


def _answer(document: SessionDocument) -> JSONResponse:
    return JSONResponse(document.model_dump(mode="json"), headers={"Cache-Control": "no-store"})


def _set_cookie(answer: JSONResponse, request: Request, value: str, seconds: int) -> None:
    is_https = request.url.scheme == "https"
    path = request.scope["root_path"] or "/"
    answer.set_cookie(COOKIE, value, seconds, path=path, httponly=True, samesite="strict", secure=is_https)


async def _read_key(request: Request) -> str:
    """Reads the form's key. Raises MalformedForm, KeyMissing."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            raise refusals.MalformedForm(f"It has more than {refusals.in_units(FORM_BYTES)}.")
    keys = parse_qs(body.decode("utf-8", "replace")).get("key", [])
    if len(keys) != 1:
        raise refusals.KeyMissing("The form has no field called key, or several.")
    return keys[0].strip()
