"""What frames cost beside decoding the whole file and beside other libraries, and who returns the right ones.

    python -m benchmarks.decode [--quick] [--films FOLDER] [--shapes NAME,…] [--policies]

Six shapes of films are drawn (``benchmarks/support/film_shapes.py``), or taken from the folder if they lie
there from last time. Of each, eight frames and then 25 a second are read, the short side 256 pixels, by
``decode_here`` and by whom else there is: ``ffmpeg -f null`` of the whole file (the floor), torchcodec,
decord, OpenCV; the group ``peers`` has what is not installed anyway. All get two threads, take turns, and run
in processes of their own. Each frame's number stands in its picture: "right" counts the frames that were the
wanted ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.support.film_shapes import SHAPES, FilmShape
from benchmarks.support.rows import Row, add_options, tell
from benchmarks.support.video_readers import (
    FLOORS,
    OURS,
    ReaderProcess,
    Reading,
    ReadRequest,
    lend_ffmpeg_libraries,
    list_readers,
)
from extractors.windows import Sampling

SHORT_SIDE = 256
ROUNDS = {"8 frames": 3, "25 a second": 2}
SAMPLINGS: Mapping[str, Sampling] = {"8 frames": Sampling(8), "25 a second": Sampling(fps=25)}


def main() -> None:
    """Measures what the command line names, and tells it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--films", type=Path, help="keep the drawn films in this folder")
    parser.add_argument("--shapes", default="", help="only these, with commas between")
    arguments = parser.parse_args()
    names = [name for name in arguments.shapes.split(",") if name]
    shapes = [shape for shape in SHAPES if not names or shape.name in names]
    rounds = dict.fromkeys(ROUNDS, 1) if arguments.quick else ROUNDS
    os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder tells errors only
    with tempfile.TemporaryDirectory() as folder:
        films = dict(draw_films(shapes, arguments.films or Path(folder)))
        tell(compare(films, rounds), arguments.results)


def draw_films(shapes: Iterable[FilmShape], folder: Path) -> Iterator[tuple[FilmShape, Path]]:
    """Draws the films that are not there yet.

    Args:
        shapes: of the films.
        folder: where they lie; made where it is missing.

    Returns:
        Each shape with its file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        path = folder / shape.file_name
        if not path.exists():
            shape.draw(path)
        yield shape, path


def compare(films: Mapping[FilmShape, Path], rounds: Mapping[str, int]) -> Iterator[Row]:
    """Has each film read by all who can, in turn.

    Args:
        films: their files by their shapes.
        rounds: that count, of each way of asking; a first reading of the first film does not.

    Returns:
        A row for each film, way of asking and peer.
    """
    names, missing = list_readers()
    for name in missing:
        print(f"left out: {name} is not installed")
    with ExitStack() as stack:
        libraries = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lend_ffmpeg_libraries(libraries)
        readers = [stack.enter_context(ReaderProcess(name, libraries)) for name in names]
        for reader in readers:  # imports are not measured
            reader.read(make_request(*next(iter(films.items())), SAMPLINGS["8 frames"]))
        for shape, path in films.items():
            for asked_for, sampling in SAMPLINGS.items():
                request = make_request(shape, path, sampling)
                taken = read_in_turns(readers, request, rounds[asked_for])
                yield from make_rows(f"{shape.name}, {asked_for}", taken, choose(shape, sampling))


def read_in_turns(
    readers: Sequence[ReaderProcess], request: ReadRequest, rounds: int
) -> dict[str, list[Reading]]:
    """Lets all readers take turns with one request.

    Args:
        readers: who they are. One whose process dies is left out from then on.
        request: what they read.
        rounds: how often.

    Returns:
        Name → what each round took.
    """
    taken: dict[str, list[Reading]] = {reader.name: [] for reader in readers}
    for _ in range(rounds):
        for reader in readers:
            try:
                taken[reader.name].append(reader.read(request))
            except EOFError as error:
                print(error)
    return {name: readings for name, readings in taken.items() if readings}


def choose(shape: FilmShape, sampling: Sampling) -> list[int]:
    """Lists the numbers of the frames that are on screen at the sampled times."""
    positions: list[int] = sampling.choose(shape.times, shape.duration).tolist()
    return positions


def make_request(shape: FilmShape, path: Path, sampling: Sampling) -> ReadRequest:
    """Asks for the sampled frames of a film.

    Args:
        shape: of the film, which tells its times.
        path: its file.
        sampling: how this service asks; others are asked for the middle of each frame's stay.

    Returns:
        What readers are sent.
    """
    ends = np.append(shape.times[1:], shape.duration)
    middles = ((shape.times + ends) / 2)[choose(shape, sampling)]
    size = SHORT_SIDE, round(shape.width * SHORT_SIDE / shape.height)
    count = sampling.count if sampling.fps is None else None
    return ReadRequest(str(path), tuple(middles.tolist()), count, sampling.fps, size)


def make_rows(name: str, taken: Mapping[str, Sequence[Reading]], wanted: Sequence[int]) -> Iterator[Row]:
    """Sets this service's reading beside each other's.

    Args:
        name: of what was read.
        taken: who took what.
        wanted: numbers of the frames that were asked for.

    Returns:
        A row for each peer.
    """
    ours = taken[OURS]
    for peer, readings in taken.items():
        if peer == OURS:
            continue
        wall = [statistics.median(each.wall for each in side) for side in (ours, readings)]
        right = [f"{count_right(side[-1], wanted)}" for side in (ours, readings)]
        rights = right[0] if peer in FLOORS else f"{right[0]} / {right[1]} of {len(wanted)}"
        error = readings[-1].error
        yield Row(
            benchmark="decode",
            name=name,
            ours=statistics.median(each.cpu for each in ours),
            peer=None if error else statistics.median(each.cpu for each in readings),
            peer_name=peer,
            unit="CPU s",
            repeats=len(ours),
            note=f"right {rights}; wall {wall[0]:.2f} / {wall[1]:.2f} s{error and f', it failed: {error}'}",
        )


def count_right(reading: Reading, wanted: Sequence[int]) -> int:
    """Counts the frames that came where they were wanted."""
    return sum(came == number for came, number in zip(reading.numbers, wanted, strict=False))


if __name__ == "__main__":
    main()
