"""Makes captioners at the widths of their papers, with random weights and a batch of random features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from models.captioner import Captioner
from models.captioners.registry import captioner_class, find_stream_set
from models.inputs import Batch, InputStream
from models.stream_set import StreamInput
from models.vocabulary import Vocabulary, pad_captions
from training.batches.training_batch import TrainingBatch
from training.recipes.paper_recipes import PaperRun, find_paper_run, list_paper_runs
from training.recipes.recipe import Recipe

#: Rows of time of a video of 10 s at the papers' strides, and words that are known.
MOMENTS, WORDS = 26, 8000
#: Of a test.
FEW_MOMENTS, FEW_WORDS, FEW_VIDEOS = 4, 40, 2


def list_paper_captioners() -> dict[str, str]:
    """Returns each captioner with a recipe of its paper that has nothing but streams for inputs."""
    return {
        captioner: recipe
        for recipe, captioner in list_paper_runs()
        if not recipe.endswith(("-hard", "-class"))
    }


@dataclass(frozen=True, eq=False)
class PaperBatch:
    """A captioner at its paper's widths on the CPU, its recipe, and a batch of the paper's size."""

    captioner: Captioner
    recipe: Recipe
    batch: TrainingBatch

    @classmethod
    def make(cls, name: str, recipe: str, quick: bool = False) -> PaperBatch:
        """Makes them by the paper's recipe.

        Args:
            name: of the captioner.
            recipe: a paper's.
            quick: whether the batch and the vocabulary are those of a test.
        """
        run: PaperRun = find_paper_run(recipe, name)
        streams = find_stream_set(run.streams)
        vocabulary = Vocabulary([f"word{i}" for i in range(FEW_WORDS if quick else WORDS)])
        torch.manual_seed(0)
        captioner = captioner_class(name)(run.config(streams), vocabulary)
        plan = run.recipe.in_steps(1000)
        if quick:
            plan = plan.model_copy(update={"videos": FEW_VIDEOS})
        batch = _make_batch(captioner, {each.stream: each for each in streams.inputs}, plan, quick)
        return cls(captioner, plan, batch)


def _make_batch(
    captioner: Captioner, streams: Mapping[str, StreamInput], recipe: Recipe, quick: bool
) -> TrainingBatch:
    generator = torch.Generator().manual_seed(0)
    moments = FEW_MOMENTS if quick else MOMENTS
    batches = {
        each.name: _make_stream(each, streams[each.name].count, recipe.videos, moments, generator)
        for each in captioner.inputs
        if each.name in streams
    }
    rows = recipe.videos * recipe.captions
    lengths = torch.randint(4, recipe.max_length, (rows,), generator=generator).tolist()
    words = len(captioner.vocabulary)
    captions = [torch.randint(3, words, (length,), generator=generator).tolist() for length in lengths]
    ids = tuple(map(str, range(recipe.videos)))
    return TrainingBatch(ids, batches, pad_captions(captions, recipe.max_length), None)


def _make_stream(
    stream: InputStream, regions: int, videos: int, moments: int, generator: torch.Generator
) -> Batch:
    mask = torch.ones(videos, moments, regions, dtype=torch.bool)
    start = torch.arange(moments, dtype=torch.float64).expand(videos, moments)
    return Batch(
        times=torch.stack([start, start + 1], 2),
        values=torch.randn(videos, moments, regions, stream.width, generator=generator),
        frame_mask=mask.any(2),
        region_mask=mask,
    )


def with_videos(made: PaperBatch, videos: int) -> PaperBatch:
    """Returns the same captioner with another number of videos a batch, the first ones again."""
    index = torch.arange(videos) % len(made.batch.ids)
    batches = {name: each.select(index) for name, each in made.batch.batches.items()}
    targets = made.batch.targets[index]
    return replace(made, batch=replace(made.batch, ids=(), batches=batches, targets=targets))
