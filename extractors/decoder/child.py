"""The process that decodes: reads a request, decodes, answers, waits for the next.

Started by ``extractors.decoder.decoder`` with the name of the reader to use.
It holds no torch, no secrets and no connection but the one to its parent, and dies with it.
"""

from __future__ import annotations

import os
import resource
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeAlias

from extractors.child_process import join_parent
from extractors.decoder.messages import (
    LONGEST_MESSAGE,
    SLOTS,
    TAKEN,
    pack_answer,
    pack_error,
    pack_part,
    unpack_request,
)
from extractors.media import errors
from extractors.media.chunks import Chunk, End, StreamPart, StreamRequest
from extractors.media.decode import decode_here, stream_here
from extractors.media.request import Decoded, DecodeRequest, Limits

Read: TypeAlias = Callable[[str, DecodeRequest, Limits], Decoded]


def main() -> None:
    """Serve requests from the connection until the parent closes it."""
    parent = join_parent()
    link, shared = parent.link, parent.shared
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    decode = _reader(parent.arguments[0])
    held = _address_space()
    link.send_bytes(b"ready")
    while True:
        try:
            path, request, limits = unpack_request(link.recv_bytes(LONGEST_MESSAGE))
        except (EOFError, OSError):
            return
        _limit_memory(held + limits.memory)
        try:
            if isinstance(request, StreamRequest):
                _stream(link, path, request, limits, shared)
            else:
                link.send_bytes(_answer(decode, path, request, limits, shared))
        except Exception as error:  # our own mistake: say which, and let a fresh process go on
            where = traceback.extract_tb(error.__traceback__)[-1]
            message = f"The decoder failed with {type(error).__name__} in {where.name}, line {where.lineno}."
            link.send_bytes(pack_error(errors.DecoderFault(message)))
            return


def _reader(name: str) -> Read:
    if name == "decord":
        # its libraries alone map gigabytes, so they are loaded before memory is counted
        from extractors.media.decord import decode_with_decord

        return decode_with_decord
    return decode_here


def _answer(decode: Read, path: str, request: DecodeRequest, limits: Limits, shared: int) -> bytes:
    try:
        return pack_answer(decode(path, request, limits), shared)
    except errors.MediaError as error:
        return pack_error(error)
    except MemoryError:
        return pack_error(_out_of_memory())


def _out_of_memory() -> errors.MediaError:
    return errors.DecodeMemory("Decoding the video took more memory than the limit allows.")


def _stream(link: Connection, path: str, request: StreamRequest, limits: Limits, shared: int) -> None:
    """Send the parts of a stream as they come; the last is its end or an error."""
    slots = _Slots(link, shared, request.chunk_bytes)
    try:
        for part in stream_here(path, request, limits):
            slots.send(part)
        return
    except errors.MediaError as error:
        message = pack_error(error)
    except MemoryError:
        message = pack_error(_out_of_memory())
    slots.wait_until_empty()
    link.send_bytes(message)


class _Slots:
    """Places for chunks in the shared file. While all are full, decoding waits for the parent."""

    def __init__(self, link: Connection, shared: int, chunk_bytes: int) -> None:
        self._link, self._shared, self._chunk_bytes = link, shared, chunk_bytes
        self._sent = self._taken = 0
        os.ftruncate(shared, 0)

    def send(self, part: StreamPart) -> None:
        offset = 0
        if isinstance(part, Chunk):
            self._wait(SLOTS - 1)
            # a frame may be larger than chunks are meant to be; all frames of a file are of the same sizes
            frame = sum(pixels[0].nbytes for pixels in part.pixels)
            offset = self._sent % SLOTS * max(self._chunk_bytes, frame)
            self._sent += 1
        elif isinstance(part, End):
            self.wait_until_empty()
        self._link.send_bytes(pack_part(part, self._shared, offset))

    def wait_until_empty(self) -> None:
        self._wait(0)

    def _wait(self, full: int) -> None:
        while self._sent - self._taken > full:
            self._link.recv_bytes(len(TAKEN))
            self._taken += 1


def _address_space() -> int:
    """Bytes this process has mapped, 0 where the system does not tell."""
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
