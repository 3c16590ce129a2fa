"""Reads the body of a request for a batch: a form of many videos and addresses, or JSON with addresses.

Each video goes to a staged file of its own as it arrives; nothing of the batch is accepted until all of it is
there. The limit of the whole, like that of each video, ends the reading at the first byte too many.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from app.api import refusals
from app.api.receiving.bodies import kind_of
from app.api.receiving.fields import REQUEST_FIELDS, VIDEO_FIELDS
from app.api.receiving.form import FormPart, MultipartForm, Sink, boundary_of
from app.api.receiving.option_body import FORM, JSON, FieldSink, FormFields, read_json
from app.api.receiving.upload import (
    STALL_SECONDS,
    Room,
    Upload,
    VideoSink,
    announced_bytes,
    displayable,
    flush,
    full_disk_named,
    unstalled,
)
from app.jobs.batches import MOST_ITEMS
from app.jobs.blobs import Blobs

OVERHEAD = 512 * 1024  #: bytes of a body that are no video: addresses, options, boundaries, part headers
AT_ONCE = 4  #: batches that one process receives at a time: each video of theirs holds a file open
COMMON_FIELDS = tuple(name for name in REQUEST_FIELDS if name not in VIDEO_FIELDS)
BATCH_NAMES = ("video", "url", *COMMON_FIELDS)


@dataclass(frozen=True)
class BatchUpload:
    """Holds what a request has brought."""

    items: list[Upload]  #: each a file, or an address in its ``fields``
    fields: Mapping[str, Any]  #: what all items have in common
    is_json: bool = False  #: fields are values of their own types; else they are texts


@dataclass
class BatchForm:
    """Takes the parts of ``POST /batches``: a wrong one is refused as soon as its headers are read."""

    video_limit: int  #: bytes of one video
    batch_limit: int  #: bytes of all together
    blobs: Blobs  #: where videos are staged
    room: Room  #: of the disk that they are staged on
    stack: ExitStack  #: closes, and removes, what is opened
    videos: "list[BatchVideoSink]" = field(default_factory=list)
    urls: list[FieldSink] = field(default_factory=list)
    video_bytes: int = 0
    fields: FormFields = field(default_factory=lambda: FormFields(COMMON_FIELDS, BATCH_NAMES))

    def open_part(self, part: FormPart) -> Sink:
        """Begins a part. Raises leaves of RequestError for one that is not wanted, or not again."""
        if part.name not in ("video", "url"):
            return self.fields.open_part(part)
        check_count(len(self.videos) + len(self.urls) + 1)
        if part.name == "video":
            return self._open_video(part)
        self.urls.append(FieldSink("url"))
        return self.urls[-1]

    def _open_video(self, part: FormPart) -> Sink:
        if part.filename is None:
            raise refusals.VideoMissing("A field video holds text, not a file.")
        file = self.stack.enter_context(self.blobs.staged())
        output = self.stack.enter_context(self.room.open(file))
        upload = Upload(file, 0, {}, displayable(part.filename))
        self.videos.append(BatchVideoSink(output, upload, self))
        return self.videos[-1]

    def count(self, size: int) -> None:
        """Counts bytes of videos. Raises BatchTooLarge."""
        self.video_bytes += size
        if self.video_bytes > self.batch_limit:
            raise too_large(self.batch_limit)

    def upload(self) -> BatchUpload:
        """Puts together what a whole form has brought; files before addresses. Raises VideoMissing."""
        items = [*(video.upload() for video in self.videos), *(_at(sink.value) for sink in self.urls)]
        if not items:
            raise refusals.VideoMissing("The form has no field called video, and none called url.")
        return BatchUpload(items, self.fields.values)


class BatchVideoSink(VideoSink):
    """Writes one of a batch's videos; flushes and closes its file after the last byte."""

    def __init__(self, output: BinaryIO, upload: Upload, batch: BatchForm) -> None:
        super().__init__(output, batch.video_limit)
        self._file, self._upload, self._batch = output, upload, batch

    def write(self, data: bytes) -> None:
        self._batch.count(len(data))
        super().write(data)

    def close(self) -> None:
        if self.size == 0:
            named = self._upload.filename or f"number {len(self._batch.videos)}"
            raise refusals.VideoEmpty(f"The file {named} has no bytes.")
        flush(self._file)
        self._file.close()
        super().close()

    def upload(self) -> Upload:
        return Upload(self._upload.file, self.size, {}, self._upload.filename, self.sha256)


async def receive_batch(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    video_limit: int,
    batch_limit: int,
    blobs: Blobs,
    room: Room,
    stack: ExitStack,
) -> BatchUpload:
    """Reads a whole body; its videos are in staged files and flushed to disk when this returns.

    Args:
        body: the request's bytes as they arrive.
        video_limit: bytes of one video.
        batch_limit: bytes of all together.
        stack: removes the staged files that no job has adopted when it is closed.

    Raises:
        RequestError: one of its leaves, where the body is refused.
        Exception: whatever ``body`` raises (the client went away).
    """
    kind = kind_of(headers)
    if kind == JSON:
        return _from_json(await read_json(body, OVERHEAD))
    if kind != FORM:
        raise refusals.NotMultipart(f"The body is {kind[:100]}, and a batch is a form or JSON.")
    parts = BatchForm(video_limit, batch_limit, blobs, room, stack)
    most_parts = MOST_ITEMS + len(COMMON_FIELDS) + 1
    form = MultipartForm(boundary_of(headers.get("content-type")), parts.open_part, most_parts)
    if announced_bytes(headers) > batch_limit + OVERHEAD:
        raise too_large(batch_limit)
    with full_disk_named():
        await form.read(unstalled(body, STALL_SECONDS), lambda: parts.video_bytes, OVERHEAD)
    form.finish()
    return parts.upload()


def _from_json(fields: dict[str, Any]) -> BatchUpload:
    """Takes the addresses out of an object. Raises VideoMissing, InvalidOption, TooManyItems."""
    urls = fields.pop("urls", None)
    if urls is None or urls == []:
        raise refusals.VideoMissing("The JSON has no addresses in its member urls.")
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise refusals.InvalidOption("urls is no list of addresses.")
    if "url" in fields:
        raise refusals.UnknownField(
            "A batch has no member url: its addresses are in urls.", known=("urls", *COMMON_FIELDS)
        )
    check_count(len(urls))
    return BatchUpload([_at(url) for url in urls], fields, is_json=True)


def _at(url: str) -> Upload:
    return Upload(None, 0, {"url": url})


def check_count(items: int) -> None:
    """Raises TooManyItems."""
    if items > MOST_ITEMS:
        raise refusals.TooManyItems(f"A batch has at most {MOST_ITEMS} videos.")


def too_large(limit: int) -> refusals.BatchTooLarge:
    return refusals.BatchTooLarge(
        f"The batch's videos are together larger than {refusals.in_units(limit)}, the most that is taken."
    )
