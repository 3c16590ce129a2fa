"""Evaluates a captioner on a data set: captions, their scores, and the same captions handed round."""

from __future__ import annotations

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
from models.feature_sources.feature_source import CombinedFeatureSource, FeatureSource, StreamSource
from training.batches.video_batches import CaptionedVideo, load_captioned_videos
from training.batches.video_features import FeatureStore, VideoFeatures
from training.datasets.caption_set import MISSING_VIDEO
from training.datasets.registry import SetFolder
from training.evaluation.captioning import CaptionedSet, CaptioningRun, NoExtractor
from training.evaluation.evaluated_captioner import EvaluatedCaptioner
from training.scores.bootstrap import Comparison
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

    def to_json(self) -> dict[str, Any]:
        """Returns the report's document, with ``different`` (captions) and, where asked for, ``shuffled``."""
        document = self.report.to_json() | {"different": len(set(self.captioned.hypotheses.values()))}
        if self.shuffled is not None:
            low, high = self.shuffled.interval
            document["shuffled"] = {"cider_gain": self.shuffled.difference, "interval": [low, high]}
        return document

    def print(self, show: bool) -> None:
        """Prints the scores, with ``show`` the captions too."""
        console = Console()
        if show:
            console.print(self._make_listing())
        console.print(self.report.table())
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
    if entry.saved is None:
        extraction = entry.feature_source
        evaluator = CaptioningRun(entry.writer, extraction, options, extraction.request)
    else:
        evaluator = CaptioningRun(entry.writer, NoExtractor(), options)
    if source.videos is not None:
        features = entry.saved or entry.feature_source
        captioned = evaluator.caption_videos(load_videos(source.videos, source.limit, features))
    elif source.clips is not None:
        captioned = evaluator.caption_clips(source.clips, source.frames, source.limit)
    elif source.images is not None and source.captions is not None:
        captioned = evaluator.caption_pictures(
            source.images, source.captions, source.split or "val", source.limit
        )
    else:
        raise ValueError("give images with captions, or clips")
    report = evaluate(captioned.hypotheses, captioned.references)
    return Evaluation(captioned, report, compare_with_shuffled(report.captions) if shuffled else None)


def load_videos(
    source: SetFolder, limit: int | None, feature_source: StreamSource | FeatureStore
) -> list[CaptionedVideo]:
    """Loads the videos to caption, with features: saved before, or made now where they are not there.

    Args:
        source: the set's folder.
        limit: only the first so many.
        feature_source: makes the features, or reads those that were made before.

    Raises:
        DataSetError: the set is not there, or not as it should be.
        ValueError: the captioners are not fed by one stream set.
    """
    if isinstance(feature_source, CombinedFeatureSource):
        raise ValueError("videos of a set are described by one stream set, and these captioners need several")
    media = isinstance(feature_source, FeatureSource)
    captions = source.load()
    for notice in captions.notices:
        if media or notice.code != MISSING_VIDEO:
            log.warning(notice.message)
    videos = source.choose_evaluated(captions, media=media)[:limit]
    store = (
        VideoFeatures(feature_source, source.cache)
        if isinstance(feature_source, FeatureSource)
        else feature_source
    )
    return load_captioned_videos(str(source.root), videos, store, log.warning)


def record_scores(captioner: str, name: str, report: ScoreReport) -> None:
    """Writes scores into a checkpoint's card.

    Args:
        captioner: its name or file.
        name: what the scores are called.
        report: has the scores.
    """
    path = find_checkpoint(captioner)
    checkpoint = load_checkpoint(path)
    document = report.to_json()
    scores = {metric: round(value, 2) for metric, value in document["metrics"].items() if value is not None}
    entry = scores | {"n": report.n}
    if interval := document["intervals"].get("cider"):
        entry["cider_interval"] = [round(value, 2) for value in interval]
    card = replace(checkpoint.card, scores={**checkpoint.card.scores, name: entry})
    save_checkpoint(path, checkpoint.captioner, card)
