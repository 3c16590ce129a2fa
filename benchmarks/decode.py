"""How long eight frames take, against the plain loop: decode everything in order and pick.

    python -m benchmarks.decode [FILE …]

Without files, four films are drawn first (a drifting gradient with grain). Each is read by the plain loop,
by ``decode_here`` and through the child process, in turn, several times; the medians and the ratio to the
plain loop are printed. The frames picked are the same ones.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from extractors.decoder.decoder import Decoder
from extractors.media.decode import DecodeRequest, Sampling, decode_here

REQUEST = DecodeRequest(Sampling(count=8), short_side=256)


@dataclass(frozen=True)
class Film:
    """What to draw. gop: frames from one key frame to the next."""

    name: str
    seconds: int
    width: int
    height: int
    gop: int


FILMS = (
    Film("10 s 720p", 10, 1280, 720, 250),
    Film("2 min 360p, key frames 30 apart", 120, 640, 360, 30),
    Film("2 min 360p, key frames 250 apart", 120, 640, 360, 250),
    Film("10 min 240p", 600, 426, 240, 250),
)
RATE = 25


def draw(film: Film, path: Path) -> Path:
    grain = np.random.default_rng(0).integers(0, 24, (film.height, film.width), np.uint8)
    slope = np.linspace(0, 200, film.width, dtype=np.uint8)
    with av.open(str(path), "w") as out:
        options = {"preset": "ultrafast", "g": str(film.gop), "bf": "2"}
        stream = out.add_stream("libx264", rate=RATE, options=options)
        stream.width, stream.height, stream.pix_fmt = film.width, film.height, "yuv420p"
        chroma = np.full((film.height // 2, film.width), 128, np.uint8)
        for index in range(film.seconds * RATE):
            luma = np.roll(slope, 3 * index)[None] + np.roll(grain, 7 * index, axis=1)
            planes = np.concatenate([luma, chroma.reshape(-1, film.width)]).astype(np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        out.mux(stream.encode())
    return path


def plain_loop(path: Path, wanted: set[int]) -> list[NDArray[np.uint8]]:
    """Decode every frame in order and keep the wanted ones, at full size."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        frames = enumerate(container.decode(stream))
        kept = [frame for position, frame in frames if position in wanted]
        return [np.asarray(frame.to_ndarray(format="rgb24"), np.uint8) for frame in kept]


def positions(path: Path) -> set[int]:
    """Which frames the request takes, as positions in the film."""
    taken = decode_here(path, REQUEST).frames.pts
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        ticks = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
        assert stream.time_base is not None
        times = (np.array(ticks) - ticks[0]) * float(stream.time_base)
    return {int(np.abs(times - instant).argmin()) for instant in taken}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(path: Path, decoder: Decoder, rounds: int) -> Iterator[tuple[str, float]]:
    """(way, median seconds), the ways taking turns so that a busy machine treats them alike."""
    wanted = positions(path)
    ways: dict[str, Callable[[], object]] = {
        "plain loop": lambda: plain_loop(path, wanted),
        "decode_here": lambda: decode_here(path, REQUEST),
        "child process": lambda: decoder.decode(path, REQUEST),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(seconds(work))
    for name, measured in taken.items():
        yield name, statistics.median(measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Decoder() as decoder:
        films = [(file.name, file) for file in arguments.files] or [
            (film.name, draw(film, Path(folder) / f"{number}.mp4")) for number, film in enumerate(FILMS)
        ]
        print(f"{'film':34} {'way':14} {'seconds':>8} {'× plain loop':>13}")
        for name, path in films:
            results = dict(compare(path, decoder, arguments.rounds))
            for way, measured in results.items():
                print(f"{name:34} {way:14} {measured:8.3f} {measured / results['plain loop']:13.2f}")


if __name__ == "__main__":
    main()
