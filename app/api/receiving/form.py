"""Reads a multipart form piece by piece, within limits, at a cost that grows with its bytes and no faster.

python-multipart splits the bytes; this module bounds what it is given, hands each part's data to a sink,
and turns all that can be wrong with a form into ``MalformedForm``. Text before the first boundary (a
preamble) and after the last one is legal (RFC 2046) and skipped.
"""

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.api.receiving.upload import in_pieces
from app.api.refusals import MalformedForm, NotMultipart, RequestError, in_units

HEADER_BYTES = 8 * 1024  #: of all headers of one part
HEADER_COUNT = 8  #: headers of one part
PART_COUNT = 32  #: parts of one form
BOUNDARY_BYTES = 200  #: RFC 2046 allows 70
PLAIN_ENCODINGS = ("", "7bit", "8bit", "binary")

# It warns of each form that cannot be read. The client has the answer; an attacker could fill the log.
logging.getLogger("python_multipart").setLevel(logging.ERROR)
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class FormPart:
    """Holds a part's headers."""

    name: str
    filename: str | None  #: as sent, None where the part holds text


class Sink(Protocol):
    """Takes the data of one part."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Ends the part, which is complete."""


def boundary_of(content_type: str | None) -> bytes:
    """Finds the boundary that a Content-Type names. Raises NotMultipart, MalformedForm where it is none."""
    kind, options = parse_options_header(content_type or "")
    if kind != b"multipart/form-data":
        raise NotMultipart(f"The content type is {(content_type or 'none')[:100]}, not multipart/form-data.")
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise MalformedForm(
            "The boundary is missing: Content-Type says multipart/form-data without boundary=…; "
            "let the HTTP client set that header by itself."
        )
    if len(boundary) > BOUNDARY_BYTES:
        raise MalformedForm(f"The boundary has {len(boundary)} bytes, more than {BOUNDARY_BYTES}.")
    return boundary


class MultipartForm:
    """Takes a form's bytes by ``feed``, however they are cut, and its end by ``finish``.

    open_part: called when a part's headers are read; gives the sink for its data. most_parts: that are taken.
    """

    def __init__(
        self, boundary: bytes, open_part: Callable[[FormPart], Sink], most_parts: int = PART_COUNT
    ) -> None:
        self._open_part, self._most_parts = open_part, most_parts
        self._sink: Sink | None = None  # None: the data is the preamble's
        self._field, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = self._parts = 0
        self._is_complete = False
        self._parser = MultipartParser(boundary, max_header_count=HEADER_COUNT, max_header_size=HEADER_BYTES)
        # The parser takes no preamble. Behind the headers of an invisible part, it is that part's data.
        self._parser.write(b"--" + boundary + b"\r\n\r\n\r\n")
        self._parser.callbacks = {
            "on_part_begin": self._begin_part,
            "on_header_field": self._add_to_field,
            "on_header_value": self._add_to_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def feed(self, data: bytes) -> None:
        """Parses the next bytes. Raises MalformedForm, and whatever the sinks raise."""
        try:
            self._parser.write(data)
        except (RequestError, OSError):
            raise
        except FormParserError as error:
            raise MalformedForm(f"The form cannot be read: {str(error)[:100]}.") from error
        except Exception as error:  # a fault of the parser's, met by this form's bytes
            log.warning("the form parser failed", error=repr(error))
            raise MalformedForm("The form cannot be read.") from error

    async def read(self, body: AsyncIterator[bytes], video_bytes: Callable[[], int], others: int) -> None:
        """Parses a body as it arrives. Raises MalformedForm, and whatever the sinks raise.

        Args:
            video_bytes: counts those that the sinks have taken of videos.
            others: bytes that may be anything else.
        """
        total = 0

        def feed(piece: bytes) -> None:
            nonlocal total
            total += len(piece)
            self.feed(piece)
            if total - video_bytes() > others:
                raise MalformedForm(f"More than {in_units(others)} of the form is not its video.")

        await in_pieces(body, feed)

    def finish(self) -> None:
        """Ends the form. Raises MalformedForm where its end is missing."""
        if not self._is_complete:
            where = "before its first boundary" if self._sink is None else "before its last boundary"
            raise MalformedForm(f"The form is cut off: it ends {where}.")

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > self._most_parts:
            raise MalformedForm(f"The form has more than {self._most_parts} parts.")
        self._headers, self._header_bytes = {}, 0

    def _add_to_field(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._field += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._value += data[start:end]

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES:
            raise MalformedForm(f"The headers of a part have more than {HEADER_BYTES} bytes.")

    def _end_header(self) -> None:
        name = bytes(self._field).lower()
        if name in self._headers:
            raise MalformedForm(f"A part has more than one header {name.decode('latin-1')[:64]}.")
        self._headers[name] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        encoding = self._headers.get(b"content-transfer-encoding", b"").strip().lower().decode("latin-1")
        if encoding not in PLAIN_ENCODINGS:
            raise MalformedForm(f"A part is encoded as {encoding[:64]}: send its bytes as they are.")
        self._sink = self._open_part(_described(self._headers.get(b"content-disposition", b"")))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._sink is not None:
            self._sink.write(data[start:end])

    def _end_part(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def _end(self) -> None:
        self._is_complete = True


def _described(disposition: bytes) -> FormPart:
    """Reads Content-Disposition. Raises MalformedForm where it names no field."""
    kind, options = parse_options_header(disposition)
    name, filename = options.get(b"name"), options.get(b"filename")
    if kind != b"form-data" or name is None:
        raise MalformedForm('A part has no header Content-Disposition: form-data; name="…".')
    return FormPart(_text(name), None if filename is None else _text(filename))


def _text(raw: bytes) -> str:
    """Browsers send UTF-8; what is none is read as latin-1, which any bytes are."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
