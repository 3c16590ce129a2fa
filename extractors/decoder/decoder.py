"""Decodes in a child process, because media files are hostile and native code cannot be interrupted.

One child is started ahead and used for many files, so that a job does not pay an interpreter's start. It
is replaced after ``files_per_child`` files (native readers leak), after a crash, a time-out or a kill.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from multiprocessing.reduction import send_handle
from typing import Literal, Self

from extractors.child_process import DISCARDED, LinkedProcess
from extractors.decoder.messages import LONGEST_MESSAGE, READY, TAKEN, pack_request, unpack_part
from extractors.errors import PackageMissing
from extractors.media import errors
from extractors.media.media_file import open_descriptor
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.media.stream_parts import FrameChunk, StreamEnd, StreamPart, collect_stream

log = logging.getLogger(__name__)
Reader = Literal["pyav", "decord"]

PASSED_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
START_SECONDS = 60.0  # an interpreter on a crowded machine; a start is no part of a file's time limit
WITHOUT_SENSE = "The decoding process gave an answer without sense."
GRACE_SECONDS = 1.0  # the child notices its own time limit first and can say where it was


class Decoder:
    """A decoding process to call. One thread at a time may decode; any thread may ``kill``.

    A context manager; ``close`` ends the child. The child also ends when the *thread* that started it
    ends (that is what Linux watches), so the first ``decode`` of each child belongs in a lasting thread.
    """

    def __init__(self, reader: Reader = "pyav", files_per_child: int = 100) -> None:
        if reader not in ("pyav", "decord"):
            raise ValueError(f"unknown reader {reader!r}: choose pyav or decord")
        if reader == "decord" and find_spec("decord") is None:
            raise PackageMissing.of("decord")
        self._reader = reader
        self._files_per_child = files_per_child
        self._child: _Child | None = None
        self._turn = threading.RLock()  # a stream that is given up may be collected in its owner's own turn
        self._guard = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child, None while there is none."""
        child = self._child
        return child.process.pid if child else None

    def start(self) -> None:
        """Has a child ready, so that the first file does not wait for one."""
        with self._turn:
            self._ready_child()

    def decode(
        self,
        path: str | os.PathLike[str],
        request: DecodeRequest | None = None,
        limits: Limits | None = None,
        admit: Callable[[int], None] | None = None,
    ) -> Decoded:
        """Decodes one file in the child, all frames at once.

        Args:
            path: the file.
            request: which frames; by default eight of them. Frames in several sizes are read by PyAV,
                whichever reader was chosen.
            limits: what the file may cost.
            admit: is called with the bytes of each chunk once it has come; until it returns the child waits,
                which takes nothing of the limits.

        Returns:
            The frames, the sound and the decode report; the arrays are the caller's own.

        Raises:
            MediaError: any of its leaves. After DecodeTimeout or a DecoderError the next call starts a new
                child.
        """
        request, limits = request or DecodeRequest(), limits or Limits()
        with self._turn, closing(self.stream(path, request, limits)) as parts:
            try:
                return collect_stream(_admitted(parts, admit), request, limits)
            except ValueError as error:
                raise errors.DecoderCrashed(WITHOUT_SENSE) from error

    def stream(
        self, path: str | os.PathLike[str], request: DecodeRequest, limits: Limits | None = None
    ) -> Generator[StreamPart]:
        """Decodes one file in the child, a few chunks ahead of the caller and no more.

        Args:
            path: the file, which the child begins at once.
            request: which frames, in which sizes.
            limits: what the file may cost. Only waiting for the child counts towards ``seconds``.

        Returns:
            The parts as they are decoded. Whatever is asked of the decoder before the last of them gives the
            stream up, which costs the child: the iterator then raises DecoderKilled.

        Raises:
            DecoderError: where no child can be started.
            MissingFile, EmptyFile: where there is nothing to read.
            MediaError: by the iterator, any of its leaves.
        """
        limits = limits or Limits()
        with self._turn:
            child = self._ready_child()
            file = open_descriptor(path)
            try:
                child.begin(pack_request(request, limits), file, limits)
            finally:
                os.close(file)
        return self._parts(child, limits)

    def _parts(self, child: _Child, limits: Limits) -> Generator[StreamPart]:
        try:
            ended = False
            while not ended:
                with self._turn:
                    part = child.next_part(limits)
                ended = isinstance(part, StreamEnd)
                yield part
        finally:
            with self._turn:
                if not child.answered and self._child is child:
                    self._drop(child)

    def kill(self) -> None:
        """Ends a running decode at once, from any thread: it raises DecoderKilled."""
        with self._guard:
            if self._child is not None:
                self._child.kill()

    def close(self) -> None:
        """Ends the child; a decode that is running raises DecoderKilled."""
        with self._guard:
            self._closed = True
        self.kill()  # before the turn, which a running decode has until its child is dead
        with self._turn:
            if self._child is not None:
                self._drop(self._child)

    def _ready_child(self) -> _Child:
        child = self._child
        if child is not None and (child.files >= self._files_per_child or not child.is_free()):
            self._drop(child)
        if self._child is None:
            fresh = _Child.start(self._reader)
            with self._guard:
                self._child = fresh
                closed = self._closed
            # meanwhile: close() has found no child to kill, and waits for this turn to end
            if closed:
                self._drop(fresh)
                raise errors.DecoderKilled("The decoder was closed.")
            try:
                fresh.wait_until_ready()
            except errors.MediaError:
                self._drop(fresh)
                raise
        assert self._child is not None
        return self._child

    def _drop(self, child: _Child) -> None:
        with self._guard:
            self._child = None
        child.end()


