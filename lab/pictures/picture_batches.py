"""Joins captioned pictures with their cached features, and makes batches of pseudo-videos of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import torch

from lab.pictures.picture_features import PictureNetwork, PictureStreams, load_features
from lab.pictures.pseudo_video import Pictures, Shots, draw_sample, lengthen_motion, stack_samples
from lab.pictures.teacher_targets import SoftTargets
from models.vocabulary import pad_captions, split_words
from training.batches.archives import ArchiveItem, read_items
from training.batches.training_batch import ItemT, TrainingBatch, TrainingBatches

#: (archive, captions) below the data folder; a captioned set is used where it is there.
SETS = (
    ("flickr8k_train.tar", "flickr8k_captions.json"),
    ("coco_train.tar", "coco_captions.json"),
    ("coco2_train.tar", "coco2_captions.json"),
    ("msrvtt_train.tar", "msrvtt_captions.json.gz"),
    ("written_train.tar", "written_captions.json"),
)
#: Ids of the last, pictures without captions of people: captioners wrote theirs (weights/stats.md).
WRITTEN = "written/"


#: By which a run on part of the pictures chooses them.
SUBSET_SEED = 7


@dataclass(frozen=True, eq=False)
class TrainingItem:
    """A picture or sparsely sampled video: features of its frames, and its captions as words."""

    id: str
    pictures: Pictures
    captions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class CachedNetwork:
    """A network and how many views of each picture are kept of its streams."""

    network: PictureNetwork
    views: int


def load_set(
    networks: Sequence[CachedNetwork], archive: Path, items: Sequence[ArchiveItem], cache: Path
) -> list[TrainingItem]:
    """Loads items of one archive with features, which are computed now where the cache lacks them.

    Args:
        networks: those that compute the features.
        archive: a tar or a folder of pictures.
        items: with the pictures' names.
        cache: where features are kept.
    """
    names = [name for item in items for name in item.files]
    caches = (load_features(each.network, archive, names, each.views, cache) for each in networks)
    features = reduce(PictureStreams.join, caches)
    return [
        TrainingItem(
            id=item.id,
            pictures=Pictures(features, tuple(features.row[name] for name in item.files)),
            captions=tuple(tuple(split_words(caption)) for caption in item.captions),
        )
        for item in items
    ]


def load_training_sets(networks: Sequence[CachedNetwork], data: Path, cache: Path) -> list[TrainingItem]:
    """Loads the training split of every set that ``data`` holds.

    Args:
        networks: those that compute the features.
        data: the folder with archives and captions.
        cache: where features are kept.

    Raises:
        FileNotFoundError: there is no set.
    """
    sets = [(data / a, data / c) for a, c in SETS if (data / a).exists() and (data / c).exists()]
    if not sets:
        archives = ", ".join(archive for archive, _ in SETS)
        raise FileNotFoundError(f"{data} holds none of {archives}; docs/training.md says what to put there")
    return [
        item
        for archive, captions in sets
        for item in load_set(networks, archive, read_items(captions, "train"), cache)
    ]


def with_streams(items: Sequence[TrainingItem], names: Collection[str]) -> list[TrainingItem]:
    """Returns the same items with these streams alone."""
    reduced: dict[int, PictureStreams] = {}

    def of(cache: PictureStreams) -> PictureStreams:
        return reduced.setdefault(id(cache), cache.keep_streams(names))

    return [replace(item, pictures=replace(item.pictures, cache=of(item.pictures.cache))) for item in items]


def hold_out(items: Sequence[ItemT], count: int, prefix: str, seed: int) -> tuple[list[ItemT], list[ItemT]]:
    """Sets items aside by which weights are chosen.

    Args:
        items: all of them.
        count: how many at most are set aside.
        prefix: with which their ids begin.
        seed: of the choice.

    Returns:
        The items to train on, and those that are held out.
    """
    candidates = [i for i, item in enumerate(items) if item.id.startswith(prefix)]
    chosen = set(np.random.default_rng(seed).permutation(candidates)[:count].tolist())
    kept = [item for i, item in enumerate(items) if i not in chosen]
    return kept, [items[i] for i in sorted(chosen)]


@dataclass(frozen=True, eq=False)
class PictureBatches(TrainingBatches[TrainingItem]):
    """Batches of pseudo-videos.

    soft: teachers' words for the captions, where there are teachers. motion: the streams that tell of motion.
    """

    shots: Shots
    dtype: torch.dtype
    soft: SoftTargets | None = None
    motion: frozenset[str] = frozenset()

    def take_subset(self, count: int) -> PictureBatches:
        """Returns batches of ``count`` of the items, always the same ones, with the vocabulary of all."""
        chosen = np.random.default_rng(SUBSET_SEED).permutation(len(self.items))[:count]
        return replace(self, items=[self.items[i] for i in sorted(chosen.tolist())])

    def at(self, step: int) -> TrainingBatch:
        """Makes batch ``step``: samples of one length, each with captions drawn for it."""
        chosen, rng = self._choose(step)
        steps = self.shots.draw_length(rng)
        others = [self.items[i].pictures for i in rng.integers(len(self.items), size=2 * self.videos)]
        samples = [draw_sample(item.pictures, others, steps, self.shots, rng) for item in chosen]
        samples = [lengthen_motion(each, self.motion, rng) for each in samples]
        drawn = [(item, i) for item in chosen for i in self._draw_captions(item, rng)]
        chosen, samples = list(self.part.of(chosen)), list(self.part.of(samples))
        drawn = list(self.part.of(drawn, self.captions))
        captions = [self.vocabulary.encode(item.captions[i]) for item, i in drawn]
        targets = pad_captions(captions, self.max_length, keep_end=self.keep_end)
        soft = None
        if self.soft is not None:
            soft = self.soft.take([(item.id, i) for item, i in drawn], targets.shape[1])
        true_steps = torch.from_numpy(np.stack([built.true for built in samples]))
        ids = tuple(item.id for item in chosen)
        places = tuple(i for _, i in drawn)
        return TrainingBatch(ids, stack_samples(samples, self.dtype), targets, true_steps, soft, places)
