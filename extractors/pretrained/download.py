"""Downloads a file over HTTP: resumes where it broke off; it appears only when it is whole and right.

What has come lies in FILE.part until its check has passed, and beside it what the server called that version
of the file, so that a later run asks for the rest of the same one (RFC 9110, Range and If-Range). Proxies
(HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) and SSL_CERT_FILE are respected, as httpx does. ``torch.hub``
and ``pooch`` delete what has come when a connection breaks.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, TypeAlias

import httpx
from filelock import FileLock

from extractors.pretrained.errors import (
    DownloadRefused,
    NoRoom,
    NotForDownload,
    Offline,
    ServerUnreachable,
    WeightsDamaged,
    WeightsError,
)
from extractors.pretrained.manifest import WeightsEntry
from extractors.pretrained.weights_folder import FileCheck, FoundWeights, WeightsFolder


@dataclass(frozen=True)
class PartialFile:
    """The part of a download that has come."""

    path: Path  #: its bytes, FILE.part
    url: str  #: where they are from

    @classmethod
    def beside(cls, file: Path, url: str) -> Self:
        return cls(file.with_name(f"{file.name}.part"), url)

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def _notes(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def range_headers(self) -> dict[str, str]:
        """Asks for the rest of the same version; empty if it cannot be told that it is the same."""
        version = self._read_version()
        if not self.size or version is None:
            return {}
        return {"Range": f"bytes={self.size}-", "If-Range": version}

    def begin(self, response: httpx.Response) -> int | None:
        """Makes ready for the bytes of a response; returns how many there will be in all, if it says so."""
        ranged = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if response.status_code == 206 and ranged and int(ranged[1]) == self.size:
            return int(ranged[2]) if ranged[2] != "*" else None
        if response.status_code == 206:
            self.discard()
            raise httpx.RemoteProtocolError("the server sent another part than was asked for")
        self.discard()
        self._write_version(response.headers)
        if "Content-Encoding" in response.headers:
            return None  # unpacked on the way, to a length that is not known
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None

    def open(self) -> BinaryIO:
        """Opens it to write on at the end."""
        return self.path.open("ab")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)

    def move_to(self, file: Path) -> None:
        """Puts the whole file in its place; it is on the disk before its name is."""
        with self.path.open("rb+") as stream:
            os.fsync(stream.fileno())
        self.path.replace(file)
        self._notes.unlink(missing_ok=True)

    def _read_version(self) -> str | None:
        try:
            notes = json.loads(self._notes.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return str(notes["version"]) if notes.get("url") == self.url and notes.get("version") else None

    def _write_version(self, headers: httpx.Headers) -> None:
        """Notes a strong ETag, else the date; a weak one does not promise the same bytes."""
        tag = headers.get("ETag", "")
        version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
        self._notes.write_text(json.dumps({"url": self.url, "version": version}), encoding="utf-8")


#: What must stay free on the disk.
MARGIN = 64 << 20
TIMEOUT = httpx.Timeout(60.0, connect=20.0)
#: Of a server that may answer in a moment: too many requests, and its own troubles.
BUSY = (429, 500, 502, 503, 504)

#: Told how many bytes are here and how many there will be, where that is known.
Progress: TypeAlias = Callable[[int, int | None], None]


@dataclass(frozen=True)
class RetryPolicy:
    """Limits how often and when a server is asked again."""

    tries: int = 5  #: in a row that bring nothing
    wait: float = 1.0  #: seconds after the first, then doubled, up to the longest
    longest: float = 30.0

    def pause(self, failures: int, asked: str | None = None) -> float:
        """Returns the seconds to wait after so many failures; asked: the server's Retry-After."""
        seconds: float = self.wait * 2 ** (failures - 1)
        if asked is not None and asked.isdecimal():
            seconds = max(seconds, float(asked))
        return min(seconds, self.longest)


