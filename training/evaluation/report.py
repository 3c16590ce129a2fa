"""``evaluate``: captions of a data set, their table, and the comparison with captions handed round."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from extractors.sampling import FRAMES
from models.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from models.decoding.decode import DecodingOptions
from models.feature_sources.feature_source import CombinedFeatureSource, FeatureSource
from training.batches.video_batches import CaptionedVideo, with_features
from training.batches.video_features import VideoFeatures
from training.datasets.registry import SetFolder
from training.evaluation.captioning import CaptionedSet, CaptioningRun
from training.evaluation.evaluated_captioner import EvaluatedCaptioner
from training.scores.bootstrap import Comparison
from training.scores.metrics import Report, evaluate, shuffled_baseline

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationSource:
    """What is captioned: pictures with their captions, a list of clips, or a captioned set."""

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
    report: Report
    shuffled: Comparison | None

    def to_json(self) -> dict[str, Any]:
        """The report's document, with ``different`` (captions) and, where asked for, ``shuffled``."""
        document = self.report.to_json() | {"different": len(set(self.captioned.hypotheses.values()))}
        if self.shuffled is not None:
            low, high = self.shuffled.interval
            document["shuffled"] = {"cider_gain": self.shuffled.difference, "interval": [low, high]}
        return document

    def print(self, show: bool) -> None:
        console = Console()
        if show:
            console.print(self._listing())
        console.print(self.report.table())
        console.print(f"{len(set(self.captioned.hypotheses.values()))} different captions")
        for note in self.report.notes.items():
            console.print(": ".join(note), style="dim")
        if self.shuffled is not None:
            low, high = self.shuffled.interval
            gain = f"{self.shuffled.difference:.1f} ({low:.1f} to {high:.1f})"
            console.print(f"CIDEr-D above the same captions on other videos: {gain}")

    def _listing(self) -> Table:
        """Folded where the terminal is narrow, cut nowhere; names and texts as they are, but for controls."""
        table = Table(*(Column(each, overflow="fold") for each in ("item", "caption", "a reference")))
        for name, text in self.captioned.hypotheses.items():
            table.add_row(*map(_cell, (name, text, self.captioned.references[name][0])))
        return table


def _cell(text: str) -> Text:
    """A cell without markup, control characters written as escapes: it may be a file's name."""
    return Text("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))


def evaluate_captioner(
    entry: EvaluatedCaptioner, source: EvaluationSource, options: DecodingOptions, shuffled: bool = False
) -> Evaluation:
    """Caption everything in ``source`` and score it. shuffled: also the same captions handed round.

    Raises StreamMismatch, CorpusError, DataSetError, and MediaError for a clip that cannot be read.
    """
    evaluator = CaptioningRun(entry.writer, entry.feature_source, options, entry.feature_source.request)
    if source.videos is not None:
        captioned = evaluator.on_videos(videos_of(source.videos, source.limit, entry.feature_source))
    elif source.clips is not None:
        captioned = evaluator.on_clips(source.clips, source.frames, source.limit)
    elif source.images is not None and source.captions is not None:
        captioned = evaluator.on_pictures(source.images, source.captions, source.split or "val", source.limit)
    else:
        raise ValueError("give images with captions, or clips")
    report = evaluate(captioned.hypotheses, captioned.references)
    return Evaluation(captioned, report, shuffled_baseline(report.captions) if shuffled else None)


def videos_of(
    source: SetFolder, limit: int | None, feature_source: FeatureSource | CombinedFeatureSource
) -> list[CaptionedVideo]:
    """The videos to caption, with features, made now where they are not there.

    Raises DataSetError, and ValueError for captioners that are not fed by one stream set.
    """
    if isinstance(feature_source, CombinedFeatureSource):
        raise ValueError("videos of a set are described by one stream set, and these captioners need several")
    captions = source.load()
    for notice in captions.notices:
        log.warning(notice.message)
    videos = source.to_judge(captions)[:limit]
    return with_features(str(source.root), videos, VideoFeatures(feature_source, source.cache), log.warning)


def record(captioner: str, name: str, report: Report) -> None:
    """Write the scores into the checkpoint's card, under ``name``."""
    path = find_checkpoint(captioner)
    checkpoint = load_checkpoint(path)
    document = report.to_json()
    scores = {metric: round(value, 2) for metric, value in document["metrics"].items() if value is not None}
    entry = scores | {"n": report.n, "cider_interval": [round(v, 2) for v in document["intervals"]["cider"]]}
    card = replace(checkpoint.card, scores={**checkpoint.card.scores, name: entry})
    save_checkpoint(path, checkpoint.captioner, card)
