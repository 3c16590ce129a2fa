"""Computes additive and bilinear attention and masked softmax, over memories that several rows share."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Computes the softmax over the last axis in float32; masked places get 0, also where none is left."""
    scores = scores.float()
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights * mask


def find_scale(query: Tensor) -> int:
    """Chooses whether ``_weigh_tanh`` takes its input as it is, 1, or doubled, 2.

    Doubled, it computes tanh x = 2 σ(2x) - 1, off by 2e-7 at most. In float32 on a CPU torch's σ takes a
    sixth of the time of its tanh, which over all cells of a video is what a step would spend most on.
    """
    is_slow = query.device.type == "cpu" and query.dtype == torch.float32 and not torch.is_grad_enabled()
    return 2 if is_slow else 1


def _weigh_tanh(w: nn.Linear, x: Tensor, scale: int) -> Tensor:
    """Computes wᵀ tanh(x / scale) over the last axis of x (…, A): (…). It may write into x.

    w: Linear (A → 1) without bias. scale: of ``find_scale``.
    """
    weighed: Tensor = w(torch.tanh(x) if scale == 1 else x.sigmoid_()).squeeze(-1)
    return weighed if scale == 1 else 2 * weighed - w.weight.sum()


class KeyedAttention(nn.Module, ABC):
    """Scores places x under a query h by keys W_x x, which no word changes.

    So they are computed once a video, and every row (beam, sample, caption) of that video scores against the
    same tensor.

    Args:
        query_width: Of h.
        width: Of x.
        attention_width: A, of the keys.
        key_bias: Whether keys are W_x x + b.
    """

    def __init__(self, query_width: int, width: int, attention_width: int, key_bias: bool = True) -> None:
        super().__init__()
        self.W_h = nn.Linear(query_width, attention_width, bias=False)
        self.W_x = nn.Linear(width, attention_width, bias=key_bias)
        self.w = nn.Linear(attention_width, 1, bias=False)

    def make_keys(self, x: Tensor) -> Tensor:
        """Computes the keys of x: (…, width) → (…, A)."""
        keys: Tensor = self.W_x(x)
        return keys

    def score(self, h: Tensor, keys: Tensor) -> Tensor:
        """Scores h (R, query) against keys (B, …, A), R = B·K: (R, …), not normalised."""
        videos, places = keys.shape[0], keys.shape[1:-1]
        query = self.W_h(h).view(videos, -1, *([1] * len(places)), keys.shape[-1])
        scale = find_scale(query)
        x = self._join(scale * query, keys.unsqueeze(1), scale)
        return _weigh_tanh(self.w, x, scale).view(h.shape[0], *places)

    @abstractmethod
    def _join(self, query: Tensor, keys: Tensor, scale: int) -> Tensor:
        """Computes ``scale`` times what tanh is taken of; the query (B, K, …, A) has been multiplied."""


class AdditiveAttention(KeyedAttention):
    """Scores places by att(h, x) = wᵀ tanh(W_h h + W_x x + b) (Bahdanau's attention)."""

    def _join(self, query: Tensor, keys: Tensor, scale: int) -> Tensor:
        return torch.add(query, keys, alpha=scale)


class BilinearAttention(KeyedAttention):
    """Scores places by att(h, x) = wᵀ tanh((W_h h) ⊙ (W_x x) + b), b only where ``bias``.

    A bias outside the tanh, which a paper may print, would shift all scores alike and cancel in the softmax,
    so there is none.
    """

    def __init__(self, query_width: int, width: int, attention_width: int, bias: bool = True) -> None:
        super().__init__(query_width, width, attention_width, key_bias=False)
        self.b = nn.Parameter(torch.zeros(attention_width)) if bias else None

    def _join(self, query: Tensor, keys: Tensor, scale: int) -> Tensor:
        return query * keys if self.b is None else torch.addcmul(scale * self.b, query, keys)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sums values (B, N, D) by weights (R, N), R = B·K → (R, D), one matrix product a video."""
    videos = values.shape[0]
    grouped = weights.to(values.dtype).view(videos, -1, values.shape[1])
    return torch.bmm(grouped, values).reshape(weights.shape[0], values.shape[2])


def expand_to_rows(per_video: Tensor, rows: Tensor) -> Tensor:
    """Repeats each video's value for each of its rows: (B, …) → (R, …)."""
    return per_video.repeat_interleave(rows.shape[0] // per_video.shape[0], 0)


def sum_regions(weights: Tensor, x: Tensor) -> Tensor:
    """Sums the regions of each frame: weights (R, T, N), x (B, T, N, d) → (R, T, d)."""
    videos = x.shape[0]
    grouped = weights.to(x.dtype).view(videos, -1, *weights.shape[1:])
    return torch.einsum("bktn,btnd->bktd", grouped, x).flatten(0, 1)
