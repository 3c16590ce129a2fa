"""Scores captions that are in files, against references and against the captions of another captioner."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from tqdm import tqdm

from extractors.media.request import DecodeRequest
from extractors.windows import FRAMES, Sampling
from training.datasets.caption_set import VideoItem
from training.datasets.errors import NothingToUse
from training.datasets.files import MediaFiles
from training.evaluation.caption_files import match_references, read_references, read_results
from training.evaluation.captioning import decode_video
from training.precision import CPU
from training.scores.bootstrap import Comparison, compare, mean_metric
from training.scores.clip_score import ClipEncoder, compute_clip_scores
from training.scores.dense import DenseScores, score_dense
from training.scores.diversity import Diversity, measure_diversity
from training.scores.java import JavaError, find_java
from training.scores.metrics import CLIP_METRICS, TITLES, ScoreReport, evaluate
from training.scores.tokenizer import tokenize

#: A CLIP, and for each item the vectors (T, D) of its frames.
_Looks: TypeAlias = tuple[ClipEncoder, Sequence[Tensor]]


@dataclass(frozen=True)
class ClipSource:
    """Names the CLIP and the videos that CLIPScore is computed from."""

    folder: Path  #: of a CLIP in the Hugging Face format
    videos: Path  #: the folder, or one above those, of files that are named by the items' ids
    frames: int = FRAMES  #: that are spread over a video
    device: torch.device = CPU

    def look(self, ids: Iterable[str]) -> _Looks:
        """Loads the CLIP, and lets it see the items' videos. Raises PretrainedDamaged, NothingToUse."""
        encoder, files = ClipEncoder.load(self.folder, self.device), MediaFiles.find_below(self.videos)
        request = DecodeRequest(Sampling(count=self.frames))
        shown = tqdm(ids, desc="videos", disable=None)
        return encoder, [_see(encoder, files, each, request) for each in shown]


@dataclass(frozen=True)
class FileScores:
    """Scores of a file of captions."""

    report: ScoreReport
    diversity: Diversity
    left_out: int  #: items that have references and no caption
    against: Sequence[Comparison] = ()  #: with another file's captions, a metric each
    dense: DenseScores | None = None  #: of items that are segments of videos

    def to_json(self) -> dict[str, Any]:
        """Returns the report's document, with ``diversity``, ``left_out`` and ``against`` by metric."""
        named = {each.name: asdict(each) for each in self.against}
        more = {"diversity": asdict(self.diversity), "left_out": self.left_out}
        more |= {} if self.dense is None else {"dense": self.dense.to_json()}
        return {**self.report.to_json(), **more, **({"against": named} if named else {})}

    def print(self) -> None:
        """Prints the scores as tables."""
        console = Console()
        console.print(self.report.table())
        if self.dense is not None:
            console.print(self.dense.table())
        for name, value in asdict(self.diversity).items():
            if value is not None:
                console.print(f"{name.replace('_', '-')}: {value:.4g}")
        for note in self.report.notes.items():
            console.print(": ".join(note), style="dim")
        if self.left_out:
            console.print(f"{self.left_out} items with references have no caption and are left out")
        if self.against:
            console.print(self._make_comparison())

    def _make_comparison(self) -> Table:
        table = Table("metric", "difference", "95 % interval", "p", title="against the other file, paired")
        for each in self.against:
            low, high = each.interval
            row = TITLES[each.name], f"{each.difference:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{each.p:.3f}"
            table.add_row(*row)
        return table


def score_files(
    captions: Path,
    references: Path,
    against: Path | None = None,
    training: Path | None = None,
    clip: ClipSource | None = None,
    data_set: str | None = None,
) -> FileScores:
    """Scores a file of captions.

    Args:
        captions: one of each item.
        references: of the same items and perhaps more, or a captioned set's folder.
        against: other captions of the same items, which are compared by a paired bootstrap.
        training: captions that were trained on; the share of captions that are none of them is told.
        clip: what CLIPScore and RefCLIPScore are computed from, None for neither.
        data_set: the name of the captioned set whose folder is given, by default what its files are of.

    Raises:
        DataSetError: a file has another form, or items do not fit each other.
        PretrainedDamaged: there is no CLIP in the folder.
        MediaError: a video cannot be read.
    """
    people = read_references(references, data_set)
    written = read_results(captions, people)
    other = None if against is None else read_results(against, people)
    if other is not None and (odd := written.keys() ^ other.keys()):
        raise NothingToUse(f"{len(odd)} items have a caption in one file alone, such as {min(odd)!r}.")
    matched = match_references(written, people)
    known_captions = None if training is None else _tokenize_all(read_references(training, data_set))
    looks = None if clip is None else clip.look(written)
    report = _score(written, matched, looks)
    compared = (
        () if other is None else _compare(report, _score({n: other[n] for n in written}, matched, looks))
    )
    diversity = measure_diversity(report.captions.hypotheses, known_captions)
    left_out = len(people.keys() - written.keys())
    return FileScores(report, diversity, left_out, compared, score_dense(written, people))


def _compare(first: ScoreReport, second: ScoreReport) -> list[Comparison]:
    both = [name for name in first.metrics if name in second.metrics]
    return [compare(first.metrics[name], second.metrics[name]) for name in both]


def _tokenize_all(references: Mapping[str, Sequence[str]]) -> list[str]:
    """Tokenises captions as the scored ones are."""
    texts = [text for each in references.values() for text in each]
    try:
        return tokenize(texts, find_java())
    except JavaError:
        return tokenize(texts, None)


def _see(encoder: ClipEncoder, files: MediaFiles, name: str, request: DecodeRequest) -> Tensor:
    """Encodes the frames of an item, which is called as its file is, with or without its suffix."""
    clip = files.find_clip(name if files.find(name) else Path(name).stem)
    if clip.path is None:
        raise NothingToUse(f"--videos has no file called {name}.")
    video = VideoItem(name, clip.path, "test", (), clip.start, clip.end)
    return encoder.encode_frames(decode_video(video, request))


def _score(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], looks: _Looks | None
) -> ScoreReport:
    report = evaluate(captions, references)
    if looks is None:
        return report
    encoder, videos = looks
    scores = compute_clip_scores(encoder, videos, list(captions.values()), list(references.values()))
    return report.add(
        *(mean_metric(name, 100 * each) for name, each in zip(CLIP_METRICS, scores, strict=True))
    )
