"""Training a captioner on a paper's set, with the paper's splits, words, streams, widths and phases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from models.stream_sets import stream_set
from training.datasets.set_folder import SetFolder
from training.paper_recipes import PaperRun
from training.rewards import require
from training.video_session import Place, train_on_videos


def train_as_paper(
    name: str, run: PaperRun, root: Path, place: Place, streams: str | None = None, self_critical: bool = True
) -> Path:
    """root: the set's folder. streams: another stream set than the paper's. Returns the best checkpoint.

    Raises DataSetError for a set that is not there, UnknownStreamSet, UnknownStream, NoReward.
    """
    if self_critical and "self_critical" in run.epochs:
        require(run.recipe.rewards)
    folder = SetFolder(root, run.data_set, run.paper)
    captions, wanted = folder.load(), stream_set(streams or run.streams)
    plan = run.plan(sum(len(video.captions) for video in captions.of("train")), self_critical)
    return train_on_videos(name, wanted, plan, captions, folder.rule, place, run.config(wanted))


def seeded(run: PaperRun, seed: int | None) -> PaperRun:
    """The same with another seed, if there is one."""
    return run if seed is None else replace(run, recipe=run.recipe.model_copy(update={"seed": seed}))
