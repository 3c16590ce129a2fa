"""Loads what all rows of a stream set are trained on and judged by.

Rows are judged by held-out pictures, shown in two ways: as stills, on which nothing that looks along time can
show, and each as a shot of a pseudo-video (training/batches/pseudo_video.py) between shots of other held-out
pictures, its place uniform.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from extractors.features import StreamSpec
from lab.ablations.row import EVAL_SETS, RECIPE, EvalSetName
from models.captioners.registry import find_stream_set
from models.stream_set import combine_stream_sets
from models.vocabulary import Vocabulary
from training.batches.picture_batches import PictureBatches, TrainingItem
from training.batches.picture_inputs import SELECTION_SET, PictureInputs, read_cards
from training.batches.pseudo_video import Sample, Shots, draw_sample, sample_whole
from training.batches.teacher_targets import SoftTargets
from training.precision import CPU, training_precision
from training.recipes.recipe import Recipe
from training.scores.cider import CiderD
from training.sessions.pictures import compute_teacher_targets


@dataclass(frozen=True, eq=False)
class AblationCorpus:
    """Pictures of some stream sets, with the words and the scorer that follow from them.

    items: trained on. held_out: never trained on, the same for every run. specs: the streams' name tags.
    soft: words of teachers, where there are any. device: that computes, in ``precision``.
    """

    streams: str
    items: Sequence[TrainingItem]
    held_out: Sequence[TrainingItem]
    vocabulary: Vocabulary
    specs: Mapping[str, StreamSpec]
    scorer: CiderD
    precision: torch.dtype
    soft: SoftTargets | None = None
    device: torch.device = CPU

    @classmethod
    def load(
        cls,
        streams: str,
        data: Path,
        cache: Path,
        judged: int,
        teachers: Sequence[str] = (),
        device: torch.device = CPU,
    ) -> AblationCorpus:
        """Loads the pictures of stream sets, with features and the teachers' words.

        Args:
            streams: names of stream sets, joined by "+".
            data: the folder with archives and captions.
            cache: where features are kept.
            judged: how many held-out pictures.
            teachers: captioners' names or checkpoints.
            device: that computes.

        Raises:
            FileNotFoundError: ``data`` lacks the sets.
        """
        stream_set = combine_stream_sets([find_stream_set(name) for name in streams.split("+")])
        inputs = PictureInputs.build(stream_set, stream_set.streams, read_cards(teachers), device)
        kept, held_out = inputs.items(data, cache, RECIPE.held_out)
        if not held_out:
            raise FileNotFoundError(f"{data} has no pictures of {SELECTION_SET} to judge by")
        corpus = replace(
            cls.from_items(streams, kept, held_out[:judged], inputs.specs),
            precision=training_precision(device),
            device=device,
        )
        if not teachers:
            return corpus
        soft = compute_teacher_targets(teachers, corpus.make_batches(RECIPE), cache, device)
        return replace(corpus, soft=soft)

    @classmethod
    def from_items(
        cls,
        streams: str,
        items: Sequence[TrainingItem],
        held_out: Sequence[TrainingItem],
        specs: Mapping[str, StreamSpec],
    ) -> AblationCorpus:
        """Makes a corpus, with what follows from the captions: words, and the scorer's frequencies.

        Args:
            streams: names of stream sets, joined by "+".
            items: trained on.
            held_out: judged by.
            specs: the streams' name tags.
        """
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

    def make_batches(self, recipe: Recipe, videos: int | None = None) -> PictureBatches:
        """Makes batches of the pictures.

        Args:
            recipe: how many a batch, and how samples are made.
            videos: how many of the items, taken evenly from all sets; None takes all.
        """
        step = 1 if videos is None else max(1, len(self.items) // videos)
        return PictureBatches(
            items=self.items[::step][:videos],
            vocabulary=self.vocabulary,
            videos=recipe.videos,
            captions=recipe.captions,
            max_length=recipe.max_length,
            shots=Shots(recipe.lengths, recipe.distractors),
            seed=recipe.seed,
            dtype=self.precision,
            soft=self.soft,
        )

    def show_eval_sets(self) -> dict[EvalSetName, JudgedPictures]:
        """Returns the held-out pictures as stills, and among other shots."""
        return {name: JudgedPictures.show(name, self.held_out) for name in EVAL_SETS}


GROUP = 50
#: Steps of a sample of each; ablations are trained on up to as many.
STEPS: dict[EvalSetName, int] = {"stills": 1, "shots": 6}
SEED = 2020
ALWAYS_BETWEEN_OTHERS = Shots(lengths=(1.0,), distractors=1.0)


@dataclass(frozen=True, eq=False)
class JudgedPictures:
    """Samples are a function of SEED and an item's place, so that every row is shown the same."""

    items: Sequence[TrainingItem]
    steps: int

    @classmethod
    def show(cls, name: EvalSetName, items: Sequence[TrainingItem]) -> JudgedPictures:
        """Returns the items as stills, or as one of several shots."""
        return cls(items, STEPS[name])

    def draw_groups(self) -> Iterator[tuple[Sequence[TrainingItem], list[Sample]]]:
        """Yields groups of items, each with their samples of one length."""
        for first in range(0, len(self.items), GROUP):
            places = range(first, min(first + GROUP, len(self.items)))
            yield self.items[first : first + GROUP], [self.draw_sample(place) for place in places]

    def draw_sample(self, place: int) -> Sample:
        """Draws the sample of the item at ``place``, always the same."""
        item = self.items[place]
        if self.steps == 1:
            return sample_whole(item.pictures)
        rng = np.random.default_rng((SEED, place))
        drawn = rng.integers(1, len(self.items), size=2)  # never the item itself
        others = [self.items[(place + int(step)) % len(self.items)].pictures for step in drawn]
        return draw_sample(item.pictures, others, self.steps, ALWAYS_BETWEEN_OTHERS, rng)
