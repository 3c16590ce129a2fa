"""Reads the same frames of a film with one library after the other, each in a process of its own.

    python -m benchmarks.support.video_readers NAME

The process reads requests as lines of JSON and answers each with what it took and which frames came; see
``ReaderProcess``, which is how benchmarks use it. Libraries bring FFmpeg libraries of their own, which do not
agree in one process, and torchcodec brings none: it is lent those inside PyAV.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import numpy as np
from numpy.typing import NDArray

from benchmarks.support.film_shapes import read_bars
from extractors.media.decode import DecodeRequest, Sampling, decode_here

THREADS = 2  #: of every library alike
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class ReadRequest:
    """Asks for frames of a film.

    seconds: a moment within the stay of each wanted frame, rising, counted from the first frame. count, fps:
    how this service asks for the same frames. size: rows and columns of the pictures.
    """

    path: str
    seconds: tuple[float, ...]
    count: int | None
    fps: float | None
    size: tuple[int, int]


def read_here(asked: ReadRequest) -> Pixels:
    """Read as this service does, in its way of asking."""
    sampling = Sampling(fps=asked.fps) if asked.count is None else Sampling(asked.count)
    return decode_here(asked.path, DecodeRequest(sampling, short_side=min(asked.size))).frames.pixels


def read_with_torchcodec(asked: ReadRequest) -> Pixels:
    """Read by times with an exact seek, the pictures made smaller by FFmpeg's filter."""
    from torchcodec import decoders, transforms

    reader = decoders.VideoDecoder(
        asked.path,
        num_ffmpeg_threads=THREADS,
        dimension_order="NHWC",
        transforms=[transforms.Resize(asked.size)],
    )
    begin = reader.metadata.begin_stream_seconds
    pixels: Pixels = reader.get_frames_played_at([begin + each for each in asked.seconds]).data.numpy()
    return pixels


def read_with_decord(asked: ReadRequest) -> Pixels:
    """Read by positions, which its own table of times gives."""
    import decord

    rows, columns = asked.size
    reader = decord.VideoReader(asked.path, width=columns, height=rows, num_threads=THREADS)
    starts = reader.get_frame_timestamp(range(len(reader)))[:, 0]
    positions = np.searchsorted(starts - starts[0], asked.seconds, side="right") - 1
    return np.asarray(reader.get_batch(positions.tolist()).asnumpy(), np.uint8)


def read_with_opencv(asked: ReadRequest) -> Pixels:
    """Read few frames by seeking to their times and many by reading on, as its manual does."""
    import cv2

    cv2.setNumThreads(THREADS)
    film = cv2.VideoCapture(asked.path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, THREADS])
    rows, columns = asked.size
    frames = _seek_with_opencv(film, asked) if asked.count else _read_on_with_opencv(film, asked)
    pictures = [cv2.resize(picture, (columns, rows), interpolation=cv2.INTER_AREA) for picture in frames]
    return np.stack([cv2.cvtColor(picture, cv2.COLOR_BGR2RGB) for picture in pictures])


def _seek_with_opencv(film: Any, asked: ReadRequest) -> Iterator[Pixels]:
    import cv2

    for seconds in asked.seconds:
        film.set(cv2.CAP_PROP_POS_MSEC, 1000 * seconds)
        came, picture = film.read()
        if came:
            yield picture


def _read_on_with_opencv(film: Any, asked: ReadRequest) -> Iterator[Pixels]:
    import cv2

    waiting, before, first = list(asked.seconds), None, None
    while waiting and film.grab():
        at = film.get(cv2.CAP_PROP_POS_MSEC) / 1000
        first = at if first is None else first
        if before is not None and at - first > waiting[0]:
            yield before
            waiting.pop(0)
        before = film.retrieve()[1]
    if waiting and before is not None:
        yield before


