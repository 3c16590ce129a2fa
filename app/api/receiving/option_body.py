"""Reads a body that holds fields and no video: a form of either kind, a JSON object, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from python_multipart.multipart import parse_options_header

from app.api import refusals
from app.api.receiving.bodies import FORM, JSON, OptionSink, read_json
from app.api.receiving.form import FormPart, MultipartForm, Sink, boundary_of
from app.api.receiving.upload import FORM_OVERHEAD, STALL_SECONDS, unstalled

PLAIN_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class OptionBody:
    """Holds a body's fields."""

    fields: Mapping[str, Any]
    is_json: bool = False  #: fields are values of their own types; else they are texts


class OptionForm:
    """Takes the parts of a form that has nothing but fields of these names."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._options: dict[str, OptionSink] = {}

    @property
    def fields(self) -> dict[str, str]:
        return {name: sink.value for name, sink in self._options.items()}

    def open_part(self, part: FormPart) -> Sink:
        """Begins a part. Raises InvalidOption for one that comes again, UnknownField for another's."""
        _check_names([*self._options, part.name], self._known)
        return self._options.setdefault(part.name, OptionSink(part.name))


async def receive_options(
    body: AsyncIterator[bytes], headers: Mapping[str, str], known: Collection[str]
) -> OptionBody:
    """Reads the fields of a request.

    Args:
        body: the request's bytes as they arrive.
        headers: the request's.
        known: names that the fields may have.

    Returns:
        The fields; none where there is no body.

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
        _check_names(list(fields), known)
        return OptionBody({name: value for name, value in fields.items() if value is not None}, is_json=True)
    data = await _read(body)
    if not data:
        return OptionBody({})
    if kind == PLAIN_FORM:
        return OptionBody(_from_plain_form(data, known))
    if kind != FORM:
        raise refusals.NotMultipart(f"The content type is {kind[:100] or 'none'}, and no form's nor JSON's.")
    options = OptionForm(known)
    form = MultipartForm(boundary_of(headers.get("content-type")), options.open_part)
    form.feed(data)
    form.finish()
    return OptionBody(options.fields)


def _check_names(names: list[str], known: Collection[str]) -> None:
    """Raises UnknownField for the first that is not known, InvalidOption for one that comes twice."""
    if unknown := next((name for name in names if name not in known), None):
        raise refusals.UnknownField(f"There is no field called {unknown[:64]}.", known=list(known))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refusals.InvalidOption(f"{twice} is given more than once.")


async def _read(body: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for piece in unstalled(body, STALL_SECONDS):
        data += piece
        if len(data) > FORM_OVERHEAD:
            raise refusals.MalformedForm(f"The body has more than {FORM_OVERHEAD:,} bytes.")
    return bytes(data)


def _from_plain_form(data: bytes, known: Collection[str]) -> dict[str, str]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=2 * len(known))
    except ValueError as error:
        raise refusals.MalformedForm("The form cannot be read.") from error
    _check_names([name for name, _ in pairs], known)
    return {name: value.strip() for name, value in pairs}
