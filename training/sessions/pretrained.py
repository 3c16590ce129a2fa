"""Fine-tunes an installed pretrained captioner by adapters, on the frames of a captioned set of videos.

What is kept lies in the run's folder as ``adapter/``: a few megabytes that ``captioners add`` takes, with a
card that names the base by its name, revision and sha256. It is never worse than the base on the videos that
it is judged by.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from extractors.errors import ReelwordError
from extractors.files import atomic_write
from extractors.pretrained.weights_folder import WeightsFolder
from models.decoding.options import DecodingOptions
from models.pretrained.adapters.card import AdapterBase, AdapterCard
from models.pretrained.folder import read_pretrained_info
from models.pretrained.installed import CARD, InstalledCaptioners, PretrainedCard
from models.pretrained.load import load_pretrained_captioner
from models.pretrained.opening import LoadSettings
from training.batches.training_batch import TrainingBatch
from training.batches.video_batches import CaptionedVideo, VideoInputs, load_captioned_videos
from training.batches.video_frames import FRAMES, FrameBatch, FrameBatches, VideoFrames, load_frames
from training.datasets.caption_set import CaptionSet
from training.optimization.adapted_captioner import AdaptedCaptioner
from training.optimization.learner import build_learner
from training.optimization.processes import Processes, share_mean
from training.optimization.progress import BestScore
from training.optimization.run_folder import RunSettings
from training.optimization.trainer import Losses, Phase, Trainer
from training.optimization.validation import HeldOutScores, VideoValidation
from training.precision import training_precision
from training.recipes.recipe import Recipe
from training.runs.run_record import RunDescription, TrainedData
from training.sessions.videos import VideoSplit, split_videos


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
    recipe = recipe.in_steps(sum(len(each.captions) for each in split.train))
    torch.manual_seed(recipe.seed)
    network = AdaptedCaptioner(captioner, recipe.lora).to(settings.device)
    saver = AdapterSaver(settings.out / "adapter", base, recipe, split)
    _train(network, saver, settings)
    return saver.folder


def _train(network: AdaptedCaptioner, saver: "AdapterSaver", settings: RunSettings) -> None:
    """Takes all steps of cross-entropy, and keeps the adapters that are the best on the held-out videos."""
    recipe, split = saver.recipe, saver.split
    settings.notify(f"{len(split.train)} videos to train on; weights are chosen by {split.held_out_are}.")
    batches = FrameBatches(
        split.train,
        videos=recipe.videos,
        captions=recipe.captions,
        max_length=recipe.max_length,
        seed=recipe.seed,
        every_caption=recipe.every_caption,
    )
    if slow := recipe.describe_slow_rate(batches.steps_per_epoch):
        settings.notify(slow)
    trainer = Trainer(
        recipe=recipe,
        batches=batches,
        validation=FrameValidation(split.held_out, recipe.search),
        run=settings.open_run(saver.describe_run()),
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

    def judge(network: AdaptedCaptioner) -> HeldOutScores:
        subject: Any = network  # what FrameValidation reads
        return trainer.judge(subject)

    phase: Phase[AdaptedCaptioner] = trainer.make_phase("cross_entropy", recipe.steps, loss, judge)
    trainer.go_through(replace(phase, keeps_start=True), build_learner(recipe, network, trainer.precision))


class FrameValidation(VideoValidation):
    """On videos' frames, in float32 as a pretrained captioner serves."""

    group = 4

    def __init__(self, items: Sequence[CaptionedVideo], options: DecodingOptions) -> None:
        super().__init__(items, options, VideoInputs(()))

    def _write_groups(
        self,
        captioner: Any,
        precision: torch.dtype,  # noqa: ARG002 - it serves in float32
        choose_memory: Any,  # noqa: ARG002 - it has none
        processes: Processes,
    ) -> Iterator[tuple[int, list[list[str]], Tensor]]:
        reader, every = captioner.captioner, self.group * processes.count
        for start in range(self.group * processes.rank, len(self.items), every):
            items = self.items[start : start + self.group]
            videos = reader.encode([load_frames(item) for item in items])
            written = reader.caption(videos, self.options)
            likely = reader.score_texts(videos, [item.video.captions[:1] for item in items])
            split = items[0].video.split_caption
            texts = [split(best.text) for best, *_ in written]
            yield start, texts, -torch.tensor(likely).flatten()


@dataclass(frozen=True, eq=False)
class AdapterSaver:
    """Keeps the best adapter of a run in a folder of its own."""

    folder: Path
    base: PretrainedCard
    recipe: Recipe
    split: VideoSplit

    def describe_run(self) -> RunDescription:
        """Describes the run for its folder: another base, recipe or set is another run."""
        return RunDescription(
            captioner=self.base.name,
            recipe=self.recipe,
            config={},
            words="",
            data=TrainedData.of(self.split.name, self.split.train, self.split.held_out),
            stream_set=FRAMES,
            streams={},
            start_sha256=self.base.weights_sha256,
        )

    def save(self, network: AdaptedCaptioner, best: BestScore) -> None:
        """Writes the adapters, and their card for machines and for people."""
        if best.file != BestScore.file:  # one of several that are kept, which adapters are not
            return
        network.save(self.folder)
        scores = {best.metric: round(best.value, 2), "n": len(self.split.held_out)}
        ids = [each.id for each in self.split.train]
        training = {**self.describe_run().describe_training(), "ids": ids, "chosen_at": best.where}
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
