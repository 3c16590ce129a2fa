"""Feeds a captioner's training steps as a training does: saved features, batches, a loader ahead of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.support.paper_batches import PaperBatch
from extractors.decoder.decoder import Decoder
from extractors.features import Features, Stream, StreamSpec
from extractors.video_features.feature_files import FeatureSpec, SafetensorsForm, SavedFeatures, VideoSource
from training.batches.forcing_plan import plan_forcing
from training.batches.loading import BatchLoader
from training.batches.training_batch import TrainingBatch
from training.batches.video_batches import CaptionedVideo, VideoBatches, VideoInputs
from training.batches.video_features import FailedVideo, FeatureStore
from training.datasets.caption_set import VideoItem

#: More than are taken.
STEPS = 10_000


class WrittenFeatures(FeatureStore):
    """The features of a paper's batch, float16, a file a video."""

    def __init__(self, folder: Path, made: PaperBatch) -> None:
        super().__init__()
        self._folder, self._form = folder, SafetensorsForm()
        spec = StreamSpec("random", "", "")
        for place, name in enumerate(made.batch.ids):
            streams = {
                each: Stream(
                    batch.values[place].half(),
                    batch.times[place, :, 0].numpy(),
                    batch.times[place, :, 1].numpy(),
                    spec,
                )
                for each, batch in made.batch.batches.items()
            }
            tag = FeatureSpec("random", spec)
            self._form.write(
                folder, name, SavedFeatures(tag, VideoSource(name, "", "", 0), {}, 25.0, streams)
            )

    def make(self, videos: Iterable[VideoItem], decoder: Decoder) -> list[FailedVideo]:  # noqa: ARG002
        return []

    def _read(self, video: VideoItem, *, verify: bool) -> Features:
        return self._form.read(self._folder, video.id, verify=verify).streams


@contextmanager
def load_batches(made: PaperBatch, device: torch.device, folder: Path) -> Iterator[Iterator[TrainingBatch]]:
    """Opens an endless order of batches of the paper's videos, made ahead from files in ``folder``."""
    vocabulary, recipe = made.captioner.vocabulary, made.recipe
    store = WrittenFeatures(folder, made)
    captions = [vocabulary.decode(row.clamp(min=0).tolist()) for row in made.batch.targets]
    items = [
        CaptionedVideo(VideoItem(name, None, "train", ()), store, (tuple(words),))
        for name, words in zip(made.batch.ids, captions, strict=True)
    ]
    inputs = VideoInputs.for_captioner(made.captioner)
    batches = VideoBatches(items, vocabulary, recipe.videos, recipe.captions, recipe.max_length, 0, inputs)

    def plan(batch: TrainingBatch, step: int) -> TrainingBatch:
        generator = torch.Generator().manual_seed(step)
        share = recipe.teacher_forcing(0)
        return replace(batch, plan=plan_forcing(batch.targets, len(batch.ids), share, generator))

    loading = BatchLoader(batches, device, prepare=plan).load(0, STEPS)
    try:
        yield (batch for _, batch in loading)
    finally:
        loading.close()  # type: ignore[attr-defined]
