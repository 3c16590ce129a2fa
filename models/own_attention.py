"""From a captioner's own tensors to what it tells of itself (``models/extras.py``), one function a paper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.captioner import Memory, StepAttention
from models.dual_afr import DualAFR
from models.extras import Extras, Layers, Moment
from models.g2l import G2L
from models.refocus import Refocus, RefocusMemory
from models.stats import Stats


@dataclass(frozen=True, eq=False)
class Looked:
    """What one caption was made from. steps: tensors (words, …) as they were batched. video: its place in
    ``memory``. times: (T, 2), the video's own moments. regions: N, the video's own."""

    steps: StepAttention
    memory: Memory
    video: int
    times: NDArray[np.float64]
    regions: int

    def chosen(self, moment: int, weight: float) -> Moment:
        return Moment(moment, round(float(self.times[moment, 0]), 4), round(weight, 5))


@singledispatch
def own_attention(captioner: object, looked: Looked) -> Extras:  # noqa: ARG001 - what others read
    """What the captioner tells of itself; nothing where its paper has nothing but the two maps."""
    return Extras()


@own_attention.register
def _stats(_: Stats, looked: Looked) -> Extras:
    """The branches' shares and ST's map."""
    extras = looked.steps.extras
    return Extras(branch=numpy(extras["branch"]), st_spatial=numpy(extras["st_spatial"][:, : looked.regions]))


@own_attention.register
def _g2l(_: G2L, looked: Looked) -> Extras:
    """For each word the frames that the sampler took, weighed by the attention it took them from."""
    selected = looked.steps.extras["selected"][:, : len(looked.times)]
    weights = looked.steps.temporal.tolist()
    by_word = tuple(
        tuple(looked.chosen(k, weights[word][k]) for k in torch.nonzero(row > 0.5).flatten().tolist())
        for word, row in enumerate(selected)
    )
    return Extras(selected=by_word)


@own_attention.register
def _refocus(_: Refocus, looked: Looked) -> Extras:
    """Both key frames, which are the video's and no word's; the captions are added where they are made."""
    assert isinstance(looked.memory, RefocusMemory)
    watched, video = looked.memory.watched, looked.video
    alpha = numpy(watched.scores[video, : len(looked.times)].float().softmax(0))
    default, key = int(watched.default_key[video]), int(watched.key[video])
    return Extras(
        default_key_frame=looked.chosen(default, float(alpha[default])),
        key_frame=looked.chosen(key, float(alpha[key])),
        refocus=alpha,
    )


@own_attention.register
def _dual_afr(captioner: DualAFR, looked: Looked) -> Extras:
    """The layers' weights for each word but the first."""
    names = tuple(layer.name for layer in captioner.config.layers)
    return Extras(layers=Layers(names, numpy(looked.steps.extras["layers"])))


def numpy(value: Tensor) -> NDArray[np.float64]:
    return value.detach().to("cpu", torch.float64).numpy()
