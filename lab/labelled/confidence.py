"""Fits how sure a labelled captioner is of its captions, by clips whose captions were marked by eye.

    python -m lab confidence CHECKPOINT --clips LIST --judged FOLDER --out FILE [--plot PNG]

LIST names clips as ``evaluate --clips`` takes it, FOLDER is one that ``judge`` marked. Whether a caption is
right is regressed on what the captioner expects of it and on how likely it finds it, by a logistic function
with a ridge. Printed and drawn is what five such fits say of the fifth of the clips that each has not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from torch import Tensor

from lab.judging.session import JudgingSession, Mark
from models.caption import join_words
from models.captioner import Captioner
from models.checkpoint import load_checkpoint, save_checkpoint
from models.decoding.written_captions import DecodedBatch
from models.labels.labelled_captioner import LabelledCaptioner
from training.evaluation.captioning import decode_video, read_clip_list
from training.evaluation.evaluated_captioner import EvaluatedCaptioner, load_evaluated_captioner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIDGE, STEPS, FOLDS, BINS, SEED = 0.3, 50, 5, 4, 0
#: Confidences that tell one part of the evidence each: what is expected, and how likely it is found.
PROBES = ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class JudgedEvidence:
    """Evidence of n captions. parts: (n, 2), cos(μ - m, e) and s(y|x) - δ s(y). right: bool (n,)."""

    parts: Tensor
    right: Tensor

    def select(self, rows: Tensor) -> JudgedEvidence:
        """Selects rows, by a mask or by places."""
        return JudgedEvidence(self.parts[rows], self.right[rows])


def fit_confidence(evidence: JudgedEvidence) -> Tensor:
    """Fits c_0, c_ρ and c_s by Newton's steps; the ridge is on standardised parts."""
    mean, scale = evidence.parts.mean(0), evidence.parts.std(0).clamp(min=1e-6)
    inputs = torch.cat([torch.ones(len(evidence.parts), 1), (evidence.parts - mean) / scale], 1)
    ridge, weights = torch.tensor([1e-6, RIDGE, RIDGE]), torch.zeros(3)
    for _ in range(STEPS):
        share = torch.sigmoid(inputs @ weights)
        gradient = inputs.T @ (evidence.right.float() - share) - ridge * weights
        curvature = (inputs.T * (share * (1 - share))) @ inputs + torch.diag(ridge)
        weights = weights + torch.linalg.solve(curvature, gradient)
    slopes = weights[1:] / scale
    return torch.cat([(weights[0] - slopes @ mean).unsqueeze(0), slopes])


def predict(weights: Tensor, parts: Tensor) -> Tensor:
    """Predicts the share of right captions (n,)."""
    return torch.sigmoid(weights[0] + parts @ weights[1:])


def predict_unseen(evidence: JudgedEvidence) -> Tensor:
    """Predicts each caption's confidence by a fit on the four fifths in which it is not."""
    order = torch.randperm(len(evidence.right), generator=torch.Generator().manual_seed(SEED))
    fold, unseen = order % FOLDS, torch.zeros(len(order))
    for number in range(FOLDS):
        fitted = fit_confidence(evidence.select(fold != number))
        unseen[fold == number] = predict(fitted, evidence.parts[fold == number])
    return unseen


def tabulate(confidence: Tensor, right: Tensor) -> list[tuple[float, float, int]]:
    """Puts captions into bins of about equal size: mean confidence, share that is right, captions."""
    bins = confidence.argsort().tensor_split(BINS)
    return [(float(confidence[rows].mean()), float(right[rows].float().mean()), len(rows)) for rows in bins]


def draw_calibration(confidence: Tensor, right: Tensor) -> Figure:
    """Draws the bins' share of right captions over their confidence, and the line where both agree."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7")
    rows = tabulate(confidence, right)
    axes.plot([row[0] for row in rows], [row[1] for row in rows], "o-")
    for sure, share, count in rows:
        axes.annotate(f"{count} captions", (sure, share), (6, -12), textcoords="offset points")
    axes.set(xlabel="confidence", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    return figure


def read_marks(folder: Path) -> Mapping[tuple[str, str], Mark]:
    """Reads (clip, caption) → its mark."""
    clips = JudgingSession(folder).clips
    return {(clip.name, each.text): each.mark for clip in clips for each in clip.captions if each.mark}


def collect(entry: EvaluatedCaptioner, clips: Path, marks: Mapping[tuple[str, str], Mark]) -> JudgedEvidence:
    """Captions clips and collects the evidence of those captions that were marked."""
    rows = [(parts, marks[key] == "right") for key, parts in _read_evidence(entry, clips) if key in marks]
    return JudgedEvidence(
        torch.tensor([parts for parts, _ in rows]), torch.tensor([right for _, right in rows])
    )


def _read_evidence(
    entry: EvaluatedCaptioner, clips: Path
) -> Iterator[tuple[tuple[str, str], tuple[float, ...]]]:
    captioner: Captioner = entry.writer.checkpoint.captioner  # type: ignore[union-attr]  # one alone
    probes = [_with_confidence(captioner, probe) for probe in PROBES]
    for clip in read_clip_list(clips):
        features = entry.feature_source.extract([decode_video(clip, entry.feature_source.request)])
        lead = captioner.inputs[0].name
        best = [DecodedBatch.by(probe, features, lead, entry.search).hypotheses[0][0] for probe in probes]
        text = join_words(captioner.vocabulary.decode(best[0].tokens))
        yield (clip.id, text), tuple(float(torch.tensor(each.confidence or 0.0).logit()) for each in best)


def _with_confidence(captioner: Captioner, weights: tuple[float, ...]) -> Captioner:
    meaning = captioner.config.meaning  # type: ignore[attr-defined]  # a labelled one's
    return captioner.with_config({"meaning": meaning.model_copy(update={"confidence": weights})})


def confidence(
    checkpoint: Annotated[Path, typer.Argument(help="A captioner of labels.")],
    clips: Annotated[Path, typer.Option(help='Clips: a JSON list of {"file", "captions"} beside them.')],
    judged: Annotated[Path, typer.Option(help="Folder of judge with marks of its captions.")],
    out: Annotated[Path, typer.Option(help="Where the checkpoint with its confidence is written.")],
    plot: Annotated[Path | None, typer.Option(help="Where the calibration is drawn.")] = None,
) -> None:
    """Fit how sure a labelled captioner is of its captions, by marked clips."""
    loaded = load_checkpoint(checkpoint)
    if not isinstance(loaded.captioner, LabelledCaptioner):
        raise typer.BadParameter(f"{loaded.card.captioner} knows no labels")
    evidence = collect(load_evaluated_captioner(str(checkpoint)), clips, read_marks(judged))
    unseen, right = predict_unseen(evidence), evidence.right.float()
    for row in tabulate(unseen, right):
        typer.echo("confidence {:.2f}, right {:.2f}, captions {}".format(*row))
    constant = float((right.mean() - right).square().mean())
    typer.echo(f"Brier score {float((unseen - right).square().mean()):.3f}, of a constant {constant:.3f}")
    if plot is not None:
        draw_calibration(unseen, right).savefig(plot, dpi=120)
    weights = tuple(round(value, 3) for value in fit_confidence(evidence).tolist())
    save_checkpoint(out, _with_confidence(loaded.captioner, weights), replace(loaded.card))
