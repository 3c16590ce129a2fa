"""Expects what a caption of a video would mean, so that the captions of a search are ranked by it.

With v̄ the mean of the captioner's first stream, t_l and p_l the vector and the probability of a label l of
kind κ, and u_w a vector of each word of the vocabulary:

    μ(x) = W v̄ + b + Σ_κ β_κ Σ_{l of κ} p_l t_l                          (6) the mean vector of captions of x
    e(y) = Σ_{w in y} u_w / |Σ_{w in y} u_w|                             (7) the vector of a caption
    ρ(x, y) = μ(x) · e(y)                                                (8) the cosine that is expected of it
    P μ(x)                                                               (9) what is added to each written word

μ and e are taught by the sentence vectors of all-MiniLM-L6-v2 (training/labels/meaning.py), which is not needed
here. Of unit vectors the caption whose expected cosine to what people would write is greatest is the one nearest
to their mean, so ρ prefers what is likely right in part over one detailed guess: the less is known of a video,
the shorter is μ and the more the likelihood of the words decides. It is also what confidence is made of.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from models.captioner import Judgement
from models.labels.classes import KINDS
from models.labels.label_reader import LabelMemory
from models.vocabulary import EOS


class MeaningConfig(BaseModel):
    """Configures the expectation.

    width: of sentence vectors. likelihood: weight of a caption's score beside ρ. confidence: c_0, c_ρ and c_s,
    by which σ(c_0 + c_ρ ρ + c_s score) is the share of right captions among captions alike; None before it
    was fitted.
    """

    model_config = ConfigDict(frozen=True)

    width: int = 384
    likelihood: float = 0.05
    confidence: tuple[float, float, float] | None = None


class ExpectedMeaning(nn.Module):
    """Ranks the captions of a search, and tells how sure the best one is.

    Args:
        config: Widths and weights.
        seen: Width of the captioner's first stream.
        written: Width of what the captioner is given of a word.
        words: Size of the vocabulary.
    """

    def __init__(self, config: MeaningConfig, seen: int, written: int, words: int) -> None:
        super().__init__()
        self.config = config
        self.picture = nn.Linear(seen, config.width)
        self.kinds = nn.Parameter(torch.zeros(len(KINDS)))
        self.words = nn.Embedding(words, config.width)
        self.plan = nn.Linear(config.width, written, bias=False)  # P
        nn.init.zeros_(self.plan.weight)

    def expect(self, seen: Tensor, labels: LabelMemory, texts: Tensor) -> Tensor:
        """Computes μ (B, width).

        Args:
            seen: v̄ (B, seen).
            labels: Of the B videos.
            texts: The vector of each class's name.
        """
        shares = self.kinds[labels.kinds] * labels.probabilities  # (B, L)
        named = torch.einsum("bl,blw->bw", shares, texts[labels.rows].to(shares.dtype))
        expected: Tensor = self.picture(seen) + named  # (6)
        return expected

    def embed_captions(self, tokens: Tensor) -> Tensor:
        """Computes e of captions (R, t), ids ended by <eos> or not at all: (R, width)."""
        written = (tokens == EOS).cumsum(1) == 0
        counts = torch.zeros(len(tokens), self.words.num_embeddings, device=tokens.device)
        counts.scatter_(1, tokens.clamp(min=0), written.to(counts.dtype))  # a word counts once
        return F.normalize(counts @ self.words.weight.float(), dim=1)  # (7)

    def judge(self, expected: Tensor, tokens: Tensor, scores: Tensor) -> Judgement:
        """Judges captions of a search.

        Args:
            expected: μ (B, width).
            tokens: (R, t) ids, the captions of a video side by side.
            scores: (R,), their log-probabilities over the length penalty.
        """
        rows = expected.repeat_interleave(len(tokens) // len(expected), 0)
        relevance = (rows.float() * self.embed_captions(tokens)).sum(1)  # (8)
        confidence = None
        if self.config.confidence is not None:
            bias, of_relevance, of_score = self.config.confidence
            confidence = torch.sigmoid(bias + of_relevance * relevance + of_score * scores)
        return Judgement(relevance + self.config.likelihood * scores, confidence)
