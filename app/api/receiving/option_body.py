"""Reads the fields of a form, and bodies that have nothing else: a form of either kind, JSON, or nothing."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import pydantic_core
from python_multipart.multipart import parse_options_header

from app.api import refusals
from app.api.receiving.fields import FIELD_LIMIT, LARGER_FIELDS
from app.api.receiving.form import FormPart, MultipartForm, Sink, boundary_of
from app.api.receiving.upload import FORM_OVERHEAD, STALL_SECONDS, unstalled

FORM, JSON = "multipart/form-data", "application/json"
PLAIN_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class OptionBody:
    """Holds a body's fields."""

    fields: Mapping[str, Any]
    is_json: bool = False  #: fields are values of their own types; else they are texts


class FieldSink:
    """Keeps the value of one field. unknown: what a long one is refused by where its name is not known."""

    def __init__(self, name: str, unknown: refusals.UnknownField | None = None) -> None:
        self._name, self._limit, self._unknown = name, LARGER_FIELDS.get(name, FIELD_LIMIT), unknown
        self._bytes = bytearray()

    def write(self, data: bytes) -> None:
        self._bytes += data
        if len(self._bytes) > self._limit:
            fault = f"{self._name} is longer than {refusals.in_units(self._limit)}."
            raise self._unknown or refusals.InvalidOption(fault)

    def close(self) -> None:
        pass

    @property
    def value(self) -> str:
        return self._bytes.decode("utf-8", "replace").strip()


class FormFields:
    """Takes the parts of a form that are fields, each once and of a known name.

    ``listed`` is what the form may have in all, for who sends another one; the same by default. With
    ``takes_all`` the others' are taken too, for who tells all that is wrong at once.
    """

    def __init__(
        self, known: Collection[str], listed: Sequence[str] = (), *, takes_all: bool = False
    ) -> None:
        self._known, self._listed, self._takes_all = known, listed or list(known), takes_all
        self._sinks: dict[str, FieldSink] = {}

    @property
    def values(self) -> dict[str, str]:
        """Returns what came, in the order of the known names, others behind."""
        names = dict.fromkeys([*self._known, *self._sinks])
        return {name: self._sinks[name].value for name in names if name in self._sinks}

    def open_part(self, part: FormPart) -> Sink:
        """Begins a part. Raises InvalidOption for one that comes again, UnknownField for another's."""
        unknown = None if part.name in self._known else self._refuse(part)
        if part.name == "file" and part.filename is not None:
            fault = "file: it is the id of a file that came in parts before; the video goes into video."
            raise refusals.InvalidOption(fault, field="file")
        names = [*self._sinks, part.name]
        check_names(names, names)
        return self._sinks.setdefault(part.name, FieldSink(part.name, unknown))

    def _refuse(self, part: FormPart) -> refusals.UnknownField:
        """Returns what refuses a field of another name; raises it for a file, and where none is read."""
        is_file, name = part.filename is not None, part.name[:64]
        place = "; the video goes into video" if is_file and "video" in self._listed else ""
        fault = f"There is no field called {name}{place}."
        error = refusals.UnknownField(fault, known=self._listed, field=name)
        if is_file or not self._takes_all:
            raise error
        return error


async def receive_options(
    body: AsyncIterator[bytes], headers: Mapping[str, str], known: Collection[str]
) -> OptionBody:
    """Reads the fields of a request; none where there is no body.

    Args:
        body: the request's bytes as they arrive.
        known: names that the fields may have.

    Raises:
        UploadStalled: the body does not come.
        NotMultipart: it is of another type.
        MalformedForm, MalformedJson: it cannot be read, or is larger than any fields.
        UnknownField: it has a field of another name.
        InvalidOption: a field comes more than once.
    """
    kind = parse_options_header(headers.get("content-type") or "")[0].decode("latin-1")
    if kind == JSON:
        fields = await read_json(body)
        check_names(list(fields), known)
        return OptionBody({name: value for name, value in fields.items() if value is not None}, is_json=True)
    data = await _read(body, refusals.MalformedForm, FORM_OVERHEAD)
    if not data:
        return OptionBody({})
    if kind == PLAIN_FORM:
        return OptionBody(_from_plain_form(data, known))
    if kind != FORM:
        raise refusals.NotMultipart(f"The content type is {kind[:100] or 'none'}, and no form's nor JSON's.")
    fields_sent = FormFields(known)
    form = MultipartForm(boundary_of(headers.get("content-type")), fields_sent.open_part)
    form.feed(data)
    form.finish()
    return OptionBody(fields_sent.values)


def check_names(names: Sequence[str], known: Collection[str]) -> None:
    """Checks the names of fields that came. Raises UnknownField for one that is not among those that are
    known, InvalidOption for one that comes twice.
    """
    if (unknown := next((name for name in names if name not in known), None)) is not None:
        raise refusals.UnknownField(f"There is no field called {unknown[:64]}.", known=list(known))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refusals.InvalidOption(f"{twice[:64]} is given more than once.")


async def read_json(body: AsyncIterator[bytes], most_bytes: int = FORM_OVERHEAD) -> dict[str, Any]:
    """Reads a body that is one JSON object of at most so many bytes. Raises MalformedJson."""
    text = await _read(body, refusals.MalformedJson, most_bytes)
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e400 is read as infinity
    except ValueError as error:
        raise refusals.MalformedJson(f"The body is no JSON: {str(error)[:100]}.") from error
    if not isinstance(value, dict):
        raise refusals.MalformedJson("The body is JSON, but no object.")
    return value


async def _read(body: AsyncIterator[bytes], error: type[refusals.RequestError], most_bytes: int) -> bytes:
    data = bytearray()
    async for piece in unstalled(body, STALL_SECONDS):
        data += piece
        if len(data) > most_bytes:
            raise error(f"The body has more than {most_bytes:,} bytes.")
    return bytes(data)


def _from_plain_form(data: bytes, known: Collection[str]) -> dict[str, str]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=2 * len(known))
    except ValueError as error:
        raise refusals.MalformedForm("The form cannot be read.") from error
    check_names([name for name, _ in pairs], known)
    return {name: value.strip() for name, value in pairs}
