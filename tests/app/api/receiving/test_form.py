"""Forms are taken apart within limits; any bytes end as a form or as a named 4xx."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from app.api.receiving import form as form_module
from app.api.receiving.form import HEADER_BYTES, HEADER_COUNT, FormPart, MultipartForm, Sink
from app.api.refusals import MalformedForm
from tests.app.form_fuzz import CHECKS, Outcome, part, read

VIDEO = part(b'Content-Disposition: form-data; name="video"; filename="a.mp4"', b"data")
END = b"--b0--\r\n"
GOT = Outcome(b"data")
MALFORMED = Outcome(problem="malformed_form")


@pytest.mark.parametrize(("check", "strategies"), CHECKS, ids=lambda given: getattr(given, "__name__", ""))
def test_any_form_any_bytes_any_header(check: Callable[..., None], strategies: tuple) -> None:
    slow = [HealthCheck.too_slow]  # as drawing is where cores are busy
    drawn = settings(max_examples=150, deadline=None, database=None, suppress_health_check=slow)
    drawn(given(*strategies)(check))()


@pytest.mark.parametrize(
    "before", [b"", b"\r\n", b"\r\n\r\n", b"a preamble\r\n", b"--b1\r\n", b"--\r\n-\r\n"]
)
@pytest.mark.parametrize(
    "after", [b"--b0--", b"--b0--\r\n", b"--b0--\r\n\r\n", b"--b0--\r\nan epilogue", b"--b0-- "]
)
def test_what_stands_around_a_form_is_passed_over(before: bytes, after: bytes) -> None:
    body = before + VIDEO + after
    assert read(body) == read(body, range(len(body))) == GOT


def test_a_boundary_may_have_blanks_behind_it() -> None:
    assert read(VIDEO.replace(b"--b0", b"--b0 \t") + END) == GOT


@pytest.mark.parametrize(
    "filename", [b"caf\xe9.mp4", b"\xff\xfe\x00", b"", b"a;b=c", b"\xf0\x9f\x8e\xac.mp4", b"a\\", b"%22"]
)
def test_a_file_name_of_any_bytes_is_taken(filename: bytes) -> None:
    assert read(VIDEO.replace(b"a.mp4", filename) + END) == GOT


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b'Content-Disposition: form-data; filename="a"',
        b'Content-Disposition: attachment; name="video"; filename="a"',
        b'Content-Type: text/plain; name="video"',
        b"Content-Disposition: form-data; name=video; filename=a\r\nContent-Disposition: form-data; name=b",
        b'Content-Disposition: form-data; name="video"; filename="a"\r\nContent-Transfer-Encoding: base64',
        b'Content-Disposition: form-data; name="video"\nContent-Type: a',
        b"Content\xff: a",
        b": a",
        b"no colon",
    ],
)
def test_headers_that_describe_no_field_are_refused(header: bytes) -> None:
    outcome = read(part(header, b"data") + END)
    assert outcome.problem in ("malformed_form", "unknown_field", "video_missing")


def test_blank_header_values_and_names_of_any_case_are_taken() -> None:
    header = b"CONTENT-disposition:   form-data;name=video;filename=a\r\nX-Empty:\r\nContent-Type: video/mp4"
    assert read(part(header, b"data") + END) == GOT


TOO_MUCH = {
    "parameters": b'Content-Disposition: form-data; name="video"' + b"; a=b" * 200_000,
    "one long name": b"x" * 1_000_000 + b": a",
    "blanks": b"a:" + b" " * 1_000_000,
    "quotes": b"Content-Disposition: form-data; name=" + b'"\\' * 500_000,
    "many headers": b"\r\n".join(b"x%d: a" % number for number in range(100_000)),
    "headers that fit one by one": b"\r\n".join(b"x%d: " % n + b"a" * (HEADER_BYTES // 2) for n in range(3)),
}


@pytest.mark.parametrize("header", TOO_MUCH.values(), ids=TOO_MUCH)
def test_headers_without_end_are_refused_at_once(header: bytes) -> None:
    """1 MB of parameters cost 143 s of CPU once."""
    began = time.process_time()
    assert read(b"--b0\r\n" + header) == MALFORMED
    assert time.process_time() - began < 0.5


def test_headers_are_refused_while_they_are_read() -> None:
    form = MultipartForm(b"b0", no_part)
    form.feed(b"--b0\r\nx: " + b"a" * (HEADER_BYTES - 100))
    with pytest.raises(MalformedForm, match="header"):
        form.feed(b"a" * 101)


def test_parts_without_end_are_refused() -> None:
    class Nothing:
        def write(self, data: bytes) -> None: ...

        def close(self) -> None: ...

    form = MultipartForm(b"b0", lambda _part: Nothing())
    with pytest.raises(MalformedForm, match=f"more than {form_module.PART_COUNT} parts"):
        form.feed(part(b"Content-Disposition: form-data; name=a", b"") * (form_module.PART_COUNT + 1))


def test_as_many_headers_as_allowed_are_taken() -> None:
    more = b"".join(b"\r\nx%d: a" % number for number in range(HEADER_COUNT - 1))
    header = b"Content-Disposition: form-data; name=video; filename=a" + more
    assert read(part(header, b"data") + END) == GOT
    assert read(part(header + b"\r\nx: a", b"data") + END) == MALFORMED


@pytest.mark.parametrize("error", [ValueError, IndexError, AssertionError, RecursionError])
def test_a_fault_of_the_parser_is_the_forms(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: object) -> None:
        raise error("inside")

    form = MultipartForm(b"b0", no_part)
    monkeypatch.setattr(form._parser, "write", broken)
    with pytest.raises(MalformedForm) as raised:
        form.feed(b"anything")
    assert "inside" not in str(raised.value)


def test_a_fault_of_the_disk_stays_one() -> None:
    class Full:
        def write(self, data: bytes) -> None:
            raise OSError("no room")

        def close(self) -> None: ...

    with pytest.raises(OSError, match="no room"):
        MultipartForm(b"b0", lambda _part: Full()).feed(VIDEO)


def no_part(_part: FormPart) -> Sink:
    raise AssertionError("no part was complete")
