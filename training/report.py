"""``evaluate``: captions of a data set, their table, and the comparison with captions handed round."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from extractors.sampling import FRAMES
from models.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.decoding import DecodingOptions
from models.feed import Feed
from models.service import check_extractors, checkpoint_path, load_captioner, stream_set_of
from models.stats import Stats
from training.bootstrap import Comparison
from training.datasets.set_folder import SetFolder
from training.evaluate import Captioned, Evaluator
from training.metrics import Report, evaluate, shuffled_baseline
from training.video_batches import CaptionedVideo, with_features
from training.video_features import VideoFeatures

Branches = Literal["stats", "st", "ts"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
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

    captioned: Captioned
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
        table = Table("item", "caption", "a reference")
        for name, text in self.captioned.hypotheses.items():
            table.add_row(name, text, self.captioned.references[name][0])
        return table


def evaluate_captioner(
    captioner: str,
    source: Source,
    options: DecodingOptions,
    branches: Branches | None = None,
    shuffled: bool = False,
    streams: str | None = None,
) -> Evaluation:
    """Caption everything in ``source`` and score it. streams: a stream set, by default its own.

    Raises UnknownCaptioner, UnknownStreamSet, StreamMismatch, CheckpointError, CorpusError, DataSetError, and
    MediaError for a clip that cannot be read.
    """
    checkpoint = load_captioner(captioner)
    if branches is not None:
        checkpoint = with_branches(checkpoint, branches)
    feed = Feed(stream_set_of(checkpoint, streams), frames=source.frames)
    check_extractors(checkpoint, feed.wanted, feed.extractors)
    evaluator = Evaluator(checkpoint, feed, options, feed.request)
    if source.videos is not None:
        captioned = evaluator.on_videos(videos_of(source.videos, source.limit, feed))
    elif source.clips is not None:
        captioned = evaluator.on_clips(source.clips, source.frames, source.limit)
    elif source.images is not None and source.captions is not None:
        captioned = evaluator.on_pictures(source.images, source.captions, source.split or "val", source.limit)
    else:
        raise ValueError("give images with captions, or clips")
    report = evaluate(captioned.hypotheses, captioned.references)
    return Evaluation(captioned, report, shuffled_baseline(report.captions) if shuffled else None)


def videos_of(source: SetFolder, limit: int | None, feed: Feed) -> list[CaptionedVideo]:
    """The videos to caption, with features, made now where they are not there. Raises DataSetError."""
    videos = source.to_judge()[:limit]
    return with_features(str(source.root), videos, VideoFeatures(feed, source.cache), log.warning)


def record(captioner: str, name: str, report: Report) -> None:
    """Write the scores into the checkpoint's card, under ``name``."""
    path = checkpoint_path(captioner)
    checkpoint = load_checkpoint(path)
    document = report.to_json()
    scores = {metric: round(value, 2) for metric, value in document["metrics"].items() if value is not None}
    entry = scores | {"n": report.n, "cider_interval": [round(v, 2) for v in document["intervals"]["cider"]]}
    card = replace(checkpoint.card, scores={**checkpoint.card.scores, name: entry})
    save_checkpoint(path, checkpoint.captioner, card)


def with_branches(checkpoint: Checkpoint, branches: Branches) -> Checkpoint:
    """The same STaTS weights reading through one branch alone. Raises ValueError for another captioner."""
    if not isinstance(checkpoint.captioner, Stats):
        raise ValueError(f"{checkpoint.card.captioner} has no branches; only stats has")
    config = checkpoint.captioner.config.model_copy(update={"branches": branches})
    captioner = Stats(config, checkpoint.captioner.vocabulary)
    captioner.load_state_dict(checkpoint.captioner.state_dict())
    return replace(checkpoint, captioner=captioner.eval())
