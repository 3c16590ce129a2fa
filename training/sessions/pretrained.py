"""Fine-tunes an installed pretrained captioner by adapters, on the frames of a captioned set of videos.

What is kept lies in the run's folder as ``adapter/``: a few megabytes that ``captioners add`` takes, with a
card that names the base by its name, revision and sha256. It is never worse than the base on the videos that
it is judged by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from extractors.errors import ReelwordError
from extractors.files import atomic_write
from extractors.pretrained.weights_folder import WeightsFolder
from models.pretrained.adapters.card import AdapterBase, AdapterCard
from models.pretrained.folder import read_pretrained_info
from models.pretrained.installed import CARD, InstalledCaptioners, PretrainedCard
from models.pretrained.load import load_pretrained_captioner
from models.pretrained.opening import LoadSettings
from models.vocabulary import split_words
from training.batches.training_batch import TrainingBatch
from training.batches.video_batches import CaptionedVideo, VideoInputs, load_captioned_videos
from training.batches.video_frames import FrameBatch, FrameBatches, VideoFrames, load_frames
from training.datasets.caption_set import CaptionSet
from training.optimization.adapted_captioner import AdaptedCaptioner
from training.optimization.learner import TrainedNetwork, build_learner
from training.optimization.processes import share_mean
from training.optimization.run_folder import RunSettings, TrainingRun
from training.optimization.trainer import LIKELIHOOD, BestScore, Losses, Phase, Scores, Trainer
from training.optimization.validation import Validation, VideoValidation
from training.precision import training_precision
from training.recipes.recipe import Recipe
from training.sessions.videos import VideoSplit, split_videos

#: Held-out videos that are captioned together.
GROUP = 4


class AlreadyAdapted(ReelwordError, ValueError, code="already_adapted"):
    """The captioner is an adapter itself, which has no weights to train adapters on."""

    hint = "Train its base, which the message names, on both sets together."


def finetune_pretrained(name: str, recipe: Recipe, captions: CaptionSet, settings: RunSettings) -> Path:
    """Trains adapters of a pretrained captioner.

    Args:
        name: Of the installed captioner.
        recipe: How they are trained, how large they are and where they lie.
        captions: The videos.
        settings: The run's folder, the frames' folder, threads, device.

    Returns:
        The folder of the adapter that was the best on the held-out videos.

    Raises:
        PretrainedError: It is not installed or is damaged, or has no layer that the recipe names.
        AlreadyAdapted: It is an adapter.
        PackageMissing: peft is not installed.
        DataSetError: The set has no video to train on.
    """
    torch.set_num_threads(settings.threads)
    installed = InstalledCaptioners(WeightsFolder.of(None).data / "captioners")
    base = installed.card(name)
    if base.base is not None:
        raise AlreadyAdapted(f"{name} is an adapter of {base.base.name}.")
    info = read_pretrained_info(installed.path(name), name)
    captioner = load_pretrained_captioner(info, LoadSettings(device=str(settings.device)))
    frames = VideoFrames(captioner.request, settings.cache)
    for notice in captions.notices:
        settings.notify(notice.message)
    with settings.processes.first_alone():
        videos = load_captioned_videos(captions.name, captions.require(), frames, settings.notify)
    split = split_videos(captions.name, videos)
    torch.manual_seed(recipe.seed)
    network = AdaptedCaptioner(captioner, recipe.lora).to(settings.device)
    saver = AdapterSaver(settings.out / "adapter", base, recipe, split)
    _train(network, saver, settings)
    return saver.folder


def _train(network: AdaptedCaptioner, saver: AdapterSaver, settings: RunSettings) -> None:
    """Takes all steps of cross-entropy, and keeps the adapters that are the best on the held-out videos."""
    recipe, split = saver.recipe, saver.split
    settings.notify(f"{len(split.train)} videos to train on; weights are chosen by {split.held_out_are}.")
    batches = FrameBatches(
        split.train,
        videos=recipe.videos,
        captions=recipe.captions,
        max_length=recipe.max_length,
        seed=recipe.seed,
    )
    trainer = Trainer(
        recipe=recipe,
        batches=batches,
        validation=VideoValidation(split.held_out, recipe.search, VideoInputs(())),
        run=TrainingRun(settings.out, settings.device),
        save_best=saver.save,
        precision=training_precision(settings.device),
        processes=settings.processes,
    )

    def loss(network: AdaptedCaptioner, batch: TrainingBatch, step: int) -> Losses:  # noqa: ARG001
        assert isinstance(batch, FrameBatch)
        with trainer.autocast(network):
            logits, tokens = network.captioner.read_captions(batch.frames, batch.texts, recipe.max_length)
        entropy = cross_entropy(
            logits.flatten(0, 1).float(), tokens.flatten(), label_smoothing=recipe.smoothing
        )
        return {"total": share_mean(entropy, (tokens >= 0).sum()), "loss": entropy}

    def judge(network: AdaptedCaptioner) -> Scores:
        return judge_by_captions(network, trainer.validation)

    phase: Phase[AdaptedCaptioner] = trainer.make_phase("cross_entropy", recipe.steps, loss, judge)
    trainer.go_through(replace(phase, keeps_start=True), build_learner(recipe, network, trainer.precision))


def judge_by_captions(network: AdaptedCaptioner, validation: Validation[CaptionedVideo]) -> Scores:
    """Scores a captioner by what it writes of held-out videos, in float32, as when it serves.

    Returns CIDEr-D × 100, or where it cannot be computed of them how likely their first captions are.
    """
    captioner, items = network.eval().captioner, validation.items
    groups = [items[first : first + GROUP] for first in range(0, len(items), GROUP)]
    encoded = ((group, captioner.encode([load_frames(each) for each in group])) for group in groups)
    if not validation.scorer.is_computable:
        scores = [
            captioner.score_texts(videos, [each.video.captions[:1] for each in group])
            for group, videos in encoded
        ]
        return {LIKELIHOOD: float(np.mean([score for group in scores for (score,) in group]))}
    texts = [best.text for _, videos in encoded for best, *_ in captioner.caption(videos, validation.options)]
    words = [split_words(text, fold_accents=True) for text in texts]
    return {"cider": 100 * float(validation.scorer.score([each.id for each in items], words).mean())}


@dataclass(frozen=True, eq=False)
class AdapterSaver:
    """Keeps the best adapter of a run in a folder of its own."""

    folder: Path
    base: PretrainedCard
    recipe: Recipe
    split: VideoSplit

    def save(self, network: TrainedNetwork, best: BestScore) -> None:
        """Writes the weights of an ``AdaptedCaptioner``, and their card for machines and for people."""
        assert isinstance(network, AdaptedCaptioner)
        network.save(self.folder)
        scores = {best.metric: round(best.value, 2), "n": len(self.split.held_out)}
        ids = [each.id for each in self.split.train]
        training = {"recipe": self.recipe.model_dump(mode="json"), "ids": ids, "chosen_at": best.where}
        base = AdapterBase.model_validate(self.base, from_attributes=True)
        card = AdapterCard(base=base, training=training, scores={self.split.held_out_are: scores})
        readme = self._write_readme(base, f"{best.metric} {best.value:.2f} on {self.split.held_out_are}")
        for name, text in ((CARD, card.model_dump_json(indent=1)), ("README.md", readme)):
            with atomic_write(self.folder / name) as unfinished:
                unfinished.write_text(f"{text}\n", encoding="utf-8")

    def _write_readme(self, base: AdapterBase, score: str) -> str:
        licence = f"license: {self.base.facts.licence}\n" if self.base.facts.licence else ""
        return (
            f"---\n{licence}base_model: {base.source}\nlibrary_name: peft\n---\n\n"
            f"An adapter of {base.origin} (sha256 of its weights: {base.weights_sha256}), trained by "
            f"{self.recipe.name} on {len(self.split.train)} videos; {score}.\n\n"
            f"    reelword captioners add {base.origin} --name {base.name}\n"
            "    reelword captioners add FOLDER_OF_THIS"
        )
