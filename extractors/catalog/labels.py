"""Lists what networks recognise in a video as one stream: ``labels:<name>+<name>+…``.

Takes the scores that those extractors make beside their features, in the same pass: actions of a clip
network's windows, things of a picture network's frames, objects of a detector's boxes. A row of the stream is
a label, the likeliest first of each kind: start and end are the seconds in which it is seen, its box where.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.extractor import ExtractorOptions, UnknownExtractor
from extractors.features import WHOLE, Stream, StreamSpec, View
from extractors.label import KINDS, NAMES, Label, LabelKind
from extractors.networks.labels import COCO_80, COCO_90, IMAGENET, KINETICS_400

PREFIX, STREAM = "labels:", "labels"
#: Labels of a kind that are listed. Those of windows and frames always come to so many.
MOST: Mapping[LabelKind, int] = {"motion": 4, "picture": 5, "box": 6}
DETECTORS = ("detectron2_c4", "detectron2_fpn", "faster_rcnn", "mask_rcnn")
#: Of its highest probability, the share above which a label counts as seen.
SEEN = 0.5


@dataclass(frozen=True)
class _Scored:
    """A class by its place among the names, with what ``Label`` says of it."""

    place: int
    probability: float
    start: float
    end: float
    box: View = WHOLE


class LabelExtractor:
    """Makes the stream ``labels`` (L, 1, 3), float32, with boxes (L, 1, 4): the number of the kind in
    ``KINDS``, the number of the class among its ``NAMES``, and the probability.

    scores: the streams that it takes.
    """

    needs = frozenset({"streams"})
    width = 3

    def __init__(self, name: str, scores: tuple[str, ...]) -> None:
        self.name, self.needs_streams = name, scores
        self.spec = StreamSpec(f"labels of {', '.join(scores)}", "", "")

    def derive(self, streams: Mapping[str, Stream]) -> dict[str, Stream]:
        """Lists the labels. Raises ValueError where a stream is absent, or its classes are not known."""
        absent = [name for name in self.needs_streams if name not in streams]
        if absent:
            raise ValueError(f"{self.name} needs the stream {absent[0]}: ask for its extractor too")
        taken = [streams[name] for name in self.needs_streams]
        labels = [(find_kind(stream), each) for stream in taken for each in _rank_labels(stream)]
        labels.sort(key=lambda pair: (KINDS.index(pair[0]), -pair[1].probability))
        rows = [[KINDS.index(kind), each.place, each.probability] for kind, each in labels]
        return {
            STREAM: Stream(
                torch.tensor(rows, dtype=torch.float32).reshape(-1, 1, 3),
                np.array([each.start for _, each in labels], np.float64),
                np.array([each.end for _, each in labels], np.float64),
                _combine_specs([stream.spec for stream in taken]),
                boxes=torch.tensor([each.box for _, each in labels], dtype=torch.float32).reshape(-1, 1, 4),
            )
        }


def find_kind(stream: Stream) -> LabelKind:
    """Finds what a stream of scores is of. Raises ValueError where its classes are of no known set."""
    classes = stream.values.shape[-1]
    if stream.boxes is not None:
        if classes in (len(COCO_80), len(COCO_90)):
            return "box"
    elif classes == len(KINETICS_400):
        return "motion"
    elif classes == len(IMAGENET):
        return "picture"
    raise ValueError(f"{stream.spec.network} tells {classes} classes apart, which are of no known set")


def _rank_labels(stream: Stream) -> list[_Scored]:
    """Ranks a video's classes by one network's scores, the likeliest first.

    Of rows of the whole picture, logits (T, …, classes), a class has its mean probability; of boxes, scores
    (T, K, classes), its best one, and it is left out where it has none.
    """
    kind = find_kind(stream)
    if kind == "box":
        return _rank_boxes(stream)[: MOST[kind]]
    logits = stream.values.float().reshape(len(stream), -1)
    shares = logits.softmax(1).numpy()[_find_real_rows(stream)]
    start, end = (times[_find_real_rows(stream)] for times in (stream.start, stream.end))
    best = np.argsort(-shares.mean(0), kind="stable")[: MOST[kind]]
    seen = [_find_seen(shares[:, place]) for place in best]
    return [
        _Scored(int(place), float(shares[:, place].mean()), float(start[first]), float(end[last]))
        for place, (first, last) in zip(best, seen, strict=True)
    ]


def _find_real_rows(stream: Stream) -> NDArray[np.int64]:
    """Finds the rows that are no padding; all of them where a short video has no other."""
    if stream.mask is None or not stream.mask.any():
        return np.arange(len(stream))
    return np.flatnonzero(stream.mask.reshape(len(stream), -1).any(1).numpy())


def _find_seen(shares: NDArray[np.float32]) -> tuple[int, int]:
    """Finds the first and the last row around the highest in which the class is seen."""
    peak = int(shares.argmax())
    unseen = np.flatnonzero(shares < SEEN * shares[peak])
    before, after = unseen[unseen < peak], unseen[unseen > peak]
    return int(before[-1]) + 1 if len(before) else 0, int(after[0]) - 1 if len(after) else len(shares) - 1


def _rank_boxes(stream: Stream) -> list[_Scored]:
    assert stream.boxes is not None
    scores = stream.values.float().numpy()
    names = COCO_80 if scores.shape[2] == len(COCO_80) else COCO_90
    scored = []
    for column in np.flatnonzero(scores.max((0, 1), initial=0) > 0):
        row, box = np.unravel_index(scores[:, :, column].argmax(), scores.shape[:2])
        x0, y0, x1, y1 = stream.boxes[row, box].tolist()
        times = float(stream.start[row]), float(stream.end[row])
        score = float(scores[row, box, column])
        scored.append(_Scored(COCO_80.index(names[column]), score, *times, (x0, y0, x1, y1)))
    return sorted(scored, key=lambda each: -each.probability)


def read_labels(stream: Stream) -> list[Label]:
    """Reads the labels of a stream ``labels``, in its order; padding is left out."""
    rows = range(len(stream)) if stream.mask is None else np.flatnonzero(stream.mask[:, 0].numpy()).tolist()
    return [_read_label(stream, row) for row in rows]


def _read_label(stream: Stream, row: int) -> Label:
    assert stream.boxes is not None
    number, place, probability = stream.values[row, 0].tolist()
    kind = KINDS[int(number)]
    x0, y0, x1, y1 = stream.boxes[row, 0].tolist()
    return Label(
        NAMES[kind][int(place)],
        kind,
        probability,
        float(stream.start[row]),
        float(stream.end[row]),
        (x0, y0, x1, y1) if kind == "box" else None,
        stream.spec,
    )


def _combine_specs(specs: Sequence[StreamSpec]) -> StreamSpec:
    """Makes a name tag that changes where that of any network does, or how labels are chosen."""
    most = ", ".join(f"{count} by {kind}" for kind, count in MOST.items())
    return StreamSpec(
        "labels of " + ", ".join(spec.network for spec in specs),
        "+".join(spec.weights_sha256 for spec in specs),
        "; ".join([*(spec.preprocessing for spec in specs), f"at most {most}"]),
        "; ".join(spec.sampling for spec in specs),
        "+".join(spec.engine for spec in specs),
        "+".join(spec.precision for spec in specs),
    )


def make(name: str, _: ExtractorOptions) -> LabelExtractor:
    """Makes the extractor of that name. Raises UnknownExtractor where it names none that it could take."""
    makers = name.removeprefix(PREFIX).split("+")
    if not name.startswith(PREFIX) or not all(makers):
        raise UnknownExtractor(f"{name!r} should be {PREFIX}<name>+<name>, such as labels:i3d_brief+coco_ssd")
    return LabelExtractor(name, tuple(name_scores(maker) for maker in makers))


def name_scores(extractor: str) -> str:
    """Names the stream of an extractor's scores: those of its boxes, or else its logits."""
    name = extractor.partition(":")[0]
    if name == "coco_ssd":  # whose values are the scores
        return extractor
    return f"{extractor}_scores" if name in DETECTORS else f"{extractor}_logits"