def decode_all_with_ffmpeg(asked: ReadRequest) -> None:
    """Decode the whole file by ``ffmpeg -f null``, convert nothing."""
    command = [find_ffmpeg() or "", "-v", "fatal", "-threads", str(THREADS), "-i", asked.path]
    command += ["-map", "0:v", "-fps_mode", "passthrough", "-f", "null", "-"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def decode_all_with_pyav(asked: ReadRequest) -> None:
    """Decode the whole file by PyAV, convert nothing."""
    with av.open(asked.path) as container:
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.thread_count = "AUTO", THREADS
        for _ in container.decode(stream):
            pass


OURS = "reelword"
FLOORS = ("ffmpeg -f null", "PyAV, whole file")
READERS: Mapping[str, Callable[[ReadRequest], Pixels | None]] = {
    OURS: read_here,
    FLOORS[0]: decode_all_with_ffmpeg,
    FLOORS[1]: decode_all_with_pyav,
    "torchcodec": read_with_torchcodec,
    "decord": read_with_decord,
    "OpenCV": read_with_opencv,
}
MODULES = {"torchcodec": "torchcodec", "decord": "decord", "OpenCV": "cv2"}


def find_ffmpeg() -> str | None:
    """Find an ffmpeg to run: the system's, else the one inside imageio-ffmpeg."""
    if installed := shutil.which("ffmpeg"):
        return installed
    if find_spec("imageio_ffmpeg") is None:
        return None
    import imageio_ffmpeg

    path: str = imageio_ffmpeg.get_ffmpeg_exe()
    return path


def list_readers() -> tuple[list[str], list[str]]:
    """List who can be measured here, this service first, and who is missing."""
    missing = [name for name, module in MODULES.items() if find_spec(module) is None]
    missing.append(FLOORS[1] if find_ffmpeg() else FLOORS[0])
    return [name for name in READERS if name not in missing], [name for name in missing if name != FLOORS[1]]


@dataclass(frozen=True)
class Reading:
    """What a reader took for a request: processor and wall-clock seconds, and the numbers of its frames."""

    cpu: float
    wall: float
    numbers: tuple[int, ...]
    error: str = ""


class ReaderProcess:
    """A process that reads with one library; a context manager."""

    def __init__(self, name: str, libraries: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libraries tell there what they miss in each frame
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)} if name == "torchcodec" else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def read(self, asked: ReadRequest) -> Reading:
        """Have the frames read. Raises EOFError where the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(asked)), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise EOFError(f"{self.name} has died")
        reading = json.loads(answer)
        return Reading(**{**reading, "numbers": tuple(reading["numbers"])})


def lend_ffmpeg_libraries(folder: Path) -> None:
    """Fill a folder with links to the FFmpeg libraries inside PyAV, under the names that others look for."""
    inside = Path(av.__file__).parent.parent / "av.libs"
    for library in inside.glob("lib*.so*"):
        plain = re.sub(r"-[0-9a-f]{8}(\.so\.\d+).*", r"\1", library.name)
        for name in {plain, library.name}:
            (folder / name).symlink_to(library)


def serve(name: str, lines: Iterator[str]) -> Iterator[str]:
    """Answer requests, a line each."""
    read = READERS[name]
    for line in lines:
        request = json.loads(line)
        request |= {"seconds": tuple(request["seconds"]), "size": tuple(request["size"])}
        yield json.dumps(asdict(_measure(read, ReadRequest(**request))))


def _measure(read: Callable[[ReadRequest], Pixels | None], asked: ReadRequest) -> Reading:
    cpu, wall = _cpu_seconds(), time.perf_counter()
    try:
        pixels, error = read(asked), ""
    except Exception as problem:  # a peer's own: it is told in the table
        pixels, error = None, type(problem).__name__
    cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
    return Reading(cpu, wall, () if pixels is None else tuple(read_bars(pixels)), error)


def _cpu_seconds() -> float:
    """Processor seconds of this process and of its children that have ended, to the microsecond."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(arguments: Sequence[str]) -> None:
    """Serve the library that the command line names."""
    for answer in serve(arguments[0], iter(sys.stdin)):
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
