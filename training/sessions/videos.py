"""Trains captioners on videos: continues one that is there, or starts from nothing.

Fine-tuning keeps vocabulary, widths and streams of its start. What is kept is never worse on the videos that
it is judged by than the captioner it started from.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel

from extractors.features import StreamSpec
from models.captioners.registry import captioner_class, find_captioner, find_stream_set
from models.checkpoint import Card, Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from models.feature_sources.feature_source import FeatureSource
from models.feature_sources.stream_checks import check_extractors, check_streams, select_stream_set
from models.stream_set import DEMO, StreamSet
from models.video_category import CATEGORY, CATEGORY_SPEC, list_extracted
from models.vocabulary import Vocabulary
from training.batches.video_batches import CaptionedVideo, VideoBatches, VideoInputs, load_captioned_videos
from training.batches.video_features import FeatureStore, VideoFeatures
from training.datasets.caption_set import MISSING_VIDEO, CaptionSet
from training.datasets.data_set import VocabularyRule
from training.datasets.errors import NothingToUse
from training.datasets.registry import SetFolder
from training.optimization.learner import TrainedNetwork
from training.optimization.phases import train_later_phases
from training.optimization.progress import BestScore
from training.optimization.rewards import check_rewards
from training.optimization.run_folder import RunSettings, TrainingRun
from training.optimization.trainer import Trainer, list_phase_names
from training.optimization.validation import VideoValidation
from training.precision import set_precision
from training.recipes.changes import FieldRefused, NoSuchField, change_fields
from training.recipes.paper_recipes import PaperRun
from training.recipes.recipe import Recipe, RewardWeights
from training.runs.run_record import RunDescription, TrainedData, hash_features
from training.saved_features.feature_folder import FeatureFolder
from training.saved_features.feature_map import FeaturesDoNotFit
from training.scores.metrics import NO_CIDER

#: With fewer videos than this none is set aside.
ENOUGH = 10
SELECTION_SEED = 2020
#: Unknown words that are named.
NAMED = 8


@dataclass(frozen=True, eq=False)
class VideoSplit:
    """Videos to train on, and those that decide which weights are kept."""

    name: str  #: of the set
    train: Sequence[CaptionedVideo]
    held_out: Sequence[CaptionedVideo]
    held_out_are: str  #: which, in words


def finetune(start: Path, name: str, recipe: Recipe, captions: CaptionSet, settings: RunSettings) -> Path:
    """Trains the captioner of a checkpoint on.

    Args:
        start: the checkpoint.
        name: what captioner that has to be.
        recipe: how it is trained.
        captions: the videos.
        settings: the run's folder, the features' folder, threads.

    Raises:
        CheckpointError: ``start`` is damaged, or another captioner.
        NoSuchField, FieldRefused: the changed configuration does not fit its weights.
        StreamMismatch: the streams that are made here are others than it was trained on.
        DataSetError: the set has no video to train on.
        FeatureMapDamaged, FeaturesDoNotFit, UnknownStream: saved features are not what it reads.
    """
    torch.set_num_threads(settings.threads)
    checkpoint = load_checkpoint(start, settings.device)
    if checkpoint.card.captioner != name:
        raise CheckpointError(
            f"{start} is a {checkpoint.card.captioner}; start a {name} from one of its like."
        )
    checkpoint = _change_start(checkpoint, settings)
    videos = _load_videos(captions, _open_store_of_start(checkpoint, settings), settings)
    check_streams(checkpoint, videos[0].load())
    return _train(checkpoint, recipe, split_videos(captions.name, videos), settings)


def _change_start(start: Checkpoint, settings: RunSettings) -> Checkpoint:
    """Changes the configuration of a start, as far as its weights fit. Raises NoSuchField, FieldRefused."""
    if not settings.config:
        return start
    captioner = start.captioner
    config = change_fields(captioner.config, settings.config)
    try:
        changed = captioner.with_config({name: getattr(config, name) for name in type(config).model_fields})
    except RuntimeError as error:  # the state of other widths
        names = ", ".join(settings.config)
        raise FieldRefused(f"The weights of --start have another width: leave out {names}.") from error
    return replace(start, captioner=changed.to(settings.device))


def train_on_videos(
    name: str,
    streams: StreamSet,
    recipe: Recipe,
    captions: CaptionSet,
    rule: VocabularyRule,
    settings: RunSettings,
    config: BaseModel | None = None,
) -> Path:
    """Trains a captioner from nothing.

    Args:
        name: of the captioner.
        streams: the set that feeds it.
        recipe: how it is trained.
        captions: the videos.
        rule: which words it knows.
        settings: the run's folder, the features' folder, threads.
        config: the captioner's, by default of the demo's widths, with what it reads of the set.

    Raises:
        DataSetError: the set has no video to train on.
        StreamsDoNotFit, UnknownStream: ``streams`` lacks what the captioner reads.
        FeatureMapDamaged, FeaturesDoNotFit: saved features are not what the set makes.
    """
    torch.set_num_threads(settings.threads)
    config = change_fields(config or make_fitted_config(name, streams), settings.config)
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(config, rule.build_vocabulary(captions)).to(settings.device)
    names = [stream.name for stream in captioner.inputs]
    extracted = list_extracted(names)
    store = _open_store(streams, extracted, settings, captioner.optional_streams)
    videos = _load_videos(captions, store, settings)
    specs = _collect_specs(videos, extracted)
    read = specs | ({CATEGORY: CATEGORY_SPEC} if CATEGORY in names else {})
    card = Card(name, read, {}, {"streams": streams.name})
    split = split_videos(captions.name, videos)
    return _train(Checkpoint(captioner, card, ""), recipe, split, settings)


def train_as_paper(
    name: str,
    run: PaperRun,
    root: Path,
    settings: RunSettings,
    streams: str | None = None,
) -> Path:
    """Trains a captioner with a paper's splits, words, streams, widths and phases.

    Args:
        name: of the captioner.
        run: what its paper did.
        root: the set's folder.
        settings: the run's folder, the features' folder, threads.
        streams: the name of another stream set than the paper's.

    Raises:
        DataSetError: the set is not there.
        UnknownStreamSet: ``streams`` is not known.
        StreamsDoNotFit, UnknownStream: the set lacks what the captioner reads.
        FeatureMapDamaged, FeaturesDoNotFit: saved features are not what the set makes.
        NoReward: METEOR is paid for and no Java runs.
    """
    if "self_critical" in run.recipe.epochs:
        check_rewards(run.recipe.rewards)
    folder = SetFolder(root, run.data_set, run.paper)
    captions, stream_set = folder.load(), choose_stream_set(streams, run.streams, settings.features)
    config = run.config(stream_set)
    return train_on_videos(name, stream_set, run.recipe, captions, folder.rule, settings, config)


def choose_stream_set(asked: str | None, usual: str, features: FeatureFolder | None = None) -> StreamSet:
    """Chooses what feeds a captioner that is trained from nothing.

    Args:
        asked: a set's name, None where the user named none.
        usual: the name of the captioner's own set, or its paper's.
        features: those that were made before; a map's own streams come before the usual set.

    Raises:
        UnknownStreamSet: there is no set of that name.
        FeatureMapDamaged: the map cannot be read.
    """
    mapped = None if asked is not None or features is None else features.stream_set
    return mapped or find_stream_set(asked or usual)


def make_fitted_config(name: str, streams: StreamSet) -> BaseModel:
    """Makes a captioner's config at the demo's widths, with what it reads of the set.

    Raises StreamsDoNotFit.
    """
    captioner = find_captioner(name)
    return captioner.fit(captioner.make_demo_config(), streams)


def _open_store(
    streams: StreamSet, names: Sequence[str], settings: RunSettings, optional: frozenset[str]
) -> FeatureStore:
    """Opens what was made before, or else what makes these streams of the set now."""
    if settings.features is not None:
        return settings.features.open(streams.only(names), optional)
    source = FeatureSource(
        streams.select(names), str(settings.device), threads=settings.threads, cache=settings.cache
    )
    return VideoFeatures(source, settings.cache)


def _open_store_of_start(start: Checkpoint, settings: RunSettings) -> FeatureStore:
    """Opens the streams that a checkpoint was trained on."""
    if settings.features is not None:
        streams = settings.features.select(start.card)
        return settings.features.open(streams, start.captioner.optional_streams)
    streams = select_stream_set(start.card)
    source = FeatureSource(streams, str(settings.device), threads=settings.threads, cache=settings.cache)
    check_extractors(start, streams, source.extractors)
    return VideoFeatures(source, settings.cache)


def _load_videos(captions: CaptionSet, store: FeatureStore, settings: RunSettings) -> list[CaptionedVideo]:
    """Loads the videos that have files, or saved features, whose media may be gone."""
    media = settings.features is None
    for notice in captions.notices:
        if media or notice.code != MISSING_VIDEO:
            settings.notify(notice.message)
    with settings.processes.first_alone():  # makes the features
        return load_captioned_videos(captions.name, captions.require(media=media), store, settings.notify)


def _collect_specs(videos: Sequence[CaptionedVideo], names: Sequence[str]) -> dict[str, StreamSpec]:
    """Collects the streams' name tags, of as many videos as it takes: one may lack its sound."""
    specs: dict[str, StreamSpec] = {}
    for video in videos:
        specs |= {name: stream.spec for name, stream in video.load().items()}
        if specs.keys() >= set(names):
            return {name: specs[name] for name in names}
    missing = next(name for name in names if name not in specs)
    raise FeaturesDoNotFit(f"none of the {len(videos)} videos has features of {missing}.")


