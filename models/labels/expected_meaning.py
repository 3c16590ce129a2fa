"""Expects what a caption of a video would mean, from its picture and its labels, and judges captions by it.

With v̄ the mean of the captioner's first stream, t_l and p_l the vector of the class and the probability of a
label l of kind κ, u_w a vector of each word of the vocabulary, and m the mean of all captions' vectors:

    μ(x)    = W v̄ + b + Σ_l β_κ p_l^γ t_l                                (1) the mean vector of captions of x
    e(y)    = Σ_{w in y} u_w / |Σ_{w in y} u_w|                          (2) the vector of a caption's words
    ρ(x, y) = μ(x) · e(y)                                                (3) the cosine that is expected of it
    s(y|x)  = log p(y|x) / n^A,  s(y) = log p(y|typical picture) / n^A   (4) the captioner's scores
    merit   = ρ(x, y) - α m · e(y) + λ (s(y|x) - δ s(y))                 (5) what captions are ranked by
    sure    = σ(c_0 + c_ρ cos(μ(x) - m, e(y)) + c_s (s(y|x) - δ s(y)))   (6) how often it is right

Each word counts once. μ and e are taught by sentence vectors of all-MiniLM-L6-v2 (lab/labelled/fit.py),
which is not needed here. A class is read by the mean vector of what was written of it or of its name, never
by its number, so that a label counts of which no caption was paired with a picture. Doubt is in three places:
a label that is unsure hardly counts (γ > 1); of unit vectors the one nearest to their mean has the greatest
expected cosine, so that the less is known of a video, the more general is what fits it; and what fits every
video is divided out (α, δ).

μ and the sum in (2) are linear, so that their product is a sum over labels and words, from which the share of
each label in each word is read exactly (7):

    share   = u_w · β_κ p_l^γ t_l  of label l,  u_w · (W v̄ + b - α m)  of the picture                   (7)
"""

from dataclasses import dataclass

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from extractors.catalog.labels import STREAM
from extractors.label import KINDS, NAMES
from models.captioner import Judgement
from models.inputs import Batch, InputStream
from models.memory import TensorRows
from models.vocabulary import EOS

LABELS = STREAM
LABELS_INPUT = InputStream(name=LABELS, width=3)
CLASS_NAMES: tuple[str, ...] = tuple(name for kind in KINDS for name in NAMES[kind])
_COUNTS = torch.tensor([len(NAMES[kind]) for kind in KINDS])
#: Where each kind's classes begin among CLASS_NAMES.
_FIRST = _COUNTS.cumsum(0) - _COUNTS


def find_class_rows(kinds: Tensor, classes: Tensor) -> Tensor:
    """Finds the places among CLASS_NAMES of classes (…) of kinds (…); numbers beyond are clipped."""
    kinds = kinds.clamp(0, len(KINDS) - 1)
    counts, first = _COUNTS.to(kinds.device)[kinds], _FIRST.to(kinds.device)[kinds]
    return first + classes.clamp(min=0).minimum(counts - 1)


class MeaningConfig(BaseModel, frozen=True):
    """Configures what is expected."""

    texts: int = 384  #: width of sentence vectors
    gate: float = 1.5  #: γ
    common: float = 0.7  #: α, the weight of m, which is the buffer ``common``
    likelihood: float = 0.06  #: λ
    prior: float = 0.5  #: δ
    confidence: tuple[float, float, float] | None = None  #: c_0, c_ρ and c_s; None before they were fitted


@dataclass(frozen=True, eq=False)
class ReadLabels(TensorRows):
    """Holds the labels of B videos.

    kinds, rows: places among KINDS and CLASS_NAMES (B, L). weights: β p^γ (B, L), 0 where there is no label.
    """

    kinds: Tensor
    rows: Tensor
    weights: Tensor