@dataclass
class _Child:
    """One decoding process, and how far it is with what it was asked."""

    process: LinkedProcess
    files: int = 0
    killed: bool = False
    answered: bool = True  #: whether it is free again
    seconds_left: float = 0.0  #: for the file that it is at, while it is waited for

    @classmethod
    def start(cls, reader: Reader) -> _Child:
        # what a broken file makes native code print may quote the file
        process = LinkedProcess(
            "extractors.decoder.child",
            [reader],
            environment=_environment(),
            output=DISCARDED,
            errors=DISCARDED,
        )
        return cls(process)

    def wait_until_ready(self) -> None:
        self.answered = False
        message = self._receive(time.monotonic() + START_SECONDS)
        _tell_lacking(message.decode(errors="replace").removeprefix(READY).strip())
        self.answered = True

    def begin(self, message: bytes, file: int, limits: Limits) -> None:
        self.answered = False
        self.files += 1
        self.seconds_left = limits.seconds + GRACE_SECONDS
        self._send(message)
        try:
            send_handle(self.process.link, file, self.process.pid)
        except OSError:
            raise self._gone() from None

    def next_part(self, limits: Limits) -> StreamPart:
        part = self._unpack(self._receive_in_time(), limits)
        if isinstance(part, FrameChunk):
            self._send(TAKEN)
        elif isinstance(part, StreamEnd):
            os.ftruncate(self.process.shared, 0)
            self.answered = True
        return part

    def _send(self, message: bytes) -> None:
        try:
            self.process.link.send_bytes(message)
        except OSError:
            raise self._gone() from None

    def _receive_in_time(self) -> bytes:
        began = time.monotonic()
        message = self._receive(began + self.seconds_left)
        self.seconds_left -= time.monotonic() - began
        return message

    def _unpack(self, message: bytes, limits: Limits) -> StreamPart:
        try:
            return unpack_part(message, self.process.shared, limits.memory)
        except errors.MediaError as error:
            self.answered = not isinstance(error, errors.DecoderError)
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise errors.DecoderCrashed(WITHOUT_SENSE) from error

    def _receive(self, deadline: float) -> bytes:
        try:
            if not self.process.link.poll(max(0.0, deadline - time.monotonic())):
                raise errors.DecodeTimeout("Decoding the video took longer than the time limit.")
            return self.process.link.recv_bytes(LONGEST_MESSAGE)
        except (EOFError, OSError):
            raise self._gone() from None

    def _gone(self) -> errors.DecoderError:
        if self.killed:
            return errors.DecoderKilled("The decoding was stopped on request.")
        how = self.process.explain_end(GRACE_SECONDS)
        return errors.DecoderCrashed(f"The decoding process ended unexpectedly ({how}).")

    def is_free(self) -> bool:
        return self.answered and not self.killed and self.process.is_alive

    def kill(self) -> None:
        self.killed = True
        self.process.kill()

    def end(self) -> None:
        self.killed = True
        self.process.close()


def _admitted(parts: Iterable[StreamPart], admit: Callable[[int], None] | None) -> Iterator[StreamPart]:
    for part in parts:
        if admit is not None and isinstance(part, FrameChunk):
            admit(sum(pixels.nbytes for pixels in part.pixels))
        yield part


@cache
def _tell_lacking(layers: str) -> None:
    """Logs, once in a process, which layers of the child's box its kernel lacks."""
    if layers:
        log.warning("videos are read with less protection: this kernel lacks %s", layers)


def _environment() -> dict[str, str]:
    """Passes on what an interpreter needs, nothing else: settings hold secrets, media files are hostile."""
    passed = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
    # numpy's threads would each reserve address space, which counts as memory
    return {**passed, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
