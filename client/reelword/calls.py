"""Makes each request: both clients send these, one blocking, one awaited."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, TypedDict
from urllib.parse import quote, urlsplit
from uuid import uuid4

from reelword.documents import State

Video = str | os.PathLike[str] | bytes | IO[bytes]
"""A path, an http(s) address that the service fetches, the file's bytes, or an open binary file."""

CaptionsKind = Literal[
    "vtt", "srt", "csv", "json", "coco.json", "fiftyone.json", "labelstudio.json", "chapters.xml"
]
ClipKind = Literal["mp4", "webp", "gif"]
Verdict = Literal["right", "partly", "wrong"]
LONG_POLL = 30  #: seconds that the service holds a request for a change


class Options(TypedDict, total=False):
    """The options of a job; the service's ``GET /models`` explains them, and docs/api.md lists all."""

    captioner: str
    members: str | Sequence[str]
    beam_size: int
    num_captions: int
    max_length: int
    length_penalty: float
    method: Literal["beam", "greedy", "sample"]
    temperature: float
    top_k: int
    top_p: float
    seed: int
    suppress_unk: bool
    block_trigrams: bool
    decoding_constraint: bool
    name_once: bool
    remove_bad_endings: bool
    group_size: int
    diversity_lambda: float
    fusion_rule: Literal["merit", "relevance"]
    category: int
    bars: Literal["leave_out", "keep"]
    attention: bool
    explanation: Literal["evidence", "attention", "both"]
    segments: str | float
    segment_captioner: str
    prompt: str
    priority: Literal["high", "normal", "low"]
    metadata: Mapping[str, Any]
    webhook: str
    webhook_events_filter: str  # started, segment and ended, with commas between them
    validate_only: bool


class Filters(TypedDict, total=False):
    """Says which jobs a list has; docs/api.md explains each."""

    state: State | Sequence[State]
    captioner: str
    batch: str
    created_after: datetime | str
    created_before: datetime | str
    limit: int  # jobs a page


@dataclass(frozen=True)
class Call:
    """Holds one request."""

    method: str
    path: str
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str | list[str]] = field(default_factory=dict)
    document: Mapping[str, Any] | None = None  #: is sent as JSON
    #: Opened anew for each try, so that a broken upload can be sent again.
    videos: Sequence[Video] = ()

    @property
    def is_repeatable(self) -> bool:
        """Returns whether it may be sent twice: an open file that cannot be wound back is read once."""
        return all(not _is_file(video) or _file(video).seekable() for video in self.videos)

    def arguments(self, stack: ExitStack) -> dict[str, Any]:
        """Makes httpx' arguments of it; files that are opened for it close with ``stack``."""
        files: list[tuple[str, Any]] = [("video", _opened(video, stack)) for video in self.videos]
        if self.form and not files:  # a form without a file would else be sent in another encoding
            fields = [(name, (None, value)) for name, values in self.form.items() for value in _each(values)]
            return {**self._plain(), "files": fields}
        return {**self._plain(), "data": dict(self.form) or None, "files": files or None}

    def _plain(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "url": self.path,
            "params": dict(self.params) or None,
            "headers": dict(self.headers),
            "json": self.document,
        }


def submit(video: Video, options: Options, key: str | None) -> Call:
    """Sends a video. key: of idempotency; a new one by default, so that a repeated request makes one job."""
    return _posted("/caption", [video], options, key, "url")


def submit_batch(videos: Iterable[Video], options: Options, key: str | None) -> Call:
    return _posted("/batches", list(videos), options, key, "url")


def _posted(
    path: str, videos: Sequence[Video], options: Options, key: str | None, address_field: str
) -> Call:
    addresses = [str(video) for video in videos if is_address(video)]
    form: dict[str, str | list[str]] = dict(form_of(options))
    if addresses:
        form[address_field] = addresses if len(addresses) > 1 else addresses[0]
    files = [video for video in videos if not is_address(video)]
    return Call("POST", path, headers={"Idempotency-Key": key or uuid4().hex}, form=form, videos=files)


def recaption(job_id: str, options: Options, key: str | None) -> Call:
    headers = {"Idempotency-Key": key or uuid4().hex}
    return Call("POST", f"/jobs/{quote(job_id)}/recaption", headers=headers, form=form_of(options))


def job(job_id: str, etag: str | None = None, wait: float = 0.0) -> Call:
    """Makes the request for a job; with ``etag`` and ``wait`` (seconds) it is answered after a change."""
    headers = {} if etag is None else {"If-None-Match": etag}
    if wait >= 1:
        headers["Prefer"] = f"wait={min(int(wait), LONG_POLL)}"
    return Call("GET", f"/jobs/{quote(job_id)}", headers=headers)


def job_part(job_id: str, part: str, **params: str) -> Call:
    return Call("GET", f"/jobs/{quote(job_id)}/{part}", params=params)


def add_verdict(job_id: str, verdict: Verdict, correction: str | None) -> Call:
    document = {"verdict": verdict} if correction is None else {"verdict": verdict, "correction": correction}
    return Call("POST", f"/jobs/{quote(job_id)}/verdicts", document=document)


def test_webhook(url: str) -> Call:
    return Call("POST", "/webhooks/test", document={"url": url})


def cancel(job_id: str) -> Call:
    return Call("DELETE", f"/jobs/{quote(job_id)}")


def jobs(filters: Filters, cursor: str | None) -> Call:
    query = {**filters, "cursor": cursor}
    params = {name: _text(value) for name, value in query.items() if value is not None}
    return Call("GET", "/jobs", params=params)


def search(words: str, limit: int, jobs: Sequence[str]) -> Call:
    return Call("GET", "/search", params={"q": words, "limit": str(limit), "job": list(jobs)})


def batch(batch_id: str) -> Call:
    return Call("GET", f"/batches/{quote(batch_id)}")


def cancel_batch(batch_id: str) -> Call:
    return Call("DELETE", f"/batches/{quote(batch_id)}")


def batch_results(batch_id: str) -> Call:
    return Call("GET", f"/batches/{quote(batch_id)}/results.jsonl")


def verdicts() -> Call:
    return Call("GET", "/verdicts")


def access() -> Call:
    return Call("GET", "/session")


def models() -> Call:
    return Call("GET", "/models")


def form_of(options: Options) -> dict[str, str]:
    """Writes options as the form has them; those that are None are left out."""
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(str(each) for each in value)
    return str(value)


def _each(values: str | list[str]) -> list[str]:
    return [values] if isinstance(values, str) else values


def is_address(video: Video) -> bool:
    return isinstance(video, str) and urlsplit(video).scheme in ("http", "https")


def _is_file(video: Video) -> bool:
    return not isinstance(video, str | bytes | os.PathLike)


def _file(video: Video) -> IO[bytes]:
    assert not isinstance(video, str | bytes | os.PathLike)
    return video


def _opened(video: Video, stack: ExitStack) -> tuple[str, IO[bytes]]:
    """Gives the file's name and itself, at its beginning."""
    if isinstance(video, bytes):
        return "video", io.BytesIO(video)
    if isinstance(video, str | os.PathLike):
        path = Path(video)
        return path.name, stack.enter_context(path.open("rb"))
    if video.seekable():
        video.seek(0)
    return Path(str(getattr(video, "name", "video"))).name, video
