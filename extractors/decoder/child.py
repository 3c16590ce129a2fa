"""Runs the process that decodes: reads a request, streams its parts, waits for the next.

Started by ``extractors.decoder.decoder`` with the name of the reader to use.
It holds no torch, no secrets and no connection but the one to its parent, can make no other (box.py), and
dies with it.
"""

import os
import resource
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import TypeAlias

from extractors.child_process import join_parent
from extractors.decoder.box import enter_box, limit_processor_seconds
from extractors.decoder.messages import (
    LONGEST_MESSAGE,
    READY,
    SLOTS,
    TAKEN,
    pack_error,
    pack_part,
    unpack_request,
)
from extractors.media import errors
from extractors.media.decode import stream_here
from extractors.media.media_file import HandedFile, MediaFile
from extractors.media.request import DecodeRequest, Limits
from extractors.media.stream_parts import FrameChunk, StreamEnd, StreamPart

StreamFile: TypeAlias = Callable[[MediaFile, DecodeRequest, Limits], Iterator[StreamPart]]


def main() -> None:
    """Serves requests from the connection until the parent closes it."""
    parent = join_parent()
    link, shared = parent.link, parent.shared
    stream_file = _load_reader(parent.arguments[0])
    address_space = _address_space()
    link.send_bytes(" ".join([READY, *enter_box()]).encode())
    while True:
        try:
            request, limits = unpack_request(link.recv_bytes(LONGEST_MESSAGE))
            file = HandedFile(recv_handle(link))
        except (EOFError, OSError):
            return
        _limit_memory(address_space + limits.memory)
        limit_processor_seconds(limits.seconds)
        try:
            _send_parts(stream_file(file, request, limits), link, _Slots(link, shared, request.chunk_bytes))
        except Exception as error:  # our own mistake: it is named, and a fresh process continues
            where = traceback.extract_tb(error.__traceback__)[-1]
            message = f"The decoder failed with {type(error).__name__} in {where.name}, line {where.lineno}."
            link.send_bytes(pack_error(errors.DecoderFault(message)))
            return
        os.close(file.descriptor)


def _load_reader(name: str) -> StreamFile:
    if name == "decord":
        # its libraries alone map gigabytes, so they are loaded before memory is counted
        from extractors.media.decord import stream_with_decord

        return stream_with_decord
    return stream_here


def _send_parts(parts: Iterator[StreamPart], link: Connection, slots: "_Slots") -> None:
    """Sends the parts of a stream as they come; the last is its end or an error."""
    try:
        for part in parts:
            slots.send(part)
        return
    except errors.MediaError as error:
        message = pack_error(error)
    except MemoryError:
        message = pack_error(
            errors.DecodeMemory("Decoding the video took more memory than the limit allows.")
        )
    slots.wait_until_empty()
    link.send_bytes(message)


class _Slots:
    """Keeps places for chunks in the shared file. While all are full, decoding waits for the parent."""

    def __init__(self, link: Connection, shared: int, chunk_bytes: int) -> None:
        self._link, self._shared, self._chunk_bytes = link, shared, chunk_bytes
        self._sent = self._taken = 0
        os.ftruncate(shared, 0)

    def send(self, part: StreamPart) -> None:
        offset = 0
        if isinstance(part, FrameChunk):
            self._wait(SLOTS - 1)
            # a frame may be larger than chunks are meant to be; all frames of a file are of the same sizes
            frame = sum(pixels[0].nbytes for pixels in part.pixels)
            offset = self._sent % SLOTS * max(self._chunk_bytes, frame)
            self._sent += 1
        elif isinstance(part, StreamEnd):
            self.wait_until_empty()
        self._link.send_bytes(pack_part(part, self._shared, offset))

    def wait_until_empty(self) -> None:
        self._wait(0)

    def _wait(self, full: int) -> None:
        while self._sent - self._taken > full:
            self._link.recv_bytes(len(TAKEN))
            self._taken += 1


def _address_space() -> int:
    """Returns the bytes that this process has mapped, 0 where the system does not report them."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _limit_memory(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    main()
