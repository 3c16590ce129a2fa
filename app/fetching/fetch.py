"""Fetches a video from an address to a file on disk, within limits of size and time.

    resolve and check the host → connect → redirect (five at most, each checked) → stream to disk

What breaks off is tried again; what a server refuses is not. Memory stays flat.
"""

import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Self

import anyio
import httpx
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from app import errors
from app.fetching.addresses import AllowedHosts, read_web_address
from app.fetching.guarded_client import HostRefused, guarded_client
from app.settings import Settings

REDIRECTS = 5
TRIES = 3
LONGEST_PAUSE = 8.0  #: seconds between two tries
STALL_SECONDS = 20.0
PIECE = 256 * 1024
ROOM_STEP = 16 * 1024 * 1024  #: bytes between two looks at what is free on the disk
LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


@dataclass(frozen=True)
class FetchLimits:
    """Limits what a fetched file may be and take."""

    max_bytes: int  #: of the file
    seconds: float  #: for all tries together
    min_free: int = 0  #: bytes of the disk that stay free
    stall_seconds: float = STALL_SECONDS  #: that a server may send nothing
    hosts: AllowedHosts = field(default_factory=AllowedHosts)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Returns those of any video."""
        hosts = AllowedHosts(settings.url_hosts)
        return cls(settings.max_upload_bytes, settings.url_seconds, settings.min_free_bytes, hosts=hosts)


async def fetch(
    url: str, file: Path, limits: FetchLimits, report: Callable[[float], object] = lambda _share: None
) -> int:
    """Fetches ``url`` to ``file``, which is on the disk when this returns; returns its size.

    Args:
        url: http or https.
        file: is written anew; what is in it after an error means nothing.
        report: takes the share that has come, where the server announces the size.

    Raises:
        UrlNotAllowed: the address, or one that it leads to, is of a kind or in a network that is refused, or
            its host is not there.
        UrlNotFound, UrlRefused: the server answers so.
        UrlTooLarge, UrlTimeout: a limit is passed.
        UrlUnreachable: three tries met no server, or one that broke off.
        WorkerFault: there is no room on the disk.
    """
    retrying = AsyncRetrying(
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(multiplier=0.5, max=LONGEST_PAUSE),
        retry=retry_if_exception_type((errors.UrlUnreachable, HostRefused)),
        reraise=True,
        sleep=anyio.sleep,
    )
    try:
        with anyio.fail_after(limits.seconds):
            async with guarded_client(limits.hosts, limits.stall_seconds) as client:
                return await retrying(_Fetch(client, file, limits, report).run, url)
    except TimeoutError as error:
        raise errors.UrlTimeout(f"The video did not come within {limits.seconds:g} seconds.") from error
    except HostRefused as error:
        host = error.request.url.host
        raise errors.UrlNotAllowed(
            f"The host {host} is not there, or lies in a network that videos are not fetched from."
        ) from error


@dataclass(frozen=True)
class _Fetch:
    """One file on its way."""

    client: httpx.AsyncClient
    file: Path
    limits: FetchLimits
    report: Callable[[float], object]

    async def run(self, url: str) -> int:
        with _named_errors():
            async with self._response(url) as response:
                _check_status(response)
                return await self._write(response)

    @asynccontextmanager
    async def _response(self, url: str) -> AsyncIterator[httpx.Response]:
        """Follows redirects by hand, since each address is checked before it is connected to."""
        for _ in range(REDIRECTS + 1):
            try:
                checked = read_web_address(url)
            except ValueError as error:
                raise errors.UrlNotAllowed(f"The address cannot be fetched: {error}.") from error
            async with self.client.stream(
                "GET", checked, headers={"Accept-Encoding": "identity"}
            ) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                url = str(checked.join(response.headers["location"]))
        raise errors.UrlNotAllowed(f"The address leads to more than {REDIRECTS} others.")

    async def _write(self, response: httpx.Response) -> int:
        announced = _announced(response)
        if announced is not None and announced > self.limits.max_bytes:
            raise self._too_large()
        size = 0
        with self.file.open("wb") as output:
            async for piece in response.aiter_raw(PIECE):
                size += len(piece)
                if size > self.limits.max_bytes:
                    raise self._too_large()
                self._check_room(size, len(piece), (announced or size) - size)
                output.write(piece)
                if announced:
                    self.report(size / announced)
            output.flush()
            os.fsync(output.fileno())
        if announced is not None and size < announced:
            raise errors.UrlUnreachable(f"The connection broke off after {size:,} of {announced:,} bytes.")
        return size

    def _too_large(self) -> errors.UrlTooLarge:
        return errors.UrlTooLarge(f"The video has more than {self.limits.max_bytes:,} bytes.")

    def _check_room(self, size: int, step: int, rest: int) -> None:
        """Looks now and then whether what is still to come fits on the disk. Raises WorkerFault."""
        if size != step and size // ROOM_STEP == (size - step) // ROOM_STEP:
            return
        if shutil.disk_usage(self.file.parent).free - rest < self.limits.min_free:
            raise errors.WorkerFault("The disk that videos are fetched to is almost full.")


@contextmanager
def _named_errors() -> Iterator[None]:
    """Names what httpx and the disk raise."""
    try:
        yield
    except HostRefused:
        raise
    except httpx.ConnectTimeout as error:
        raise errors.UrlUnreachable("The server of the video takes no connection in time.") from error
    except httpx.TimeoutException as error:
        raise errors.UrlTimeout("The server of the video does not answer in time.") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise errors.UrlUnreachable(f"The video could not be fetched: {_said(error)}.") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise errors.WorkerFault("The disk that videos are fetched to is full.") from error


def _check_status(response: httpx.Response) -> None:
    """Raises UrlNotFound, UrlRefused, UrlUnreachable where the answer is no file."""
    status = response.status_code
    fault = f"The server of the video answers {status} {response.reason_phrase}".rstrip() + "."
    if status in GONE:
        raise errors.UrlNotFound(fault)
    if status in LATER or status >= 500:
        raise errors.UrlUnreachable(fault)
    if status != HTTPStatus.OK:
        raise errors.UrlRefused(fault)
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise errors.UrlRefused(
            "The server of the video sends it encoded, though asked for the file as it is."
        )


def _announced(response: httpx.Response) -> int | None:
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 20 else None


def _said(error: Exception) -> str:
    """Returns a library's message, in few words and without the address, which may hold a signature."""
    return str(error).splitlines()[0][:120].rstrip(".") if str(error) else type(error).__name__
