"""Reads the fields beside a video: how it is to be captioned, and what its sender wants of the job.

A form and a query have texts, a JSON body has values of its own types; both become one CaptionRequest.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args

import pydantic_core
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails

from app.api import refusals
from app.fetching.addresses import LONGEST, read_web_address
from app.jobs.job import Priority, Submission, WebhookEvent
from app.jobs.options import (
    FORM_FIELDS,
    LEAST_SEGMENT,
    MOST_SEGMENT,
    PROMPT_LENGTH,
    CaptionOptions,
    form_schema,
)

ModelT = TypeVar("ModelT", bound=BaseModel)

METADATA_BYTES = 4096
FIELD_LIMIT = 1024  #: bytes in the value of a field
LARGER_FIELDS = {
    "metadata": METADATA_BYTES,
    "prompt": 4 * PROMPT_LENGTH,
    "url": 4 * LONGEST,
    "webhook": 4 * LONGEST,
}
#: What JSON may have in place of the text that a form has.
BESIDE_TEXTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "members": ({"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string"}},),
    "segments": ({"type": "number", "minimum": LEAST_SEGMENT, "maximum": MOST_SEGMENT},),
    "webhook_events_filter": (
        {"type": "array", "minItems": 1, "maxItems": 3, "items": {"enum": list(get_args(WebhookEvent))}},
    ),
}
ADDRESS_PATTERN = r"^\s*[Hh][Tt][Tt][Pp][Ss]?://"
FILE_PATTERN = r"^\s*(\S*/files/)?[0-9a-f]{32}\s*$"
BOOLEANS = ("true", "false")


def _metadata(value: object, info: ValidationInfo) -> object:
    """Reads a JSON object, and that from the text which a form has. Raises ValueError."""
    if isinstance(value, str) and not (info.context or {}).get("is_json"):
        try:
            value = pydantic_core.from_json(value, allow_inf_nan=False)
        except ValueError as error:
            raise ValueError(f"metadata is a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise ValueError('metadata is a JSON object such as {"order": 7}')
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except ValueError as error:
        raise ValueError("metadata has a number without end or a letter that is none") from error
    if size > METADATA_BYTES:
        raise ValueError(f"metadata has {size:,} bytes as JSON, more than {METADATA_BYTES:,}")
    return value


def _web_address(value: str) -> str:
    return str(read_web_address(value.strip()))


def _flag(value: object, info: ValidationInfo) -> object:
    """Reads true or false, also from a form's text. Raises ValueError for anything else."""
    flag = value
    if isinstance(value, str) and not (info.context or {}).get("is_json"):
        flag = {"true": True, "false": False}.get(value.strip().lower())
    if not isinstance(flag, bool):
        raise ValueError("it is true or false")
    return flag


Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]


