"""Reads labels of classifiers while a caption is written: which of them a video is trusted to show, and which
of them the next word is about.

With labels l of a video, t_l the vector of a label's name, p_l its probability and κ_l its kind, v̄ the mean
of the captioner's first stream, and o the captioner's output for the next word:

    m_l = tanh(W_t t_l + W_p [p_l, log p_l] + E κ_l)                     (1) what a label says
    r_l = w_r · tanh(W_r m_l + W_v v̄ + b_r)                              (2) how far the video supports it
    s   = Σ_l softmax_l(r)_l m_l                                         (3) all labels at once
    a   = softmax([r_l + (W_q o) · (W_k m_l) / √d ; w_0 · o])            (4) the label of this word, or none
    o′  = o + W_c Σ_l a_l m_l                                            (5) what words are scored by

The captioner is given s beside each word that was written (W_s s is added to the word's vector), so that it can
plan a sentence about a label before it names it. Equations 3 and 4 count "none" as one more label of score 0
and of score w_0 · o, so that a reader may trust nothing. Attributes as attention: You et al., CVPR 2016; the
vector of a name in the place of a class's number: Yao et al., CVPR 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from models.captioner import TensorRows
from models.captioners.attention_layers import weighted_sum
from models.inputs import Batch
from models.labels.classes import CLASS_NAMES, KINDS, find_class_rows


class LabelReaderConfig(BaseModel):
    """Configures the reader. texts: width of a name's vector. width: d, of what a label says. dropped: share
    of labels that training hides, so that a captioner learns to write without them."""

    model_config = ConfigDict(frozen=True)

    texts: int = 384
    width: int = 256
    dropped: float = 0.15


@dataclass(frozen=True, eq=False)
class LabelMemory(TensorRows):
    """Holds the labels of B videos.

    Attributes:
        labels: m_l (B, L, d).
        keys: W_k m_l (B, L, d).
        support: r_l (B, L), -inf where there is no label.
        summary: W_s s (B, E).
        kinds: Places among KINDS (B, L).
        rows: Places among CLASS_NAMES (B, L).
        probabilities: (B, L), 0 where there is no label.
    """

    labels: Tensor
    keys: Tensor
    support: Tensor
    summary: Tensor
    kinds: Tensor
    rows: Tensor
    probabilities: Tensor


class LabelReader(nn.Module):
    """Turns labels into what is added to a captioner's inputs and outputs.

    Args:
        config: Widths.
        seen: Of the captioner's first stream.
        written: E, of what its ``advance`` is given of a word.
        output: Of what its ``advance`` returns.
    """

    def __init__(self, config: LabelReaderConfig, seen: int, written: int, output: int) -> None:
        super().__init__()
        d = config.width
        self.config = config
        self.register_buffer("texts", torch.zeros(len(CLASS_NAMES), config.texts))
        self.W_t = nn.Linear(config.texts, d)
        self.W_p = nn.Linear(2, d, bias=False)
        self.kinds = nn.Embedding(len(KINDS), d)
        self.W_r, self.w_r = nn.Linear(d, d), nn.Linear(d, 1)
        self.W_v = nn.Linear(seen, d, bias=False)
        self.W_q, self.W_k = nn.Linear(output, d), nn.Linear(d, d, bias=False)
        self.w_0 = nn.Linear(output, 1)
        self.W_s = nn.Linear(d, written, bias=False)
        self.W_c = nn.Linear(d, output, bias=False)
        # a captioner that was trained without labels writes as before until the reader has learned
        nn.init.zeros_(self.W_s.weight)
        nn.init.zeros_(self.W_c.weight)

    def encode(self, batch: Batch, seen: Tensor) -> LabelMemory:
        """Encodes labels (B, L, 1, 3) under the means v̄ (B, seen) of what the captioner saw."""
        kinds, classes = batch.values[:, :, 0, 0].round().long(), batch.values[:, :, 0, 1].round().long()
        probabilities = batch.values[:, :, 0, 2]
        kinds = kinds.clamp(0, len(KINDS) - 1)
        rows, mask = find_class_rows(kinds, classes), batch.frame_mask
        if self.training:
            mask = mask & (torch.rand(mask.shape, device=mask.device) >= self.config.dropped)
        p = torch.stack([probabilities, probabilities.clamp(min=1e-3).log()], 2)
        texts = self.texts[rows].to(p.dtype)
        labels = torch.tanh(self.W_t(texts) + self.W_p(p) + self.kinds(kinds))  # (1)
        support = self.w_r(torch.tanh(self.W_r(labels) + self.W_v(seen).unsqueeze(1))).squeeze(2).float()  # (2)
        support = support.masked_fill(~mask, -torch.inf)
        shares = with_none(support, support.new_zeros(len(support), 1)).softmax(1)[:, :-1]
        return LabelMemory(
            labels=labels,
            keys=self.W_k(labels),
            support=support,
            summary=self.W_s(weighted_sum(shares, labels)),  # (3)
            kinds=kinds,
            rows=rows,
            probabilities=probabilities * mask,
        )

    def forward(self, output: Tensor, memory: LabelMemory) -> tuple[Tensor, Tensor]:
        """Adds to the outputs o (R, output) what labels say: o′ (R, output), and a (R, L)."""
        videos, labels, width = memory.keys.shape
        query = self.W_q(output).view(videos, -1, width)
        scores = torch.bmm(query, memory.keys.transpose(1, 2)).float() / width**0.5
        scores = (scores + memory.support.unsqueeze(1)).view(-1, labels)
        weights = with_none(scores, self.w_0(output).float()).softmax(1)[:, :-1]  # (4)
        return output + self.W_c(weighted_sum(weights, memory.labels)), weights  # (5)


def with_none(scores: Tensor, none: Tensor) -> Tensor:
    """Puts the score (N, 1) of no label behind those of labels (N, L)."""
    return torch.cat([scores, none], 1)
