"""What a network that was trained to tell classes apart says of a video: the usual check that it works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from extractors.features import Stream

TOP = 5


def predictions(streams: Mapping[str, Stream], classes: Sequence[str] | None) -> str | None:
    """The five likeliest classes of a video, ``0.93 archery, 0.02 yoga, …``, or that there is nothing that it
    knows; None without a classifier.

    Of ``…_logits`` the mean over rows of their softmax; of a detector's scores the best box of each class in
    any frame. Rows that are padded count only where there is no other.
    """
    for name, stream in streams.items():
        if name.endswith("_logits"):
            return _labelled(_real(stream).float().softmax(1).mean(0), classes)
    for name, stream in streams.items():
        is_of_classes = classes is not None and stream.values.shape[-1] == len(classes)
        if stream.boxes is not None and (name.endswith("_scores") or is_of_classes):
            return _labelled(stream.values.float().flatten(0, 1).amax(0), classes)
    return None


def _real(stream: Stream) -> Tensor:
    if stream.mask is None or not bool(stream.mask.any()):
        return stream.values
    return stream.values[stream.mask]


def _labelled(probability: Tensor, classes: Sequence[str] | None) -> str:
    best = torch.topk(probability, min(TOP, len(probability)))
    pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    said = ", ".join(f"{share:.2f} {_label(place, classes)}" for share, place in pairs if share > 0)
    return said or "nothing that it knows"


def _label(place: int, classes: Sequence[str] | None) -> str:
    return classes[place] if classes is not None else f"class {place}"
