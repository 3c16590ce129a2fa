"""Reads a body that holds options and no video: a form of either kind, a JSON object, or nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import anyio
from python_multipart.multipart import parse_options_header

from app.api import problems
from app.api.receiving.form import FormPart, MultipartForm, Sink, boundary_of
from app.api.receiving.upload import FORM_OVERHEAD, STALL_SECONDS, OptionSink
from app.jobs.options import FORM_FIELDS

PLAIN_FORM, JSON = b"application/x-www-form-urlencoded", b"application/json"


class OptionForm:
    """Takes the parts of a form that has options alone."""

    def __init__(self) -> None:
        self._options: dict[str, OptionSink] = {}

    @property
    def fields(self) -> dict[str, str]:
        return {name: sink.value for name, sink in self._options.items()}

    def open_part(self, part: FormPart) -> Sink:
        """Begins a part. Raises InvalidOption for one that comes again, UnknownField for no option."""
        if part.name in self._options:
            raise problems.InvalidOption(f"{part.name[:64]} is given more than once.")
        check_names([part.name])
        return self._options.setdefault(part.name, OptionSink(part.name))


async def receive_options(body: AsyncIterator[bytes], headers: Mapping[str, str]) -> dict[str, Any]:
    """Reads the options of a request.

    Args:
        body: the request's bytes as they arrive.
        headers: the request's.

    Returns:
        Option → its text, or its value where the body is JSON; empty where there is no body.

    Raises:
        UploadStalled: the body does not come.
        NotMultipart: it is of another type.
        MalformedForm: it cannot be read, or is larger than any options.
        UnknownField: it has something that is no option.
        InvalidOption: an option comes more than once.
    """
    data = await _read(body)
    kind, _ = parse_options_header(headers.get("content-type") or "")
    if not data:
        return {}
    if kind == JSON:
        return _from_json(data)
    if kind == PLAIN_FORM:
        return _from_plain_form(data)
    options = OptionForm()
    form = MultipartForm(boundary_of(headers.get("content-type")), options.open_part)
    form.feed(data)
    form.finish()
    return dict(options.fields)


def check_names(names: list[str]) -> None:
    """Raises UnknownField for the first that is no option."""
    if unknown := next((name for name in names if name not in FORM_FIELDS), None):
        raise problems.UnknownField(f"There is no option called {unknown[:64]}.", known=FORM_FIELDS)


async def _read(body: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    try:
        with anyio.fail_after(STALL_SECONDS):
            async for piece in body:
                data += piece
                if len(data) > FORM_OVERHEAD:
                    raise problems.MalformedForm(f"The body has more than {FORM_OVERHEAD:,} bytes.")
    except TimeoutError as error:
        raise problems.UploadStalled(f"The body has not come in {STALL_SECONDS:g} seconds.") from error
    return bytes(data)


def _from_json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise problems.MalformedForm("The body is no JSON.") from error
    if not isinstance(found, dict):
        raise problems.MalformedForm("The body is no JSON object.")
    check_names(list(found))
    return {name: value for name, value in found.items() if value is not None}


def _from_plain_form(data: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=len(FORM_FIELDS) + 1)
    except ValueError as error:
        raise problems.MalformedForm("The form cannot be read.") from error
    names = [name for name, _ in pairs]
    check_names(names)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise problems.InvalidOption(f"{twice} is given more than once.")
    return {name: value.strip() for name, value in pairs}
