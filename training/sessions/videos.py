"""Trains captioners on videos: goes on with one that is there, or starts from nothing.

Fine-tuning keeps vocabulary, widths and streams of its start. What is kept is never worse on the videos that
it is judged by than the captioner it started from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.captioner import AnyCaptioner
from models.captioners.registry import captioner_class
from models.checkpoint import Card, Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from models.feature_sources.feature_source import FeatureSource
from models.feature_sources.stream_checks import check_extractors, check_streams, select_stream_set
from models.feature_sources.stream_sets import StreamSet, find_stream_set
from models.vocabulary import Vocabulary
from training.batches.picture_inputs import config_for_streams
from training.batches.video_batches import CaptionedVideo, Inputs, Tell, VideoBatches, with_features
from training.batches.video_features import VideoFeatures
from training.datasets.caption_set import CaptionSet
from training.datasets.errors import NothingToUse
from training.datasets.protocols import VocabularyRule
from training.datasets.registry import SetFolder
from training.optimization.refocus_phases import train_later_phases
from training.optimization.rewards import require
from training.optimization.run_folder import TrainingRun
from training.optimization.video_trainer import VideoTrainer
from training.precision import training_precision
from training.recipes.papers import PaperRun
from training.recipes.recipe import Recipe
from training.recipes.recipe_book import DEMO_CONFIGS

#: With fewer videos than this none is set aside.
ENOUGH = 10
SELECTION_SEED = 2020
#: Unknown words that are named.
NAMED = 8


@dataclass(frozen=True, eq=False)
class VideoSplit:
    """Videos that are trained on, and those that say which weights are kept; in words where they are from."""

    train: Sequence[CaptionedVideo]
    held_out: Sequence[CaptionedVideo]
    held_out_are: str


@dataclass(frozen=True)
class RunPaths:
    """out: the run's folder, from which a stopped run goes on. cache: where features are kept.

    tell: is given a sentence for whatever the user should know.
    """

    out: Path
    cache: Path
    tell: Tell
    threads: int = 2


def finetune(start: Path, name: str, recipe: Recipe, captions: CaptionSet, place: RunPaths) -> Path:
    """Trains the captioner of the checkpoint ``start`` on; returns the best checkpoint's path.

    name: what captioner that has to be. Raises CheckpointError, DataSetError, StreamMismatch.
    """
    torch.set_num_threads(place.threads)
    checkpoint = load_checkpoint(start)
    if checkpoint.card.captioner != name:
        raise CheckpointError(
            f"{start} is a {checkpoint.card.captioner}; start a {name} from one of its like."
        )
    source = feature_source_of(checkpoint, place.cache, place.threads)
    videos = _read(captions, source, place)
    check_streams(checkpoint, videos[0].load())
    return _train(checkpoint, recipe, split_videos(captions.name, videos), place)


def train_on_videos(
    name: str,
    streams: StreamSet,
    recipe: Recipe,
    captions: CaptionSet,
    rule: VocabularyRule,
    place: RunPaths,
    config: Any = None,
) -> Path:
    """Trains a captioner from nothing; returns the best checkpoint's path.

    rule: which words it knows. config: by default of the demo's widths. Raises DataSetError, and
    UnknownStream where ``streams`` lacks what it eats.
    """
    torch.set_num_threads(place.threads)
    config = config_for_streams(DEMO_CONFIGS[name](), streams) if config is None else config
    wanted = streams.select([stream.name for stream in config.streams])
    videos = _read(captions, FeatureSource(wanted, threads=place.threads, cache=place.cache), place)
    specs = {stream: built.spec for stream, built in videos[0].load().items()}
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(config, rule.vocabulary(captions))
    card = Card(
        name, {stream.name: specs[stream.name] for stream in config.streams}, {}, {"streams": streams.name}
    )
    return _train(Checkpoint(captioner, card, ""), recipe, split_videos(captions.name, videos), place)


def _read(captions: CaptionSet, source: FeatureSource, place: RunPaths) -> list[CaptionedVideo]:
    for notice in captions.notices:
        place.tell(notice.message)
    return with_features(captions.name, captions.require(), VideoFeatures(source, place.cache), place.tell)


def _train(start: Checkpoint, recipe: Recipe, division: VideoSplit, place: RunPaths) -> Path:
    """From the checkpoint's weights to the best on the held-out videos."""
    place.tell(f"{len(division.train)} videos to train on; weights are chosen by {division.held_out_are}.")
    vocabulary = start.captioner.vocabulary
    place.tell(unknown_words_message(unknown_words(division.train, vocabulary)))
    run = TrainingRun(place.out)
    trainer = VideoTrainer(
        recipe=recipe,
        batches=_batches(start.captioner, division.train, recipe),
        held_out=division.held_out,
        run=run,
        save_best=_saver(start, division, recipe, run),
        precision=training_precision(),
    )
    trainer.tune(start.captioner)
    train_later_phases(start.captioner, trainer, trainer, run.best_after)
    return run.best


