"""Tells from which label each word of a caption came: by which classifier, when, and in which box."""

from __future__ import annotations

from models.caption import LabelReading, NamedLabel
from models.captioner import Array, CaptionSteps, as_numpy, rounded
from models.labels.classes import CLASS_NAMES, KINDS, LABELS, share_stem
from models.labels.label_reader import LabelMemory

#: From this weight on a word is told to come from a label that it is not a word of, as ``rider`` may from
#: ``motor scooter``.
LEADING_WEIGHT = 0.5


def describe_labels(caption: CaptionSteps, memory: LabelMemory) -> LabelReading | None:
    """Describes the labels that were read for one caption; None where the video has none.

    caption: its steps, whose extras have the labels' weights (words, L). memory: the batch's labels.
    """
    stream = caption.features.get(LABELS)
    if stream is None:
        return None
    labels = [_name_label(caption, memory, row) for row in range(len(stream))]
    weights = as_numpy(caption.steps.extras[LABELS][:, : len(labels)])
    origins = [_find_origin(word, row, labels) for word, row in zip(caption.words, weights, strict=True)]
    return LabelReading(labels=labels, weights=rounded(weights), origins=origins)


def _name_label(caption: CaptionSteps, memory: LabelMemory, row: int) -> NamedLabel:
    stream = caption.features[LABELS]
    place = int(memory.rows[caption.video, row])
    kind = int(stream.values[row].flatten()[0])
    boxes = stream.boxes
    box = None if boxes is None or list(KINDS)[kind] != "box" else rounded(as_numpy(boxes[row, 0]), 4)
    return NamedLabel(
        name=CLASS_NAMES[place],
        source=list(KINDS)[kind],
        probability=round(float(memory.probabilities[caption.video, row]), 4),
        start=round(float(stream.start[row]), 3),
        end=round(float(stream.end[row]), 3),
        box=box,
    )


def _find_origin(word: str, weights: Array, labels: list[NamedLabel]) -> int | None:
    """Finds the label that a word came from: the heaviest whose name has the word, or one that leads alone."""
    own = [row for row, label in enumerate(labels) if share_stem(word, label.name)]
    if own:
        return max(own, key=lambda row: float(weights[row]))
    best = int(weights.argmax()) if len(weights) else 0
    return best if len(weights) and weights[best] >= LEADING_WEIGHT else None
