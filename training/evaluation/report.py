"""Evaluates a captioner on a data set: captions, their scores, and the same captions handed round."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from extractors.windows import FRAMES
from models.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from models.decoding.decode import DecodingOptions
from models.feature_sources.feature_source import CombinedFeatureSource, FeatureSource
from models.pretrained.installed import write_card
from training.batches.video_batches import CaptionedVideo, load_captioned_videos
from training.batches.video_features import FeatureStore, VideoFeatures
from training.datasets.caption_set import MISSING_VIDEO, VideoItem
from training.datasets.registry import SetFolder
from training.evaluation.captioning import CaptionedSet, CaptioningRun, NoStreams
from training.evaluation.evaluated_captioner import EvaluatedCaptioner, list_installed
from training.scores.bootstrap import Comparison
from training.scores.dense import DenseScores, score_dense
from training.scores.metrics import ScoreReport, compare_with_shuffled, evaluate

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationSource:
    """The items to caption: pictures with their captions, a list of clips, or a captioned set."""

    images: Path | None = None
    captions: Path | None = None
    split: str | None = None
    clips: Path | None = None
    frames: int = FRAMES
    limit: int | None = None
    videos: SetFolder | None = None


@dataclass(frozen=True)
class Evaluation:
    """Scores of one captioner on one source."""

    captioned: CaptionedSet
    report: ScoreReport
    shuffled: Comparison | None
    dense: DenseScores | None = None  #: of items that are segments of videos

    def to_json(self) -> dict[str, Any]:
        """Returns the report's document, with ``different`` (captions) and, where asked for, ``shuffled``."""
        document = self.report.to_json() | {"different": len(set(self.captioned.hypotheses.values()))}
        if self.shuffled is not None:
            low, high = self.shuffled.interval
            document["shuffled"] = {"cider_gain": self.shuffled.difference, "interval": [low, high]}
        if self.dense is not None:
            document["dense"] = self.dense.to_json()
        return document

    def print(self, show: bool) -> None:
        """Prints the scores, with ``show`` the captions too."""
        console = Console()
        if show:
            console.print(self._make_listing())
        console.print(self.report.table())
        if self.dense is not None:
            console.print(self.dense.table())
        console.print(f"{len(set(self.captioned.hypotheses.values()))} different captions")
        for note in self.report.notes.items():
            console.print(": ".join(note), style="dim")
        if self.shuffled is not None:
            low, high = self.shuffled.interval
            gain = f"{self.shuffled.difference:.1f} ({low:.1f} to {high:.1f})"
            console.print(f"CIDEr-D above the same captions on other videos: {gain}")

    def _make_listing(self) -> Table:
        """Makes the table of captions: folded where the terminal is narrow, cut nowhere."""
        table = Table(*(Column(each, overflow="fold") for each in ("item", "caption", "a reference")))
        for name, text in self.captioned.hypotheses.items():
            table.add_row(*map(_make_cell, (name, text, self.captioned.references[name][0])))
        return table


def _make_cell(text: str) -> Text:
    """Makes a cell without markup, control characters written as escapes: it may be a file's name."""
    return Text("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))


def evaluate_captioner(
    entry: EvaluatedCaptioner, source: EvaluationSource, options: DecodingOptions, shuffled: bool = False
) -> Evaluation:
    """Captions everything in ``source`` and scores it.

    Args:
        entry: the captioner, and what feeds it.
        source: pictures, clips or a captioned set.
        options: how captions are searched.
        shuffled: whether the same captions are also scored on other videos.

    Raises:
        StreamMismatch: the captioner is fed otherwise than it was trained.
        CorpusError, DataSetError: the source is not what it should be.
        MediaError: a clip cannot be read.
    """
    captioned = _caption(entry, source, options)
    report = evaluate(captioned.hypotheses, captioned.references)
    turned = compare_with_shuffled(report.captions) if shuffled else None
    return Evaluation(captioned, report, turned, score_dense(captioned.hypotheses, captioned.references))


def _caption(entry: EvaluatedCaptioner, source: EvaluationSource, options: DecodingOptions) -> CaptionedSet:
    request = entry.request if entry.saved is None else None
    evaluator = CaptioningRun(entry.writer, entry.source or NoStreams(), options, request)
    if source.videos is not None:
        features = entry.saved or entry.source
        if entry.pretrained or features is None or isinstance(features, CombinedFeatureSource):
            return evaluator.caption_files(list_videos(source.videos)[: source.limit], log.warning)
        return evaluator.caption_videos(load_videos(source.videos, source.limit, features))
    if source.clips is not None:
        return evaluator.caption_clips(source.clips, source.frames, source.limit)
    if source.images is not None and source.captions is not None:
        split = source.split or "val"
        return evaluator.caption_pictures(source.images, source.captions, split, source.limit)
    raise ValueError("give images with captions, or clips")


def list_videos(source: SetFolder, *, media: bool = True) -> tuple[VideoItem, ...]:
    """Lists the videos of a set's folder that are evaluated, and warns of what the set lacks.

    media: whether each has to have its file. Raises DataSetError.
    """
    captions = source.load()
    for notice in captions.notices:
        if media or notice.code != MISSING_VIDEO:
            log.warning(notice.message)
    return source.choose_evaluated(captions, media=media)


def load_videos(
    source: SetFolder, limit: int | None, feature_source: FeatureSource | FeatureStore
) -> list[CaptionedVideo]:
    """Loads the videos to caption, with features: saved before, or made now where they are not there.

    Args:
        source: the set's folder.
        limit: only the first so many.
        feature_source: makes the features, or reads those that were made before.

    Raises:
        DataSetError: the set is not there, or not as it should be.
    """
    if isinstance(feature_source, FeatureSource):
        store: FeatureStore = VideoFeatures(feature_source, source.cache)
        videos = list_videos(source)
    else:
        store, videos = feature_source, list_videos(source, media=False)
    return load_captioned_videos(str(source.root), videos[:limit], store, log.warning)


def record_scores(captioner: str, name: str, report: ScoreReport) -> None:
    """Writes scores into the card of a checkpoint, or of an installed pretrained captioner.

    Args:
        captioner: its name or file.
        name: what the scores are called.
        report: has the scores.
    """
    document = report.to_json()
    scores = {metric: round(value, 2) for metric, value in document["metrics"].items() if value is not None}
    entry = scores | {"n": report.n}
    if interval := document["intervals"].get("cider"):
        entry["cider_interval"] = [round(value, 2) for value in interval]
    installed = list_installed()
    if captioner in (card.name for card in installed.list()):
        its_card = installed.card(captioner)
        kept = {**its_card.scores, name: entry}
        write_card(installed.path(captioner), its_card.model_copy(update={"scores": kept}))
        return
    path = find_checkpoint(captioner)
    checkpoint = load_checkpoint(path)
    card = replace(checkpoint.card, scores={**checkpoint.card.scores, name: entry})
    save_checkpoint(path, checkpoint.captioner, card)
