"""What streams know of the words in captions, alone and beside each other: which are worth their seconds.

    python -m lab streams tuned_pair coco_ssd:10 i3d_rgb --data DATA

The first extractor is what captioners have; of each other one the table says what it knows alone and what it
adds. A stream is boiled down to one vector a picture, its mean over places and time, and a ridge regression
goes from there to the share of a picture's captions that have a word, for the 400 commonest words behind the
first 25. Judged on the pictures that every training holds out: mean over words of the average precision with
which pictures are ranked. Networks that look at several frames are shown 16 of a pan over the picture, as
captioners are in training. Without pictures it says so and ends well.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from extractors.extractor import create
from extractors.features import Frames
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windows import WindowOptions
from models.vocabulary import split_words
from training.batches.archives import ArchiveItem, read_items, read_pictures
from training.batches.picture_batches import SETS, hold_out
from training.batches.picture_features import WINDOW
from training.batches.picture_inputs import SELECTION_SEED, SELECTION_SET
from training.recipes.demo_recipes import DEMO

COMMON, WORDS = 25, 400
#: Frames of a pan.
PAN = 16
#: λ of the ridge regression, for features of unit length on average.
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
GROUP = 8

#: What the demo sees, and what its packages could show it too.
DEFAULT = ("tuned_pair", "coco_ssd:10", "i3d_rgb")

Matrix: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Task:
    """Pictures to learn from and to be judged by, and what their captions say: (pictures, words) each."""

    learned: Sequence[ArchiveItem]
    judged: Sequence[ArchiveItem]
    said: Matrix
    truth: Matrix

    @classmethod
    def of(cls, data: Path, count: int) -> Task:
        """``count`` of the first set's training pictures, evenly spread. Raises FileNotFoundError."""
        every = [item for _, captions in SETS for item in read_items(data / captions, "train")]
        kept, judged = hold_out(every, DEMO.held_out, SELECTION_SET, SELECTION_SEED)
        candidates = [item for item in kept if item.id.startswith(SELECTION_SET)]
        learned = candidates[:: max(1, len(candidates) // count)][:count]
        words = common_words(learned)
        return cls(learned, judged, shares(learned, words), shares(judged, words))


def looking(name: str) -> WindowExtractor:
    """The extractor, with windows of a pan where it looks at several frames. Raises BadParameter."""
    extractor = create(name)
    if isinstance(extractor, WindowExtractor) and extractor.windows.stack_size > 1:
        extractor = create(name, windows=WindowOptions(stack_size=PAN, step_size=PAN))
    if not isinstance(extractor, WindowExtractor):
        raise typer.BadParameter(f"{name} looks at no pictures")
    return extractor


def common_words(items: Sequence[ArchiveItem]) -> list[str]:
    counts = Counter(word for item in items for word in {w for c in item.captions for w in split_words(c)})
    return [word for word, _ in counts.most_common(COMMON + WORDS)][COMMON:]


def shares(items: Sequence[ArchiveItem], words: Sequence[str]) -> Matrix:
    """(items, words): the share of an item's captions that have the word."""
    place = {word: i for i, word in enumerate(words)}
    matrix = np.zeros((len(items), len(words)), np.float32)
    for row, item in zip(matrix, items, strict=True):
        for caption in item.captions:
            row[[place[word] for word in set(split_words(caption)) if word in place]] += 1 / len(
                item.captions
            )
    return matrix


def vectors(extractor: WindowExtractor, archive: Path, items: Sequence[ArchiveItem]) -> Matrix:
    """(items, channels): the mean of the extractor's first stream over places and time."""
    names = [item.files[0] for item in items]
    means: dict[str, Matrix] = {}
    pictures = iter(read_pictures(archive, names))
    while group := list(islice(pictures, GROUP)):
        shown = [frames_of(picture, extractor.windows.stack_size) for _, picture in group]
        for (name, _), streams in zip(group, extractor.extract(shown), strict=True):
            values = next(iter(streams.values())).values.float().numpy()
            means[name] = values.reshape(-1, values.shape[-1]).mean(0)
    return np.stack([means[name] for name in names])


def frames_of(picture: NDArray[np.uint8], count: int) -> Frames:
    """The picture, or for several frames a pan from its upper left to its lower right at 25 a second."""
    if count == 1:
        return Frames(picture[None], np.zeros(1), 1.0)
    image = Image.fromarray(picture)
    width, height = image.width * WINDOW, image.height * WINDOW
    windows = [
        (x, y, x + width, y + height)
        for x, y in zip(
            np.linspace(0, image.width - width, count),
            np.linspace(0, image.height - height, count),
            strict=True,
        )
    ]
    pan = [np.asarray(image.resize(image.size, Image.Resampling.BILINEAR, box)) for box in windows]
    return Frames(np.stack(pan), np.arange(count) / 25, count / 25)


def precision(task: Task, features: Iterable[tuple[Matrix, Matrix]]) -> float:
    """Mean average precision × 100. features: (learned, judged) of each stream, joined side by side.

    λ is chosen on the last fifth of what is learned from.
    """
    scaled = [_scaled(learned, judged) for learned, judged in features]
    learned, judged = (np.concatenate(parts, 1) for parts in zip(*scaled, strict=True))
    cut = len(learned) * 4 // 5
    tried = {
        strength: _mean_precision(
            _ridge(learned[:cut], task.said[:cut], strength, learned[cut:]), task.said[cut:]
        )
        for strength in STRENGTHS
    }
    best = max(tried, key=lambda strength: tried[strength])
    return 100 * _mean_precision(_ridge(learned, task.said, best, judged), task.truth)


def _scaled(learned: Matrix, judged: Matrix) -> tuple[Matrix, Matrix]:
    mean, spread = learned.mean(0), (learned.std(0) + 1e-3) * learned.shape[1] ** 0.5
    return (learned - mean) / spread, (judged - mean) / spread


def _ridge(x: Matrix, y: Matrix, strength: float, judged: Matrix) -> Matrix:
    """In the dual where there are more channels than pictures."""
    centred = y - y.mean(0)
    eye = np.eye(min(x.shape), dtype=np.float32) * strength
    if x.shape[0] < x.shape[1]:
        predicted: Matrix = judged @ x.T @ np.linalg.solve(x @ x.T + eye, centred)
    else:
        predicted = judged @ np.linalg.solve(x.T @ x + eye, x.T @ centred)
    return predicted


def _mean_precision(scores: Matrix, truth: Matrix) -> float:
    """Over the words that any picture has."""
    ranked = np.take_along_axis(truth, np.argsort(-scores, 0), 0) > 0
    ranks = np.arange(1, len(ranked) + 1)[:, None]
    total = ranked.sum(0)
    of_words = (np.cumsum(ranked, 0) / ranks * ranked).sum(0)[total > 0] / total[total > 0]
    return float(of_words.mean())


def streams(
    extractors: Annotated[
        list[str] | None, typer.Argument(help="The first is what others are added to.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the training sets.")] = None,
    pictures: Annotated[int, typer.Option(min=10, help="To learn from.")] = 1800,
) -> None:
    """Measure what each stream knows of captions' words, alone and beside the first."""
    if data is None:
        typer.echo("not run: give --data (docs/training.md)")
        return
    task = Task.of(data, pictures)
    table = Table("extractor", "channels", "alone", "beside the first", "seconds a picture")
    first: tuple[Matrix, Matrix] | None = None
    for name in extractors or DEFAULT:
        extractor, begun = looking(name), time.monotonic()
        archive = data / SETS[0][0]
        both = vectors(extractor, archive, task.learned), vectors(extractor, archive, task.judged)
        seconds = (time.monotonic() - begun) / (len(task.learned) + len(task.judged))
        joined = "" if first is None else f"{precision(task, [first, both]):.2f}"
        alone, width = f"{precision(task, [both]):.2f}", str(both[0].shape[1])
        table.add_row(name, width, alone, joined, f"{seconds:.3f}")
        first = first or both
    Console().print(table)