class _Interrupted(Exception):
    """The rest did not come; asking again may bring it."""

    def __init__(self, reason: str, retry_after: str | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Downloader:
    """Downloads files."""

    patience: RetryPolicy = RetryPolicy()
    progress: Progress | None = None  #: told after each piece
    transport: httpx.BaseTransport | None = None  #: instead of the network

    def fetch(self, url: str, file: Path, check: Callable[[Path], None]) -> None:
        """Downloads a file, unless it is there when it is this process's turn.

        Args:
            url: http or https.
            file: where it goes; it appears when it is whole and right.
            check: raises WeightsError if what has come, under another name, is not the right file.

        Raises:
            DownloadError: the file did not come, or ``check`` refused it.
        """
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(file.with_name(f".{file.name}.lock")):
                if not file.exists():
                    self._download(url, file, check)
        except OSError as error:
            raise NoRoom(f"{file} cannot be written: {error.strerror}.") from error

    def _download(self, url: str, file: Path, check: Callable[[Path], None]) -> None:
        part = PartialFile.beside(file, url)
        resumed = part.size > 0
        self._receive_all(url, part)
        try:
            check(part.path)
        except WeightsError:
            part.discard()
            if not resumed:
                raise
            # the first half may be of another day: once more, whole
            self._receive_all(url, part)
            check(part.path)
        part.move_to(file)

    def _receive_all(self, url: str, part: PartialFile) -> None:
        """Asks until all bytes are there."""
        failures, whole = 0, False
        with httpx.Client(timeout=TIMEOUT, follow_redirects=True, transport=self.transport) as client:
            while not whole:
                before = part.size
                try:
                    self._receive(client, url, part)
                    whole = True
                except (_Interrupted, httpx.TransportError) as error:
                    failures = 1 if part.size > before else failures + 1
                    if failures >= self.patience.tries:
                        raise _make_unreachable(url, part, error) from error
                    time.sleep(self.patience.pause(failures, getattr(error, "retry_after", None)))
                except httpx.RequestError as error:
                    raise DownloadRefused(f"{url} leads nowhere: {error}.") from error

    def _receive(self, client: httpx.Client, url: str, part: PartialFile) -> None:
        headers = {"Accept-Encoding": "identity", **part.range_headers()}
        with client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416:
                _check_past_end(response, part)
            else:
                _refuse(url, response)
                self._write(response, part)

    def _write(self, response: httpx.Response, part: PartialFile) -> None:
        total = part.begin(response)
        _check_room(part.path, (total or 0) - part.size)
        self._report(part.size, total)
        with part.open() as stream:
            for piece in response.iter_bytes():  # as they come: of larger ones the last would be lost
                stream.write(piece)
                self._report(stream.tell(), total)
        if total is not None and part.size != total:
            raise _Interrupted(f"{part.size} of {total} bytes came")

    def _report(self, done: int, total: int | None) -> None:
        if self.progress is not None:
            self.progress(done, total)


def _refuse(url: str, response: httpx.Response) -> None:
    """Raises DownloadRefused where the answer is not the file, _Interrupted where it may be, later."""
    status = f"{response.status_code} {response.reason_phrase}".strip()
    if response.status_code in BUSY:
        raise _Interrupted(f"the server answered {status}", response.headers.get("Retry-After"))
    if response.status_code not in (200, 206):
        raise DownloadRefused(f"{url} cannot be had: the server answered {status}.")
    if url.startswith("https:") and response.url.scheme != "https":
        raise DownloadRefused(f"{url} leads to {response.url.host} without encryption; that is not followed.")
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise DownloadRefused(f"{url} gives a web page, not the file: it was moved, or asks for a login.")


def _check_past_end(response: httpx.Response, part: PartialFile) -> None:
    """Takes the file as whole where nothing comes after what is here; else discards it."""
    if response.headers.get("Content-Range", "").rpartition("/")[2] == str(part.size):
        return
    part.discard()
    raise _Interrupted("what was here is longer than the file")


def _check_room(path: Path, missing: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if missing + MARGIN > free:
        needed = f"{(missing + MARGIN) / 1e6:.0f} MB are needed"
        raise NoRoom(f"{needed}, and the disk of {path.parent} has {free / 1e6:.0f} MB free.")


def _make_unreachable(url: str, part: PartialFile, error: Exception) -> ServerUnreachable:
    reason = str(error) or type(error).__name__
    kept = f"; {part.size} bytes are kept for the next try" if part.size else ""
    return ServerUnreachable(f"{url} did not come: {reason}{kept}.")


def fetch_weights(
    known: WeightsEntry, folder: WeightsFolder, downloader: Downloader, check: FileCheck, *, offline: bool
) -> FoundWeights:
    """Returns the entry's file, from the folder if it is there and right, else from its URL.

    Args:
        known: the manifest's entry.
        folder: where files of weights lie.
        downloader: brings it.
        check: a file that has come must pass it before it takes its place.
        offline: nothing is downloaded.

    Raises:
        WeightsError: the file is neither here nor to be had.
    """
    if (file := folder.locate(known)) is not None:
        try:
            return folder.check(known, file)
        except WeightsDamaged:
            if known.source != "url" or offline:
                raise
            file.unlink()
    if known.source != "url":
        raise NotForDownload(folder.describe_remedy(known))
    if offline:
        raise Offline(f"REELWORD_OFFLINE is set, so nothing is downloaded. {folder.describe_remedy(known)}")
    downloader.fetch(str(known.url), folder.place(known), lambda part: folder.admit(known, part, check))
    return folder.check(known, folder.place(known))
