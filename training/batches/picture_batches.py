"""Items joined with their cached features and word ids: what a training step draws from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from models.inputs import Batch, StreamReader, order_inputs
from models.vocabulary import Vocabulary, pad_captions
from training.batches.archives import Item, read_items
from training.batches.picture_features import FeatureCache, PictureNetwork, cached_features
from training.batches.pseudo_video import Pictures, Shots, batch_of, sample
from training.batches.teacher_targets import SoftTargets, TeacherTargets
from training.datasets.words import words_of

#: (archive, captions) below the data folder; a captioned set is used where it is there.
SETS = (
    ("flickr8k_train.tar", "flickr8k_captions.json"),
    ("coco_train.tar", "coco_captions.json"),
    ("coco2_train.tar", "coco2_captions.json"),
    ("msrvtt_train.tar", "msrvtt_captions.json.gz"),
    ("written_train.tar", "written_captions.json"),
)
#: Ids of the last, pictures that nobody has captioned: captioners did (training/tools/write_captions.py).
WRITTEN = "written/"


SOME_SEED = 7


class Named(Protocol):
    """What has an id."""

    @property
    def id(self) -> str: ...


AnyItem = TypeVar("AnyItem", bound=Named)


@dataclass(frozen=True, eq=False)
class TrainingItem:
    """One item: features of its frames and its captions as words."""

    id: str
    pictures: Pictures
    captions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """B pseudo-videos, one batch a stream, and K captions of each: targets (B·K, L).

    true_steps: bool (B, T), the steps that they are of, None where that is all of them. soft: what a teacher
    would have written.
    """

    ids: tuple[str, ...]
    batches: Mapping[str, Batch]
    targets: Tensor
    true_steps: Tensor | None
    soft: TeacherTargets | None = None

    def of(self, network: StreamReader) -> list[Batch]:
        """What the ``encode_batches`` of a captioner or an embedding takes."""
        return order_inputs(network, self.batches)


@dataclass(frozen=True, eq=False)
class CachedNetwork:
    """A network and how many views of each picture are kept of its streams."""

    network: PictureNetwork
    views: int


def load_set(
    describers: Sequence[CachedNetwork], archive: Path, items: Sequence[Item], cache: Path
) -> list[TrainingItem]:
    """Items of one archive with features, computed now where the cache lacks them."""
    names = [name for item in items for name in item.files]
    caches = (cached_features(each.network, archive, names, each.views, cache) for each in describers)
    features = reduce(FeatureCache.joined, caches)
    return [
        TrainingItem(
            id=item.id,
            pictures=Pictures(features, tuple(features.row[name] for name in item.files)),
            captions=tuple(tuple(words_of(caption)) for caption in item.captions),
        )
        for item in items
    ]


def load_training_sets(describers: Sequence[CachedNetwork], data: Path, cache: Path) -> list[TrainingItem]:
    """Every set that ``data`` holds, training split. Raises FileNotFoundError where there is none."""
    found = [(data / a, data / c) for a, c in SETS if (data / a).exists() and (data / c).exists()]
    if not found:
        wanted = ", ".join(archive for archive, _ in SETS)
        raise FileNotFoundError(f"{data} holds none of {wanted}; docs/training.md says what to put there")
    return [
        item
        for archive, captions in found
        for item in load_set(describers, archive, read_items(captions, "train"), cache)
    ]


def with_streams(items: Sequence[TrainingItem], names: Collection[str]) -> list[TrainingItem]:
    """The same items with these streams alone."""
    known: dict[int, FeatureCache] = {}

    def of(cache: FeatureCache) -> FeatureCache:
        return known.setdefault(id(cache), cache.only(names))

    return [replace(item, pictures=replace(item.pictures, cache=of(item.pictures.cache))) for item in items]


def hold_out(
    items: Sequence[AnyItem], count: int, prefix: str, seed: int
) -> tuple[list[AnyItem], list[AnyItem]]:
    """(training, held out): ``count`` items whose id begins with ``prefix`` are set aside for selection."""
    candidates = [i for i, item in enumerate(items) if item.id.startswith(prefix)]
    chosen = set(np.random.default_rng(seed).permutation(candidates)[:count].tolist())
    kept = [item for i, item in enumerate(items) if i not in chosen]
    return kept, [items[i] for i in sorted(chosen)]


@dataclass(frozen=True, eq=False)
class Batches:
    """An endless, resumable order of batches: batch ``step`` is a function of the seed and ``step`` alone."""

    items: Sequence[TrainingItem]
    vocabulary: Vocabulary
    videos: int
    captions: int
    max_length: int
    shots: Shots
    seed: int
    dtype: torch.dtype
    soft: SoftTargets | None = None

    def some(self, count: int) -> Batches:
        """``count`` of the items, always the same ones, with the vocabulary of all."""
        chosen = np.random.default_rng(SOME_SEED).permutation(len(self.items))[:count]
        return replace(self, items=[self.items[i] for i in sorted(chosen.tolist())])

    @property
    def steps_per_epoch(self) -> int:
        return len(self.items) // self.videos

    def at(self, step: int) -> TrainingBatch:
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((self.seed, 1, epoch)).permutation(len(self.items))
        rng = np.random.default_rng((self.seed, 2, step))
        chosen = [self.items[i] for i in order[place * self.videos : (place + 1) * self.videos]]
        steps = self.shots.draw_length(rng)
        others = [self.items[i].pictures for i in rng.integers(len(self.items), size=2 * self.videos)]
        samples = [sample(item.pictures, others, steps, self.shots, rng) for item in chosen]
        drawn = [(item, i) for item in chosen for i in self._drawn(item, rng)]
        captions = [self.vocabulary.encode(item.captions[i]) for item, i in drawn]
        targets = pad_captions(captions, self.max_length)
        soft = None
        if self.soft is not None:
            soft = self.soft.rows([(item.id, i) for item, i in drawn], targets.shape[1])
        true_steps = torch.from_numpy(np.stack([built.true for built in samples]))
        ids = tuple(item.id for item in chosen)
        return TrainingBatch(ids, batch_of(samples, self.dtype), targets, true_steps, soft)

    def _drawn(self, item: TrainingItem, rng: np.random.Generator) -> list[int]:
        """Which of its captions are taken, by their places."""
        repeats = self.captions > len(item.captions)
        places: list[int] = rng.choice(len(item.captions), self.captions, replace=repeats).tolist()
        return places