def _train(start: Checkpoint, recipe: Recipe, split: VideoSplit, settings: RunSettings) -> Path:
    """Trains from the checkpoint's weights to the best on the held-out videos."""
    captioner, inputs = start.captioner, VideoInputs.for_captioner(start.captioner)
    recipe = recipe.in_steps(sum(len(each.captions) for each in split.train))
    if unknown := sorted(recipe.phases.keys() - set(list_phase_names(captioner))):
        raise NoSuchField(
            f"{captioner.name} has no phase {unknown[0]!r}: {', '.join(list_phase_names(captioner))}"
        )
    if recipe.needs_meteor:
        check_rewards(RewardWeights(meteor=1.0))
    validation = VideoValidation(split.held_out, recipe.search, inputs)
    settings.notify(f"{len(split.train)} videos to train on; weights are chosen by {split.held_out_are}.")
    if not validation.scorer.is_computable:
        settings.notify(f"They are judged by how likely their captions are, for CIDEr-D is not: {NO_CIDER}.")
    settings.notify(describe_unknown_words(count_unknown_words(split.train, captioner.vocabulary)))
    description = _describe_run(start, recipe, split, settings)
    run = settings.open_run(description)
    batches = VideoBatches(
        items=split.train,
        vocabulary=captioner.vocabulary,
        videos=recipe.videos,
        captions=recipe.captions,
        max_length=recipe.max_length,
        seed=recipe.seed,
        keep_end=recipe.keep_end,
        every_caption=recipe.every_caption,
        inputs=inputs.fix_shapes(split.train) if recipe.fixed_shapes else inputs,
        fixed_shapes=recipe.fixed_shapes,
    )
    trainer = Trainer(
        recipe=recipe,
        batches=batches,
        validation=validation,
        run=run,
        save_best=_make_saver(start, split, description, run),
        precision=set_precision(settings.precision, settings.device),
        processes=settings.processes,
    )
    if slow := recipe.describe_slow_rate(batches.steps_per_epoch):
        settings.notify(slow)
    trainer.train(captioner, keep_start=True)
    train_later_phases(captioner, trainer, run.best_after)
    return run.best