def _events(value: object) -> object:
    """Splits ``started,ended``, as a form has it."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


EVENT = "(started|segment|ended)"
WebhookEvents = Annotated[
    Annotated[list[WebhookEvent], Field(min_length=1, max_length=3)] | None,
    BeforeValidator(_events),
    WithJsonSchema(
        {"type": "string", "pattern": rf"^\s*{EVENT}\s*(,\s*{EVENT}\s*){{0,2}}$", "default": "ended"}
    ),
]
Metadata = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_metadata),
    WithJsonSchema({"type": "object", "examples": [{"order": 7}]}),
]
WebAddress = Annotated[
    Annotated[str, AfterValidator(_web_address)] | None,
    WithJsonSchema({"type": "string", "pattern": ADDRESS_PATTERN, "maxLength": LONGEST}),
]


FileAddress = Annotated[
    Annotated[str, AfterValidator(lambda address: address.strip()[-32:])] | None,
    Field(pattern=FILE_PATTERN),
    WithJsonSchema({"type": "string", "pattern": FILE_PATTERN, "maxLength": FIELD_LIMIT}),
]


class JobFields(BaseModel, frozen=True, extra="forbid"):
    """Holds the fields of the job itself."""

    url: WebAddress = Field(
        None, description="Where the video is fetched from, in place of a file: http or https."
    )
    file: FileAddress = Field(
        None, description="A file that was sent to /files, in place of one here: its id or its address."
    )
    metadata: Metadata = Field(
        None, description="A JSON object of your own, at most 4 KiB; it comes back with the job."
    )
    priority: Priority = Field("normal", description="high goes before normal, and that before low.")
    webhook: WebAddress = Field(None, description="An http or https address that is told of the job's end.")
    webhook_events_filter: WebhookEvents = Field(
        None, description="What it is told of: started, segment and ended, with commas between them."
    )
    validate_only: Flag = Field(
        False, description="Open the video and estimate what its caption costs, and write none."
    )


#: The fields that bring a video.
VIDEO_FIELDS = ("url", "file")
#: What a request may say beside its video, in the order in which it is documented.
REQUEST_FIELDS = (*FORM_FIELDS, *JobFields.model_fields)


@dataclass(frozen=True)
class CaptionRequest:
    """Holds what a request asks for."""

    options: CaptionOptions
    priority: Priority
    submission: Submission  #: without what the service itself adds to it
    file: str | None = None  #: id of a file that was sent before


def read_request(
    fields: Mapping[str, Any], *, is_json: bool = False, listed: Sequence[str] = ()
) -> CaptionRequest:
    """Reads fields to options and what goes beside them.

    Args:
        fields: name → text, of a form or a query; name → value, of JSON, where null counts as left out.
        is_json: values must have their types; a text is no number then.
        listed: for who sends a field that there is not; by default all that there are.

    Raises:
        UnknownField: a field that there is not; it lists those that there are.
        InvalidOption: a field is wrong. Of either the first names the refusal, which has all in ``mistakes``.
    """
    names, others = listed or REQUEST_FIELDS, [name[:64] for name in fields if name not in REQUEST_FIELDS]
    mistakes: list[refusals.RequestError] = [
        refusals.UnknownField(f"There is no field called {name}.", known=names, field=name) for name in others
    ]
    present = {name: value for name, value in fields.items() if value is not None}
    beside = _validated(JobFields, _only(present, JobFields.model_fields), is_json, mistakes)
    options = _validated(CaptionOptions, _only(present, FORM_FIELDS), is_json, mistakes)
    if beside is None or options is None or mistakes:
        mistakes[0].mistakes = mistakes
        raise mistakes[0]
    submission = beside.model_dump(exclude={"priority", *VIDEO_FIELDS})
    return CaptionRequest(
        options, beside.priority, Submission(source_url=beside.url, **submission), beside.file
    )


def _only(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def _validated(
    model: type[ModelT], fields: Mapping[str, Any], is_json: bool, mistakes: list[refusals.RequestError]
) -> ModelT | None:
    """Reads some fields; where any is wrong, adds to ``mistakes`` what is, and returns None."""
    try:
        return model.model_validate(dict(fields), strict=is_json, context={"is_json": is_json})
    except ValidationError as error:
        each_once = {each["loc"][:1]: each for each in reversed(error.errors(include_url=False))}
        mistakes += [_invalid(each, fields) for each in reversed(each_once.values())]
        return None


def _invalid(first: ErrorDetails, fields: Mapping[str, Any]) -> refusals.RequestError:
    name, fault = str(first["loc"][0]) if first["loc"] else "", first["msg"].removeprefix("Value error, ")
    if not name:
        return refusals.InvalidOption(f"{fault}.")
    names = BOOLEANS if first["type"].startswith("bool") or name == "validate_only" else None
    value = fields[name]
    shown = value[:64] if isinstance(value, str) else value
    return refusals.InvalidOption(f"{name} is {repr(shown)[:66]}: {fault}.", known=names, field=name)


def object_schema(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Makes the JSON Schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def body_schema(schemas: Mapping[str, Any], *, is_required: bool = True) -> dict[str, Any]:
    """Describes a route's bodies, by content type, for OpenAPI: they are read by hand."""
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": is_required, "content": content}}


def fields_schema(
    names: Sequence[str] = REQUEST_FIELDS, *, is_json: bool = False
) -> dict[str, dict[str, Any]]:
    """Makes the JSON Schema of fields, for OpenAPI. is_json: each may be null, which means absent."""
    described = JobFields.model_json_schema()["properties"]
    beside = {
        name: {key: value for key, value in schema.items() if (key, value) != ("default", None)}
        for name, schema in described.items()
    }
    schemas = _only(form_schema() | beside, names)
    if not is_json:
        return schemas
    return {
        name: {"anyOf": [schema, *BESIDE_TEXTS.get(name, ()), {"type": "null"}]}
        for name, schema in schemas.items()
    }
