"""Scores how well a caption fits a video (section 2.3 of the paper in models/captioners/vatex).

A video-semantic embedding, trained on the same captions, scores what any captioners wrote against the video;
models/combining/reranking.py lets the best caption win.

Where the paper is silent, or we differ:

* The embedding is in the spirit of VSE++, since no method is named: cosine of a linear of the pooled video
  and the last state of a GRU over the words, trained by the hinge on the hardest negative, margin 0.2
  (lab/pictures/embedding.py).
* No width is given: 300 for words, 512 for the joint space.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel
from torch import Tensor, nn

from extractors.features import Features
from models.inputs import Batch, InputStream, average_frames, collate_inputs
from models.vocabulary import Vocabulary


class SemanticEmbeddingConfig(BaseModel, frozen=True):
    """Configures the embedding. The video side takes the same pooled streams as v̄."""

    streams: tuple[InputStream, ...] = (
        InputStream(name="resnext101", width=2048),
        InputStream(name="ir_csn", width=2048),
        InputStream(name="vggish", width=128),
    )
    words: int = 300
    joint: int = 512
    margin: float = 0.2
    dropout: float = 0.0


class SemanticEmbedding(nn.Module):
    """Embeds videos and sentences as unit vectors of one space, whose product is their relevance."""

    name: ClassVar[str] = "semantic_embedding"
    config_class: ClassVar[type[SemanticEmbeddingConfig]] = SemanticEmbeddingConfig

    def __init__(self, config: SemanticEmbeddingConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.video = nn.Linear(sum(stream.width for stream in config.streams), config.joint)
        self.word_embedding = nn.Embedding(len(vocabulary), config.words)
        self.gru = nn.GRU(config.words, config.joint, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def inputs(self) -> Sequence[InputStream]:
        return self.config.streams

    def encode(self, features: Sequence[Features]) -> Tensor:
        """Embeds videos: (B, joint). A stream that a video lacks is zeros, if it is not the first."""
        first, *others = self.config.streams
        device = self.word_embedding.weight.device
        batches = collate_inputs(features, [first], device)
        batches += [batch for s in others for batch in collate_inputs(features, [s], device, (s.name,))]
        return self.encode_batches(batches)

    def encode_batches(self, batches: Sequence[Batch]) -> Tensor:
        """Embeds one batch a stream of ``config.streams`` → (B, joint)."""
        pooled = torch.cat([average_frames(batch) for batch in batches], 1)
        return F.normalize(self.video(self.dropout(pooled)).float(), dim=1)

    def encode_sentences(self, words: Tensor) -> Tensor:
        """Embeds words (S, L), ids ended by <eos> and padded by -1 → (S, joint)."""
        states, _ = self.gru(self.dropout(self.word_embedding(words.clamp(min=0))))
        last = (words >= 0).sum(1) - 1
        return F.normalize(states[torch.arange(len(words), device=words.device), last].float(), dim=1)
