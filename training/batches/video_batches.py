"""Real videos with their captions as training batches: each has as many rows of each stream as it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from extractors.decoder.decoder import Decoder
from extractors.features import Features
from models.captioner import AnyCaptioner
from models.inputs import Batch, InputStream, collate_inputs
from models.vocabulary import Vocabulary, pad_captions
from training.batches.picture_batches import TrainingBatch
from training.batches.video_features import VideoFeatures, failure_lines
from training.datasets.caption_set import VideoItem, words
from training.datasets.errors import NothingToUse

#: Is given sentences that the user should know.
Tell: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class CaptionedVideo:
    """A video whose features are on the disk, and its captions as words."""

    video: VideoItem
    features: VideoFeatures
    captions: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, video: VideoItem, features: VideoFeatures) -> CaptionedVideo:
        return cls(video, features, tuple(tuple(words(caption)) for caption in video.captions))

    @property
    def id(self) -> str:
        return self.video.id

    def load(self) -> Features:
        """Raises FeaturesDamaged."""
        return self.features.load(self.video)


def with_features(
    name: str, videos: Sequence[VideoItem], features: VideoFeatures, tell: Tell
) -> list[CaptionedVideo]:
    """Those of a set's videos that can be read, with features, which are made now where they are not there.

    tell: is given a sentence for each of the first few that cannot. Raises NothingToUse where none can.
    """
    with closing(Decoder()) as decoder:  # its process starts with the first file, if there is one
        failed = features.make(videos, decoder)
    for line in failure_lines(failed):
        tell(line)
    lost = {each.id for each in failed}
    read = [CaptionedVideo.of(video, features) for video in videos if video.id not in lost]
    if not read:
        raise NothingToUse(f"None of the {len(videos)} videos of {name} can be read.")
    return read


@dataclass(frozen=True)
class Inputs:
    """The streams that a captioner reads. optional: those that a video may lack."""

    streams: tuple[InputStream, ...]
    optional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, captioner: AnyCaptioner) -> Inputs:
        named = {each.name: InputStream(name=each.name, width=each.width) for each in captioner.inputs}
        return cls(tuple(named.values()), captioner.optional_streams)

    def batches(self, features: Sequence[Features]) -> dict[str, Batch]:
        """One padded batch a stream."""
        collated = collate_inputs(features, self.streams, torch.device("cpu"), self.optional)
        return {stream.name: batch for stream, batch in zip(self.streams, collated, strict=True)}


@dataclass(frozen=True, eq=False)
class VideoBatches:
    """An endless, resumable order of batches, as ``training.batches.picture_batches.Batches`` is for
    pictures.

    Where there are fewer videos than a batch has, a batch is all of them.
    """

    items: Sequence[CaptionedVideo]
    vocabulary: Vocabulary
    inputs: Inputs
    videos: int
    captions: int
    max_length: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return max(1, len(self.items) // self.videos)

    def at(self, step: int) -> TrainingBatch:
        """Batch ``step`` is a function of the seed and ``step`` alone. Raises FeaturesDamaged."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((self.seed, 1, epoch)).permutation(len(self.items))
        rng = np.random.default_rng((self.seed, 2, step))
        chosen = [self.items[i] for i in order[place * self.videos : (place + 1) * self.videos]]
        captions = [self.vocabulary.encode(caption) for item in chosen for caption in self._drawn(item, rng)]
        return TrainingBatch(
            ids=tuple(item.id for item in chosen),
            batches=self.whole(chosen),
            targets=pad_captions(captions, self.max_length),
            true_steps=None,
        )

    def whole(self, items: Sequence[CaptionedVideo]) -> Mapping[str, Batch]:
        """One batch a stream of whole videos."""
        return self.inputs.batches([item.load() for item in items])

    def _drawn(self, item: CaptionedVideo, rng: np.random.Generator) -> list[tuple[str, ...]]:
        repeats = self.captions > len(item.captions)
        return [item.captions[i] for i in rng.choice(len(item.captions), self.captions, replace=repeats)]
