"""Trains the video-semantic embedding on a captioned set of videos, as the VATEX challenge's paper has it.

It pools what the paper's captioners pool of the stream set, so that a fusion of theirs reads one set.
"""

from __future__ import annotations

from pathlib import Path

import torch

from lab.pictures.embedding import train_embedding
from models.captioners.registry import find_captioner
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.checkpoint import Card, save_checkpoint
from models.feature_sources.feature_source import FeatureSource
from models.stream_set import StreamSet
from training.batches.video_batches import VideoBatches, VideoInputs, load_captioned_videos
from training.batches.video_features import FeatureStore, VideoFeatures
from training.datasets.registry import SetFolder
from training.optimization.learner import TrainedNetwork
from training.optimization.progress import BestScore
from training.optimization.run_folder import RunSettings
from training.optimization.trainer import Trainer
from training.optimization.validation import VideoValidation
from training.precision import training_precision
from training.recipes.recipe import Recipe
from training.sessions.videos import split_videos


def train_embedding_on_videos(
    recipe: Recipe, folder: SetFolder, streams: StreamSet, settings: RunSettings
) -> Path:
    """Trains the embedding from nothing.

    Args:
        recipe: how it is trained.
        folder: the set's.
        streams: the set that feeds it.
        settings: the run's folder, the features' folder, threads.

    Returns:
        The best checkpoint's path.

    Raises:
        DataSetError: the set has no video to train on.
        StreamsDoNotFit: the set has sound alone.
        FeatureMapDamaged, FeaturesDoNotFit: saved features are not what the set makes.
    """
    torch.set_num_threads(settings.threads)
    vanilla = find_captioner("vanilla")
    pooled = vanilla.fit(vanilla.kind.config_class(), streams).pooled  # type: ignore[attr-defined]
    first, *others = (stream.name for stream in pooled)
    inputs = VideoInputs(pooled, frozenset(others))
    captions = folder.load()
    videos = load_captioned_videos(
        captions.name,
        captions.require(media=settings.features is None),
        _open_store(streams, [first, *others], inputs, settings),
        settings.notify,
    )
    split = split_videos(captions.name, videos)
    torch.manual_seed(recipe.seed)
    config = SemanticEmbeddingConfig(streams=pooled)
    embedding = SemanticEmbedding(config, folder.rule.build_vocabulary(captions)).to(settings.device)
    run = settings.make_run()
    specs = {name: stream.spec for video in videos[:20] for name, stream in video.load().items()}
    training = {"streams": streams.name, "recipe": recipe.model_dump(), "ids": [v.id for v in split.train]}

    def save(network: TrainedNetwork, best: BestScore) -> None:
        scores = {split.held_out_are: {best.metric: round(best.value, 2), "n": len(split.held_out)}}
        read = {name: specs[name] for name in (first, *others) if name in specs}
        save_checkpoint(run.best, network, Card(network.name, read, scores, training))

    batches = VideoBatches(
        items=split.train,
        vocabulary=embedding.vocabulary,
        videos=min(recipe.videos, len(split.train)),
        captions=recipe.captions,
        max_length=recipe.max_length,
        seed=recipe.seed,
        inputs=inputs,
    )
    validation = VideoValidation(split.held_out, recipe.search, inputs)
    precision = training_precision(settings.device)
    trainer = Trainer(recipe, batches, validation, run, save, precision, processes=settings.processes)
    train_embedding(trainer, embedding)
    return run.best


def _open_store(
    streams: StreamSet, names: list[str], inputs: VideoInputs, settings: RunSettings
) -> FeatureStore:
    """Opens what was made before, or what makes the streams now: all of the set, which members read too."""
    if settings.features is not None:
        return settings.features.open(streams.only(names), inputs.optional)
    source = FeatureSource(streams, str(settings.device), threads=settings.threads, cache=settings.cache)
    return VideoFeatures(source, settings.cache)
