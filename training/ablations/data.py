"""What all rows of a stream set are trained on and judged by, loaded once."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from extractors.features import StreamSpec
from models.feature_sources.stream_sets import combine_stream_sets, find_stream_set
from models.vocabulary import Vocabulary
from training.ablations.judged_pictures import JudgedPictures
from training.ablations.row import RECIPE, SHEETS, SheetName
from training.batches.picture_batches import Batches, TrainingBatch, TrainingItem
from training.batches.picture_inputs import SELECTION_SET, PictureInputs, cards_of
from training.batches.pseudo_video import Shots
from training.batches.teacher_targets import SoftTargets
from training.precision import training_precision
from training.recipes.recipe import Recipe
from training.scores.cider import CiderD
from training.sessions.pictures import learned_from


class OutOfTime(Exception):
    """A row has had its minutes."""


@dataclass(frozen=True, eq=False)
class TimedBatches(Batches):
    """Raises OutOfTime for what is asked after ``until`` (of ``time.monotonic``)."""

    until: float = math.inf

    def at(self, step: int) -> TrainingBatch:
        if time.monotonic() > self.until:
            raise OutOfTime
        return super().at(step)


@dataclass(frozen=True, eq=False)
class Corpus:
    """items: trained on. held_out: never trained on, the same for every run. specs: the streams' name tags.

    soft: what teachers would have written, where there are any.
    """

    streams: str
    items: Sequence[TrainingItem]
    held_out: Sequence[TrainingItem]
    vocabulary: Vocabulary
    specs: Mapping[str, StreamSpec]
    scorer: CiderD
    precision: torch.dtype
    soft: SoftTargets | None = None

    @classmethod
    def load(cls, streams: str, data: Path, cache: Path, judged: int, teachers: Sequence[str] = ()) -> Corpus:
        """streams: names of stream sets, joined by "+". judged: how many held-out pictures.

        Raises FileNotFoundError where ``data`` lacks the sets.
        """
        wanted = combine_stream_sets([find_stream_set(name) for name in streams.split("+")])
        inputs = PictureInputs.of(wanted, wanted.streams, cards_of(teachers))
        kept, held_out = inputs.items(data, cache, RECIPE.held_out)
        if not held_out:
            raise FileNotFoundError(f"{data} has no pictures of {SELECTION_SET} to judge by")
        corpus = cls.of(streams, kept, held_out[:judged], inputs.specs)
        if not teachers:
            return corpus
        return replace(corpus, soft=learned_from(teachers, corpus.batches(RECIPE), cache))

    @classmethod
    def of(
        cls,
        streams: str,
        items: Sequence[TrainingItem],
        held_out: Sequence[TrainingItem],
        specs: Mapping[str, StreamSpec],
    ) -> Corpus:
        """With what follows from the captions: words, and the scorer's frequencies."""
        captions = [caption for item in items for caption in item.captions]
        return cls(
            streams=streams,
            items=items,
            held_out=held_out,
            vocabulary=Vocabulary.from_captions(captions, size=RECIPE.vocabulary_size),
            specs=specs,
            scorer=CiderD({item.id: item.captions for item in held_out}),
            precision=training_precision(),
        )

    def batches(self, recipe: Recipe, until: float = math.inf, videos: int | None = None) -> TimedBatches:
        """videos: how many of the items, taken evenly from all sets; None takes all."""
        step = 1 if videos is None else max(1, len(self.items) // videos)
        return TimedBatches(
            items=self.items[::step][:videos],
            vocabulary=self.vocabulary,
            videos=recipe.videos,
            captions=recipe.captions,
            max_length=recipe.max_length,
            shots=Shots(recipe.lengths, recipe.distractors),
            seed=recipe.seed,
            dtype=self.precision,
            soft=self.soft,
            until=until,
        )

    def sheets(self) -> dict[SheetName, JudgedPictures]:
        return {name: JudgedPictures.of(name, self.held_out) for name in SHEETS}
