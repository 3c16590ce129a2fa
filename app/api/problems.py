"""Writes errors as RFC 9457 problem documents, for answers and for the API's description.

A problem's ``type`` is ``urn:reelword:problem:<code>``; codes are stable, sentences may change.
"""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from app.api import refusals
from app.errors import ServiceError

MEDIA_TYPE = "application/problem+json"


def header(name: str, about: str, **schema: Any) -> dict[str, Any]:
    """Describes a header of a response for OpenAPI, a text where the schema says nothing else."""
    return {name: {"description": about, "schema": {"type": "string", **schema}}}


RETRY_AFTER = header("Retry-After", "Seconds until asking again makes sense.", type="integer")


class Cause(BaseModel, from_attributes=True):
    """One thing that is wrong with the service, as ``/readyz`` lists them."""

    code: str = Field(description="Stable name; docs/operate.md lists all.")
    message: str
    hint: str = Field(description="What its operator can do, in a sentence.")


class Mistake(BaseModel):
    """One wrong field of a request."""

    pointer: str = Field(description="Where it is, as a JSON pointer.", examples=["#/beam_size"])
    detail: str = Field(description="What is wrong with it, in a sentence.")
    code: str
    known: list[str] | None = Field(None, description="The accepted values, where they can be listed.")

    @classmethod
    def of(cls, error: refusals.RequestError) -> Self:
        return cls(pointer=f"#/{error.field}", detail=str(error), code=error.code, known=error.known)


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    type: str = Field(examples=["urn:reelword:problem:video_missing"])
    title: str = Field(description="The kind of problem; the same for every occurrence.")
    status: int
    detail: str = Field(description="What is wrong with this request, in a sentence.")
    instance: str = Field(description="The path that was asked for.")
    code: str = Field(description="Stable name of the problem; docs/api.md lists all.")
    hint: str = Field(description="What to do about it, in a sentence.")
    known: list[str] | None = Field(None, description="The accepted values, where they can be listed.")
    errors: list[Mistake] | None = Field(None, description="Each wrong field of the request.")
    causes: list[Cause] | None = Field(None, description="Of `not_ready`: everything that is wrong.")


def describe(error: ServiceError, path: str) -> Problem:
    """Makes the problem document of an error met while answering ``path``."""
    causes = error.causes if isinstance(error, refusals.NotReady) else ()
    mistakes = error.mistakes if isinstance(error, refusals.RequestError) else ()
    return Problem(
        type=type_of(error.code),
        title=error.title,
        status=error.status,
        detail=error.public or str(error),
        instance=path,
        code=error.code,
        hint=error.hint,
        known=error.known,
        errors=[Mistake.of(each) for each in mistakes] or None,
        causes=[Cause.model_validate(trouble) for trouble in causes] or None,
    )


def type_of(code: str) -> str:
    return f"urn:reelword:problem:{code}"


def headers_of(error: ServiceError) -> dict[str, str]:
    """Lists the headers that go with an error's document."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return headers | dict(error.headers) if isinstance(error, refusals.RequestError) else headers


def response(error: ServiceError, path: str) -> Response:
    """Answers a request that met this error."""
    body = describe(error, path).model_dump(mode="json", exclude_none=True)
    return JSONResponse(body, error.status, headers_of(error), media_type=MEDIA_TYPE)


def openapi_responses(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """Lists the problems of a route as FastAPI's ``responses=`` takes them."""
    by_status: dict[int, list[type[ServiceError]]] = {}
    for error in errors:
        by_status.setdefault(int(error.status), []).append(error)
    return {status: _openapi_response(kinds) for status, kinds in by_status.items()}


def openapi_default() -> dict[int | str, dict[str, Any]]:
    """Describes what any route may answer beside the problems of its own."""
    schema = {"$ref": "#/components/schemas/Problem"}
    named = ", ".join(f"`{kind.code}` ({int(kind.status)})" for kind in refusals.OF_ANY_REQUEST)
    description = f"Any other problem: {named}, `queue_unavailable` (503) …"
    return {"default": {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}}


def _openapi_response(kinds: Sequence[type[ServiceError]]) -> dict[str, Any]:
    examples = {
        kind.code: {
            "summary": kind.title,
            "value": describe(kind(), "/caption").model_dump(exclude_none=True),
        }
        for kind in kinds
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    answer: dict[str, Any] = {
        "description": "; ".join(f"`{kind.code}`: {kind.title}" for kind in kinds),
        "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}},
    }
    return answer | ({"headers": RETRY_AFTER} if any(kind.retry_after for kind in kinds) else {})