def _describe_run(
    start: Checkpoint, recipe: Recipe, split: VideoSplit, settings: RunSettings
) -> RunDescription:
    return RunDescription.of(
        start.captioner,
        recipe,
        TrainedData.of(split.name, split.train, split.held_out),
        start.card.training.get("streams", DEMO.name),
        start.card.streams,
        features_sha256="" if settings.features is None else hash_features(split.train[0].load()),
        start_sha256=start.sha256,
    )


def split_videos(name: str, videos: Sequence[CaptionedVideo]) -> VideoSplit:
    """Splits by the set's own splits.

    Without one for validation every tenth video is set aside, of ENOUGH or more.

    Raises NothingToUse where none is for training.
    """
    train = [each for each in videos if each.video.split == "train"]
    val = [each for each in videos if each.video.split == "val"]
    if not train:
        raise NothingToUse(f"No video of {name} is of the training split.")
    if val:
        return VideoSplit(name, train, val, f"the {len(val)} of the validation split")
    if len(train) < ENOUGH:
        return VideoSplit(name, train, train, f"the same videos, as there are fewer than {ENOUGH}")
    order = np.random.default_rng(SELECTION_SEED).permutation(len(train))
    aside = set(order[: len(train) // 10].tolist())
    kept = [each for i, each in enumerate(train) if i not in aside]
    held_out = [train[i] for i in sorted(aside)]
    return VideoSplit(name, kept, held_out, f"{len(held_out)} others that were set aside")


def count_unknown_words(videos: Iterable[CaptionedVideo], vocabulary: Vocabulary) -> Counter[str]:
    """Counts how often each word that the vocabulary lacks is in the captions."""
    counts = Counter(word for each in videos for caption in each.captions for word in caption)
    return Counter({word: count for word, count in counts.items() if word not in vocabulary})


def describe_unknown_words(unknown: Counter[str]) -> str:
    """Describes in a sentence which words will not be written."""
    if not unknown:
        return "Every word of the captions is known to the captioner."
    named = ", ".join(f"{word} ({count}×)" for word, count in unknown.most_common(NAMED))
    more = ", …" if len(unknown) > NAMED else ""
    return f"{len(unknown)} words are unknown to the captioner and will not be written: {named}{more}."


def _make_saver(
    start: Checkpoint, split: VideoSplit, description: RunDescription, run: TrainingRun
) -> Callable[[TrainedNetwork, BestScore], None]:
    """Makes what keeps the card of the start, with these videos' ids beside those it was trained on."""
    earlier = start.card.training
    ids = [*earlier.get("ids", ()), *(each.id for each in split.train)]
    training = {**earlier, **description.describe_training(), "ids": ids}

    def save(captioner: TrainedNetwork, best: BestScore) -> None:
        judged = {best.metric: best.value, **best.scores}
        rounded = {name: round(value, 2) for name, value in judged.items()}
        scores = {split.held_out_are: {**rounded, "n": len(split.held_out)}}
        card = replace(start.card, scores=scores, training={**training, "chosen_at": best.where})
        save_checkpoint(run.folder / best.file, captioner, card)

    return save
