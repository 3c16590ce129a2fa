"""The process that decodes: reads a request, decodes, answers, waits for the next.

Started by ``extractors.decoder`` as ``python -m extractors.decoder_child``. It holds no torch, no
secrets and no connection but the one to its parent, and dies with it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from multiprocessing.connection import Connection

from extractors import errors
from extractors.decode import decode_here
from extractors.request import Decoded, DecodeRequest, Limits
from extractors.wire import LONGEST_MESSAGE, pack_answer, pack_error, unpack_request

PR_SET_PDEATHSIG = 1


def main(link_descriptor: int, shared: int, parent: int) -> None:
    """Serve requests from the connection until the parent closes it."""
    _die_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C reaches the whole group; it is the parent that decides what becomes of a running decode
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = Connection(link_descriptor)
    link.send_bytes(b"ready")
    while True:
        try:
            message = link.recv_bytes(LONGEST_MESSAGE)
        except (EOFError, OSError):
            return
        link.send_bytes(_answer(message, shared))


def _answer(message: bytes, shared: int) -> bytes:
    path, request, limits, reader = unpack_request(message)
    _limit_memory(limits.memory)
    try:
        return pack_answer(_decode(path, request, limits, reader), shared)
    except errors.MediaError as error:
        return pack_error(error)
    except MemoryError:
        return pack_error(errors.DecodeMemory("Decoding the video took more memory than the limit allows."))


def _decode(path: str, request: DecodeRequest, limits: Limits, reader: str) -> Decoded:
    if reader == "decord":
        from extractors.decord_reader import decode_with_decord

        return decode_with_decord(path, request, limits)
    return decode_here(path, request, limits)


def _limit_memory(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere a closed pipe ends it when idle."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked
            sys.exit(1)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
