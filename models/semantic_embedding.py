"""Which caption wins (section 2.3 of the paper of models/fusion.py).

A video-semantic embedding, trained on the same captions, scores what any captioners wrote against the video,
and the best scored caption wins.

Where the paper is silent, or we differ:

* The embedding is in the spirit of VSE++, since no method is named: cosine of a linear of the pooled video
  and the last state of a GRU over the words, trained by the hinge on the hardest negative, margin 0.2.
* No width is given: 300 for words, 512 for the joint space.
* All beams of all captioners are candidates, not the best of each; captions that read alike count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from extractors.features import Features
from models.captioner import Captioner
from models.collate import Batch
from models.decoding import DecodingOptions, Hypothesis, decode
from models.fusion import FusionConfig
from models.streams import InputStream, collate_inputs, video_means
from models.vocabulary import EOS, Vocabulary


class SemanticEmbeddingConfig(BaseModel):
    """The video side takes the same pooled streams as v̄."""

    model_config = ConfigDict(frozen=True)

    streams: tuple[InputStream, ...] = FusionConfig().pooled
    words: int = 300
    joint: int = 512
    margin: float = 0.2
    dropout: float = 0.0

    @classmethod
    def demo(cls) -> SemanticEmbeddingConfig:
        return cls(streams=(InputStream(name="grid", width=1280),), words=160, joint=320, dropout=0.1)


class SemanticEmbedding(nn.Module):
    """Videos and sentences as unit vectors of one space, whose product is their relevance."""

    name: ClassVar[str] = "semantic_embedding"
    config_class: ClassVar[type[BaseModel]] = SemanticEmbeddingConfig

    def __init__(self, config: SemanticEmbeddingConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.video = nn.Linear(sum(stream.width for stream in config.streams), config.joint)
        self.word_embedding = nn.Embedding(len(vocabulary), config.words)
        self.gru = nn.GRU(config.words, config.joint, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, features: Sequence[Features]) -> Tensor:
        """(B, joint). A stream that a video lacks is taken as zeros, if it is not the first."""
        first, *others = self.config.streams
        device = self.word_embedding.weight.device
        batches = collate_inputs(features, [first], device)
        batches += [batch for s in others for batch in collate_inputs(features, [s], device, s.name)]
        return self.encode_batches(batches)

    def encode_batches(self, batches: Sequence[Batch]) -> Tensor:
        """One batch a stream of ``config.streams`` → (B, joint)."""
        pooled = torch.cat([video_means(batch) for batch in batches], 1)
        return F.normalize(self.video(self.dropout(pooled)).float(), dim=1)

    def sentences(self, words: Tensor) -> Tensor:
        """words: (S, L) ids ended by <eos> and padded by -1 → (S, joint)."""
        states, _ = self.gru(self.dropout(self.word_embedding(words.clamp(min=0))))
        last = (words >= 0).sum(1) - 1
        return F.normalize(states[torch.arange(len(words), device=words.device), last].float(), dim=1)

    def loss(self, videos: Tensor, sentences: Tensor) -> Tensor:
        """Max of hinges: videos (B, joint), sentences (B·K, joint), those of a video side by side.

        For each true pair the most relevant other sentence of the video and the most relevant other
        video of the sentence; other captions of the same video are no negatives.
        """
        relevance = videos @ sentences.T  # (B, S)
        owner = torch.arange(len(videos), device=videos.device).repeat_interleave(
            len(sentences) // len(videos)
        )
        own = F.one_hot(owner, len(videos)).T.bool()
        true = relevance.gather(0, owner.unsqueeze(0)).squeeze(0)  # (S,)
        others = relevance.masked_fill(own, -torch.inf)
        margin = self.config.margin - true
        by_sentence = (margin + others.amax(1)[owner]).relu()
        by_video = (margin + others.amax(0)).relu()
        return (by_sentence + by_video).mean()


@dataclass(frozen=True, eq=False)
class Candidate:
    """A caption that competes: whose it is, its place among theirs (0 = best), its relevance (a cosine)."""

    captioner: str
    beam: int
    words: tuple[str, ...]
    hypothesis: Hypothesis
    relevance: float


@dataclass(frozen=True, eq=False)
class Fused:
    """All candidates of one video, the most relevant first."""

    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The winner. Its attention, where it has one, carries all relevances as ``candidates`` (L, n)."""
        best = self.candidates[0]
        looked = best.hypothesis.attention
        if looked is None:
            return best
        scores = torch.tensor([candidate.relevance for candidate in self.candidates])
        extras = {**looked.extras, "candidates": scores.expand(len(best.words), -1)}
        return replace(best, hypothesis=replace(best.hypothesis, attention=replace(looked, extras=extras)))


class Fusion:
    """Any captioners, of any vocabularies, and the embedding that chooses among what they write."""

    def __init__(self, members: Mapping[str, Captioner[Any, Any]], embedding: SemanticEmbedding) -> None:
        if not members:
            raise ValueError("a fusion needs at least one captioner")
        self.members, self.embedding = members, embedding

    def caption(
        self, features: Sequence[Features], options: DecodingOptions, candidates: int = 5
    ) -> list[Fused]:
        """``candidates`` captions of each member compete. Raises ValueError where ``options`` allow fewer."""
        options = replace(options, num_captions=candidates)
        written = {
            name: decode(member, member.encode(features), options) for name, member in self.members.items()
        }
        with torch.no_grad():
            return self.choose(self.embedding.encode(features), written)

    def choose(self, videos: Tensor, written: Mapping[str, Sequence[Sequence[Hypothesis]]]) -> list[Fused]:
        """videos: (B, joint) embedded; written: by member, what it decoded for each video."""
        by_video = [{name: decoded[i] for name, decoded in written.items()} for i in range(len(videos))]
        rivals = [self._distinct(decoded) for decoded in by_video]
        counts = torch.tensor([len(of_video) for of_video in rivals], device=videos.device)
        sentences = self._sentences([rival.words for of_video in rivals for rival in of_video])
        relevance = iter((sentences * videos.repeat_interleave(counts, 0)).sum(1).tolist())
        return [Fused(_ranked([replace(r, relevance=next(relevance)) for r in rs])) for rs in rivals]

    def _distinct(self, decoded: Mapping[str, Sequence[Hypothesis]]) -> list[Candidate]:
        """One video's candidates, not yet scored; a caption that reads like an earlier one is left out."""
        found: dict[tuple[str, ...], Candidate] = {}
        for name, hypotheses in decoded.items():
            for beam, hypothesis in enumerate(hypotheses):
                words = tuple(self.members[name].vocabulary.decode(hypothesis.tokens))
                found.setdefault(words, Candidate(name, beam, words, hypothesis, 0.0))
        return list(found.values())

    def _sentences(self, captions: Sequence[Sequence[str]]) -> Tensor:
        """(S, joint) of S captions."""
        rows = [[*self.embedding.vocabulary.encode(words), EOS] for words in captions]
        longest = max(len(row) for row in rows)
        ids = torch.tensor([row + [-1] * (longest - len(row)) for row in rows])
        return self.embedding.sentences(ids.to(self.embedding.word_embedding.weight.device))


def _ranked(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    return tuple(sorted(candidates, key=lambda candidate: -candidate.relevance))
