"""Throws forms at the form parser: right ones with any content, wrong ones of any bytes, cut anywhere.

    python -m tests.app.form_fuzz --seconds 60     what ``make fuzz`` does

A right form comes out as it was put in. Any other bytes end as a form or as a named 4xx, and the same way
however they are cut.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from app.api.receiving.bodies import CaptionForm
from app.api.receiving.form import MultipartForm, boundary_of
from app.api.receiving.upload import VideoSink
from app.api.refusals import RequestError
from app.jobs.options import FORM_FIELDS

CONTENT_TYPE = "multipart/form-data; boundary=b0"
LIMIT = 100_000
ROUND = 500  #: examples between two looks at the clock

CUTS = st.lists(st.integers(0, 400), max_size=20)
#: What likes to be taken for a boundary.
DELIMITERS = st.sampled_from(
    [
        b"\r\n",
        b"\r",
        b"\n",
        b"-",
        b"--b0",
        b"\r\n--b0",
        b"\r\n--b0--",
        b"\r\n--b0 ",
        b"\r\n--b0\r",
        b"\r\n--b",
    ]
)
DATA = st.lists(st.one_of(DELIMITERS, st.binary(max_size=40)), max_size=12).map(b"".join)
HEADER_PIECES = st.sampled_from(
    [
        b"Content-Disposition: form-data", b'; name="video"', b'; filename="a.mp4"', b"; name=url", b"; ",
        b'"', b":", b"\r\nContent-Transfer-Encoding: base64", b"\\", b"; filename*=utf-8''a", b"\r\n",
        b"\r\n ", b"=", b"\xff",
    ]
)  # fmt: skip
HEADERS = st.lists(st.one_of(HEADER_PIECES, st.binary(max_size=20)), max_size=12).map(b"".join)
BODIES = st.lists(st.one_of(DELIMITERS, DATA, HEADERS), max_size=16).map(b"".join)
FIELDS = st.dictionaries(st.sampled_from(FORM_FIELDS), st.text("0123456789abc,", max_size=20))
CONTENT_TYPES = st.lists(
    st.one_of(
        st.sampled_from(["multipart/form-data", "; ", "boundary=", '"', "b0", "=", "\\", "charset=utf-8"]),
        st.text(st.characters(max_codepoint=255), max_size=10),
    ),
    max_size=8,
).map("".join)


@dataclass(frozen=True)
class Outcome:
    """What became of a form: its video and options, or the code of its problem."""

    video: bytes = b""
    fields: tuple[tuple[str, str], ...] = ()
    problem: str | None = None


def read(body: bytes, cuts: Sequence[int] = (), content_type: str = CONTENT_TYPE) -> Outcome:
    """The form cut at these places. Whatever is raised beside a 4xx is a finding."""
    output = io.BytesIO()
    try:
        parts = CaptionForm(VideoSink(output, LIMIT))
        form = MultipartForm(boundary_of(content_type), parts.open_part)
        places = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
        for start, end in pairwise(places):
            form.feed(body[start:end])
        form.finish()
        parts.check()
    except RequestError as error:
        return Outcome(problem=error.code if 400 <= error.status < 500 else f"not a 4xx: {error}")
    return Outcome(output.getvalue(), tuple(parts.fields.items()))


def part(header: bytes, data: bytes) -> bytes:
    return b"--b0\r\n" + header + b"\r\n\r\n" + data + b"\r\n"


def check_right_form(
    video: bytes, fields: dict[str, str], preamble: bytes, epilogue: bytes, cuts: Sequence[int]
) -> None:
    """What was put in comes out."""
    video = b"v" + video.replace(b"--b0", b"")  # a boundary in it would end it, rightly
    parts = [
        part(b'Content-Disposition: form-data; name="%b"' % name.encode(), value.encode())
        for name, value in fields.items()
    ]
    parts.append(part(b'content-disposition:form-data; name="video"; filename="a.mp4"', video))
    before = preamble.replace(b"--b0", b"") + b"\r\n" if preamble else b""
    body = before + b"".join(parts) + b"--b0--" + epilogue
    expected = tuple((name, fields[name]) for name in FORM_FIELDS if name in fields)
    assert read(body, cuts) == Outcome(video, expected)


def check_any_bytes(body: bytes, cuts: Sequence[int]) -> None:
    """One outcome, whatever the cuts; byte by byte too."""
    outcome = read(body)
    assert outcome == read(body, cuts) == read(body, range(len(body)))
    assert not (outcome.problem or "").startswith("not a 4xx")


def check_any_header(header: bytes, cuts: Sequence[int]) -> None:
    check_any_bytes(part(header, b"data") + b"--b0--\r\n", cuts)


def check_any_content_type(content_type: str) -> None:
    read(part(b'Content-Disposition: form-data; name="video"; filename="a"', b"x"), (), content_type)


CHECKS: tuple[tuple[Callable[..., None], tuple[st.SearchStrategy, ...]], ...] = (
    (check_right_form, (DATA, FIELDS, DATA, DATA, CUTS)),
    (check_any_bytes, (BODIES, CUTS)),
    (check_any_header, (HEADERS, CUTS)),
    (check_any_content_type, (CONTENT_TYPES,)),
)


def fuzz(seconds: float) -> int:
    """Runs all checks, each round from another seed, until the time is over; returns the number of forms."""
    until, rounds = time.monotonic() + seconds, 0
    limits = settings(
        max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    while time.monotonic() < until:
        for check, strategies in CHECKS:
            seed(time.time_ns())(limits(given(*strategies)(check)))()
        rounds += 1
    return rounds * ROUND * len(CHECKS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    print(f"{fuzz(parser.parse_args().seconds)} forms, each ended as it should")