class ExpectedMeaning(nn.Module):
    """Judges captions by what is expected of a video.

    Args:
        config: Widths and weights.
        seen: Width of the captioner's first stream.
        words: Size of the vocabulary.
    """

    texts: Tensor
    common: Tensor

    def __init__(self, config: MeaningConfig, seen: int, words: int) -> None:
        super().__init__()
        self.config = config
        self.picture = nn.Linear(seen, config.texts)  # W, b
        self.kinds = nn.Parameter(torch.zeros(len(KINDS)))  # β
        self.words = nn.Embedding(words, config.texts)  # u
        self.register_buffer("texts", torch.zeros(len(CLASS_NAMES), config.texts))  # t
        self.register_buffer("common", torch.zeros(config.texts))  # m

    def read(self, batch: Batch) -> ReadLabels:
        """Reads labels (B, L, 1, 3)."""
        kinds, classes = batch.values[:, :, 0, 0].round().long(), batch.values[:, :, 0, 1].round().long()
        kinds = kinds.clamp(0, len(KINDS) - 1)
        sure = batch.values[:, :, 0, 2].clamp(0, 1) ** self.config.gate
        return ReadLabels(kinds, find_class_rows(kinds, classes), self.kinds[kinds] * sure * batch.frame_mask)

    def expect(self, seen: Tensor, labels: ReadLabels) -> Tensor:
        """Computes μ (B, texts) of videos whose v̄ is ``seen`` (B, seen)."""
        named = torch.einsum("bl,blw->bw", labels.weights, self.texts[labels.rows].to(labels.weights.dtype))
        expected: Tensor = self.picture(seen) + named  # (1)
        return expected

    def judge(self, expected: Tensor, tokens: Tensor, scores: Tensor, priors: Tensor) -> Judgement:
        """Judges captions, those of a video side by side.

        Args:
            expected: μ (B, texts).
            tokens: (R, t) ids, ended by <eos> or not at all.
            scores: s(y|x) (R,).
            priors: s(y) (R,).
        """
        captions = self.embed_captions(tokens)
        rows = expected.repeat_interleave(len(tokens) // len(expected), 0).float()
        relevance = (rows * captions).sum(1)  # (3)
        seen = scores - self.config.prior * priors
        merit = (
            relevance - self.config.common * (captions @ self.common) + self.config.likelihood * seen
        )  # (5)
        if self.config.confidence is None:
            return Judgement(merit, None)
        bias, of_meaning, of_seen = self.config.confidence
        distinct = (nn.functional.normalize(rows - self.common, dim=1) * captions).sum(1)
        return Judgement(merit, torch.sigmoid(bias + of_meaning * distinct + of_seen * seen))  # (6)

    def embed_captions(self, tokens: Tensor) -> Tensor:
        """Computes e of captions (R, t): (R, texts)."""
        return nn.functional.normalize(self._sum_words(tokens), dim=1)  # (2)

    def _sum_words(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.words(tokens.clamp(min=0)).float()
        return (vectors * find_first_places(tokens).unsqueeze(2)).sum(1)

    def recall(self, expected: Tensor, tokens: Tensor, norms: Tensor, count: int) -> Tensor:
        """Finds the captions of a list that fit a video best by ρ - α m · e.

        Args:
            expected: μ (texts,) of one video.
            tokens: (S, t) ids of the list.
            norms: (S,), |Σ u_w| of each.
            count: How many are found.

        Returns:
            Their places, the best first.
        """
        fits = self.words.weight.float() @ (expected.float() - self.config.common * self.common)  # (V,)
        fit = (fits[tokens] * find_first_places(tokens)).sum(1) / norms
        return fit.topk(min(count, len(fit))).indices

    def measure_lengths(self, tokens: Tensor) -> Tensor:
        """Computes |Σ u_w| of captions (S, t): (S,)."""
        lengths: Tensor = self._sum_words(tokens).norm(dim=1)
        return lengths

    @torch.inference_mode()
    def share_words(self, seen: Tensor, labels: ReadLabels, tokens: Tensor) -> Tensor:
        """Computes what each part of μ gives to each word's product with it (7).

        Args:
            seen: v̄ (seen,) of one video.
            labels: Of one video, (1, L).
            tokens: (t,) ids of a caption.

        Returns:
            (t, L + 1): of each label, and of the picture at last.
        """
        parts = labels.weights[0].unsqueeze(1) * self.texts[labels.rows[0]]
        every = torch.cat([parts, (self.picture(seen) - self.config.common * self.common).unsqueeze(0)])
        shares: Tensor = self.words(tokens) @ every.T
        return shares


def find_first_places(tokens: Tensor) -> Tensor:
    """Finds where words (R, t) stand for the first time before the end of their caption: bool (R, t)."""
    ended = ((tokens == EOS) | (tokens < 0)).cumsum(1) > 0
    same = tokens.unsqueeze(2) == tokens.unsqueeze(1)
    return ~ended & ~same.tril(-1).any(2)