def feature_source_of(checkpoint: Checkpoint, cache: Path, threads: int) -> FeatureSource:
    """What makes the captioner's streams. Raises StreamMismatch where it was trained on others."""
    wanted = select_stream_set(checkpoint.card)
    source = FeatureSource(wanted, threads=threads, cache=cache)
    check_extractors(checkpoint, wanted, source.extractors)
    return source


def split_videos(name: str, videos: Sequence[CaptionedVideo]) -> VideoSplit:
    """By the set's own splits. Without one for validation every tenth video is set aside, of ENOUGH or more.

    Raises NothingToUse where none is for training.
    """
    train = [each for each in videos if each.video.split == "train"]
    val = [each for each in videos if each.video.split == "val"]
    if not train:
        raise NothingToUse(f"No video of {name} is of the training split.")
    if val:
        return VideoSplit(train, val, f"the {len(val)} of the validation split")
    if len(train) < ENOUGH:
        return VideoSplit(train, train, f"the same videos, as there are fewer than {ENOUGH}")
    order = np.random.default_rng(SELECTION_SEED).permutation(len(train))
    aside = set(order[: len(train) // 10].tolist())
    kept = [each for i, each in enumerate(train) if i not in aside]
    held_out = [train[i] for i in sorted(aside)]
    return VideoSplit(kept, held_out, f"{len(held_out)} others that were set aside")


def unknown_words(videos: Iterable[CaptionedVideo], vocabulary: Vocabulary) -> Counter[str]:
    """How often each word that the vocabulary lacks is in the captions."""
    counts = Counter(word for each in videos for caption in each.captions for word in caption)
    return Counter({word: count for word, count in counts.items() if word not in vocabulary})


def unknown_words_message(unknown: Counter[str]) -> str:
    if not unknown:
        return "Every word of the captions is known to the captioner."
    named = ", ".join(f"{word} ({count}×)" for word, count in unknown.most_common(NAMED))
    more = ", …" if len(unknown) > NAMED else ""
    return f"{len(unknown)} words are unknown to the captioner and will not be written: {named}{more}."


def _batches(captioner: AnyCaptioner, train: Sequence[CaptionedVideo], recipe: Recipe) -> VideoBatches:
    return VideoBatches(
        items=train,
        vocabulary=captioner.vocabulary,
        inputs=Inputs.of(captioner),
        videos=recipe.videos,
        captions=recipe.captions,
        max_length=recipe.max_length,
        seed=recipe.seed,
    )


def _saver(
    start: Checkpoint, division: VideoSplit, recipe: Recipe, run: TrainingRun
) -> Callable[[AnyCaptioner, float, str], None]:
    """Keeps the card of the start, with these videos' ids beside those it was trained on."""
    known = start.card.training
    ids = [*known.get("ids", ()), *(each.id for each in division.train)]
    of = {"recipe": recipe.model_dump(), "start_sha256": start.sha256, "ids": ids}

    def save(captioner: AnyCaptioner, cider: float, where: str) -> None:
        scores = {division.held_out_are: {"cider": round(cider, 2), "n": len(division.held_out)}}
        card: Card = replace(start.card, scores=scores, training={**known, **of, "chosen_at": where})
        save_checkpoint(run.best, captioner, card)

    return save


# Training a captioner on a paper's set, with the paper's splits, words, streams, widths and phases.


def train_as_paper(
    name: str,
    run: PaperRun,
    root: Path,
    place: RunPaths,
    streams: str | None = None,
    self_critical: bool = True,
) -> Path:
    """root: the set's folder. streams: another stream set than the paper's. Returns the best checkpoint.

    Raises DataSetError for a set that is not there, UnknownStreamSet, UnknownStream, NoReward.
    """
    if self_critical and "self_critical" in run.epochs:
        require(run.recipe.rewards)
    folder = SetFolder(root, run.data_set, run.paper)
    captions, wanted = folder.load(), find_stream_set(streams or run.streams)
    plan = run.plan(sum(len(video.captions) for video in captions.of("train")), self_critical)
    return train_on_videos(name, wanted, plan, captions, folder.rule, place, run.config(wanted))


def seeded(run: PaperRun, seed: int | None) -> PaperRun:
    """The same with another seed, if there is one."""
    return run if seed is None else replace(run, recipe=run.recipe.model_copy(update={"seed": seed}))
