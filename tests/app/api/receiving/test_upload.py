"""Forms are read as they arrive; whatever goes wrong, no half-written file stays."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import resource
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from starlette.datastructures import QueryParams

from app.api import refusals
from app.api.receiving import upload
from app.api.receiving.bodies import receive_body
from app.api.receiving.fields import FIELD_LIMIT
from app.api.receiving.upload import FORM_OVERHEAD, Room, Upload
from app.jobs.options import FORM_FIELDS

BOUNDARY = "limit-of-a-part"
HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
LIMIT = 1_000_000


def part(name: str, value: bytes, filename: str | None = None) -> bytes:
    file = "" if filename is None else f'; filename="{filename}"'
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


async def in_pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def receive(
    body: AsyncIterator[bytes], headers: Mapping[str, str], file: Path, limit: int, **more: float
) -> Upload:
    room = Room(file.parent, min_free=0)
    return await receive_body(body, headers, QueryParams(), file, limit, room, **more)


def read(file: Path, body: bytes, *, size: int = 4096, headers: Mapping[str, str] = HEADERS) -> Upload:
    return asyncio.run(receive(in_pieces(body, size), headers, file, LIMIT))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "staged.part"


@pytest.mark.parametrize("size", [1, 7, 4096, 3_000_000])
def test_video_and_options_arrive_however_the_body_is_cut(file: Path, size: int) -> None:
    video = bytes(range(256)) * 8 + b"\r\n--limit-of-a-par\r\n"
    body = form(part("beam_size", b"3"), part("video", video, "a clip.mp4"), part("attention", b" false "))
    got = read(file, body, size=size)
    assert file.read_bytes() == video
    assert (got.file, got.size) == (file, len(video))
    assert got.fields == {"beam_size": "3", "attention": "false"}
    assert got.sha256 == hashlib.sha256(video).hexdigest()


VIDEO = part("video", b"data", "a.mp4")
TOO_LARGE = part("video", b"x" * (LIMIT + 1), "a.mp4")


@pytest.mark.parametrize(
    ("body", "error", "sentence"),
    [
        (form(), refusals.VideoMissing, "no video, url or file"),
        (form(part("beam_size", b"3")), refusals.VideoMissing, "no video, url or file"),
        (form(part("video", b"", "a.mp4")), refusals.VideoEmpty, "no bytes"),
        (form(VIDEO, VIDEO), refusals.SeveralVideos, "more than one"),
        (form(VIDEO, part("url", b"x")), refusals.SeveralVideos, "video and url"),
        (form(part("url", b"")), refusals.VideoMissing, "no video, url or file"),
        (form(part("beams", b"3"), VIDEO), refusals.UnknownField, "called beams"),
        (
            form(VIDEO, part("beam_size", b"3"), part("beam_size", b"4")),
            refusals.InvalidOption,
            "more than once",
        ),
        (
            form(part("captioner", b"x" * (FIELD_LIMIT + 1)), VIDEO),
            refusals.InvalidOption,
            "longer than",
        ),
        (form(TOO_LARGE), refusals.UploadTooLarge, "976.6 KiB"),
        (form(VIDEO)[:-24], refusals.MalformedForm, "in the middle"),
        (form(VIDEO)[:-6], refusals.MalformedForm, "in the middle"),
        (form(part("beam_size", b"3"))[:-6], refusals.MalformedForm, "before its last boundary"),
        (b"no boundary anywhere", refusals.MalformedForm, "before its first boundary"),
        (b"", refusals.MalformedForm, "before its first boundary"),
        (form(VIDEO) + b"x" * FORM_OVERHEAD, refusals.MalformedForm, "not its video"),
        (b"x" * FORM_OVERHEAD + b"\r\n" + form(VIDEO), refusals.MalformedForm, "not its video"),
    ],
)
def test_wrong_forms_are_named_and_leave_no_file(
    file: Path, body: bytes, error: type[refusals.RequestError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        read(file, body)
    assert not file.exists()


def test_a_field_that_is_not_known_lists_those_that_are(file: Path) -> None:
    with pytest.raises(refusals.UnknownField) as raised:
        read(file, form(part("beams", b"3")))
    jobs_own = ["url", "file", "metadata", "priority", "webhook", "webhook_events_filter", "validate_only"]
    assert raised.value.known == ["video", *FORM_FIELDS, *jobs_own]


@pytest.mark.parametrize("content_type", [None, "", "multipart/mixed; boundary=b", "json"])
def test_other_bodies_are_no_forms(file: Path, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    with pytest.raises(refusals.NotMultipart):
        read(file, form(VIDEO), headers=headers)
    assert not file.exists()


@pytest.mark.parametrize("rest", ["", ";", "; boundary", "; boundary=", '; boundary=""', "; charset=utf-8"])
def test_a_missing_boundary_is_said_to_be_missing(file: Path, rest: str) -> None:
    with pytest.raises(refusals.MalformedForm, match="boundary is missing"):
        read(file, form(VIDEO), headers={"content-type": f"multipart/form-data{rest}"})
    assert not file.exists()


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("clip.mp4", "clip.mp4"),
        ("C:\\films\\clip.mp4", "clip.mp4"),
        ("/home/me/clip.mp4", "clip.mp4"),
        ("../../etc/passwd", "passwd"),
        ("un caf\u00e9 \u4e2d\u6587.mp4", "un caf\u00e9 \u4e2d\u6587.mp4"),
        ("a\x1b[31m\x00\u202eb.mp4", "a\ufffd[31m\ufffd\ufffdb.mp4"),
        ("5.40\u202fPM.mov", "5.40 PM.mov"),
        ("\U0001f469\u200d\U0001f467.mp4", "\U0001f469\u200d\U0001f467.mp4"),
        ("x" * 5000, "x" * 255),
        ("", ""),
    ],
)
def test_a_file_name_is_kept_fit_for_display(file: Path, sent: str, shown: str) -> None:
    assert read(file, form(part("video", b"data", sent))).filename == shown


def test_an_announced_size_is_refused_before_anything_is_read(file: Path) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b""
        raise AssertionError("the body was read")

    headers = {**HEADERS, "content-length": str(LIMIT + FORM_OVERHEAD + 1)}
    with pytest.raises(refusals.UploadTooLarge):
        asyncio.run(receive(never(), headers, file, LIMIT))
    assert not file.exists()


def test_reading_ends_soon_after_the_limit(file: Path) -> None:
    """Without Content-Length: what is read beyond the limit is one piece and the room for options."""
    sent_bytes = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent_bytes
        yield part("video", b"", "a.mp4")[:-2]
        while True:
            sent_bytes += 65536
            yield b"x" * 65536

    with pytest.raises(refusals.UploadTooLarge):
        asyncio.run(receive(endless(), HEADERS, file, LIMIT))
    assert sent_bytes <= LIMIT + FORM_OVERHEAD + 2 * 65536
    assert not file.exists()


def test_a_client_that_goes_away_leaves_nothing(file: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield part("video", b"x" * 100_000, "a.mp4")
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        asyncio.run(receive(broken(), HEADERS, file, LIMIT))
    assert not file.exists()


def test_a_client_that_falls_silent_is_given_up(file: Path) -> None:
    async def silent() -> AsyncIterator[bytes]:
        yield part("video", b"x" * 1000, "a.mp4")
        await asyncio.sleep(60)

    with pytest.raises(refusals.UploadStalled, match="Fewer than"):
        asyncio.run(receive(silent(), HEADERS, file, LIMIT, stall_seconds=0.05))
    assert not file.exists()


def test_a_client_that_drips_is_given_up_too(file: Path) -> None:
    """Each byte in time, and the upload would take a year."""

    async def dripping() -> AsyncIterator[bytes]:
        yield part("video", b"x" * (upload.PACE + 1), "a.mp4")
        for _ in range(1000):
            await asyncio.sleep(0.01)
            yield b"x"

    with pytest.raises(refusals.UploadStalled):
        asyncio.run(receive(dripping(), HEADERS, file, LIMIT, stall_seconds=0.2))
    assert not file.exists()


def test_a_full_disk_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_output: BinaryIO) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(upload, "flush", full)
    with pytest.raises(refusals.StorageFull):
        read(file, form(VIDEO))
    assert not file.exists()


def test_other_faults_of_the_disk_are_not_called_full(file: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the kernel's own EFBIG, not a pretence
    try:
        with pytest.raises(OSError, match="large"):
            read(file, form(part("video", b"x" * 500_000, "a.mp4")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not file.exists()


def test_memory_stays_flat(file: Path) -> None:
    size = 64 * 1024 * 1024

    async def long() -> AsyncIterator[bytes]:
        yield part("video", b"", "a.mp4")[:-2]
        chunk = b"x" * 65536
        for _ in range(size // len(chunk)):
            yield chunk
        yield b"\r\n" + form()

    tracemalloc.start()
    try:
        got: Any = asyncio.run(receive(long(), HEADERS, file, size))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert got.size == size
    assert peak < 8 * 1024 * 1024


def test_many_uploads_at_once_take_little_memory(tmp_path: Path) -> None:
    """Each holds a piece: five hundred, as many as may be connected, stay below 200 MiB (docs/operate.md)."""
    uploads, chunk = 100, bytes(64 * 1024)

    async def stalled(goes_on: asyncio.Event) -> AsyncIterator[bytes]:
        yield part("video", b"", "a.mp4")[:-2]
        for _ in range(15):
            yield chunk
        await goes_on.wait()
        yield b"\r\n" + form()

    async def run() -> int:
        goes_on = asyncio.Event()
        tasks = [
            asyncio.create_task(receive(stalled(goes_on), HEADERS, tmp_path / f"{number}", LIMIT))
            for number in range(uploads)
        ]
        await asyncio.sleep(1.0)
        held, _ = tracemalloc.get_traced_memory()
        goes_on.set()
        await asyncio.gather(*tasks)
        return held

    tracemalloc.start()
    try:
        held = asyncio.run(run())
    finally:
        tracemalloc.stop()
    assert held < uploads * 400 * 1024
