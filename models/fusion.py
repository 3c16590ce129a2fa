"""Fusion: integrating temporal and spatial attentions for VATEX video captioning, challenge 2019.

Chen, Zhao, Song, Jin (2019). Equation numbers are the paper's.

One decoder of two LSTMs (eqs. 1-5) under three attentions: vanilla has none and reads the global vector v̄,
temporal attends to segments V^t, spatial to the objects V^o of all frames. The three are trained apart. A
video-semantic embedding, trained on the same captions, scores what any captioners wrote against the video,
and the best scored caption wins (section 2.3).

Where the paper is silent, or we differ:

* No width is given: 512 for the LSTMs and v̄, 300 for words, 512 for attention and the joint space.
* Motion is joined to the image's segments by time. Sound may be missing in any video.
* Vanilla's c_t is v̄ itself, and its reported attention is uniform over time: that is what a mean looks at.
* The embedding is in the spirit of VSE++, since no method is named: cosine of a linear of the pooled video
  and the last state of a GRU over the words, trained by the hinge on the hardest negative, margin 0.2.
* All beams of all captioners are candidates, not the best of each; captions that read alike count once.
* Dropout on v̄, memory, words and output; words tied to the output where ``tie_words`` (the demo recipe).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from extractors.features import Features
from models.attention import AdditiveAttention, masked_softmax, per_row, weighted_sum
from models.captioner import Captioner, Memory, State, StepAttention
from models.collate import Batch
from models.decoding import DecodingOptions, Hypothesis, decode
from models.streams import (
    InputStream,
    collate_inputs,
    distinct,
    frame_means,
    nearest_rows,
    on_clock,
    video_means,
)
from models.vocabulary import EOS, Vocabulary


class FusionConfig(BaseModel):
    """The vanilla and the temporal captioner's. Widths are ours, the paper gives none."""

    model_config = ConfigDict(frozen=True)

    image: InputStream = InputStream(name="resnext101", width=2048)
    motion: InputStream | None = InputStream(name="ir_csn", width=2048)
    audio: InputStream | None = InputStream(name="vggish", width=128)
    hidden: int = 512
    embedded: int = 512
    words: int = 300
    attention: int = 512
    dropout: float = 0.5
    tie_words: bool = False

    @property
    def pooled(self) -> tuple[InputStream, ...]:
        """What v̄ is made of."""
        return tuple(stream for stream in (self.image, self.motion, self.audio) if stream is not None)

    @property
    def streams(self) -> tuple[InputStream, ...]:
        """In the order of ``encode_batches``; attention is reported on the first one's clock."""
        return distinct(*self.pooled)

    @classmethod
    def demo(cls) -> Self:
        """Under 3 million parameters, over the image net's cells or their means."""
        return cls(
            image=InputStream(name="grid", width=1280),
            motion=None,
            audio=None,
            hidden=224,
            embedded=224,
            words=192,
            attention=128,
            dropout=0.3,
            tie_words=True,
        )


class SpatialConfig(FusionConfig):
    """The spatial captioner's, whose objects lead the clock.

    moving_objects: the same boxes on the motion network's map, where that is a stream of its own.
    """

    objects: InputStream = InputStream(name="mask_rcnn_roi", width=4096)
    moving_objects: InputStream | None = None

    @property
    def streams(self) -> tuple[InputStream, ...]:
        return distinct(self.objects, self.moving_objects, *self.pooled)

    @classmethod
    def demo(cls) -> Self:
        return super().demo().model_copy(update={"objects": InputStream(name="grid", width=1280)})


@dataclass(frozen=True, eq=False)
class FusionMemory(Memory):
    """T rows of N things to attend to: segments (N = 1) or objects; nothing wide for vanilla."""

    v: Tensor  # (B, d): v̄
    x: Tensor  # (B, T, N, d): V^t or V^o
    keys: Tensor  # (B, T, N, A)
    mask: Tensor  # (B, T, N)


@dataclass(frozen=True, eq=False)
class FusionState(State):
    """Both LSTMs: the attention's and the words'."""

    h_1: Tensor  # (R, H)
    c_1: Tensor
    h_2: Tensor
    c_2: Tensor


class TwoLayerCaptioner(Captioner[FusionMemory, FusionState]):
    """Eqs. 1 to 5; a subclass says what is attended to."""

    config: FusionConfig
    config_class = FusionConfig

    def __init__(self, config: FusionConfig, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self.config = config
        d, H, E, size = config.embedded, config.hidden, config.words, len(vocabulary)
        self.embed_global = nn.Linear(sum(stream.width for stream in config.pooled), d)
        self.attends = self.memory_width() > 0
        if self.attends:
            self.embed_memory = nn.Linear(self.memory_width(), d)
            self.attention = AdditiveAttention(H, d, config.attention)
        self.word_embedding = nn.Embedding(size, E)
        self.lstm_1, self.lstm_2 = nn.LSTMCell(d + E + H, H), nn.LSTMCell(d + H, H)
        self.project = nn.Linear(H, E) if config.tie_words else nn.Identity()
        self.output = nn.Linear(E if config.tie_words else H, size)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.word_embedding.weight, std=E**-0.5)
        if config.tie_words:
            self.output.weight = self.word_embedding.weight

    @abstractmethod
    def memory_width(self) -> int:
        """Of what is attended to, before its linear; 0 for nothing."""

    @abstractmethod
    def attended(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        """What is attended to: values (B, T, N, C) and mask (B, T, N)."""

    def encode(self, features: Sequence[Features]) -> FusionMemory:
        device, audio = self.word_embedding.weight.device, self.config.audio
        optional = "" if audio is None else audio.name
        return self.encode_batches(collate_inputs(features, self.config.streams, device, optional))

    def encode_batches(self, batches: Sequence[Batch]) -> FusionMemory:
        """One batch a stream of ``config.streams``."""
        by_name = dict(zip((s.name for s in self.config.streams), batches, strict=True))
        pooled = torch.cat([video_means(by_name[stream.name]) for stream in self.config.pooled], 1)
        values, mask = self.attended(by_name)
        x = keys = values[..., :0]
        if self.attends:
            x = self.dropout(self.embed_memory(values)) * mask.unsqueeze(3)
            keys = self.attention.keys(x)
        v = self.dropout(self.embed_global(pooled))
        return FusionMemory(times=batches[0].times, v=v, x=x, keys=keys, mask=mask)

    def start(self, memory: FusionMemory, rows_per_video: int) -> FusionState:
        rows = memory.size * rows_per_video
        zero = self.word_embedding.weight.new_zeros(rows, self.config.hidden)
        return FusionState(zero, zero, zero, zero)

    def step(
        self, state: FusionState, word: Tensor, memory: FusionMemory
    ) -> tuple[Tensor, FusionState, StepAttention | None]:
        w = self.dropout(self.word_embedding(word) * self.config.words**0.5)
        v = per_row(memory.v, word)
        h_1, c_1 = self.lstm_1(torch.cat([v, w, state.h_2], 1), (state.h_1, state.c_1))  # eq. 1
        context, attention = self._attend(h_1, v, memory)
        h_2, c_2 = self.lstm_2(torch.cat([context, h_1], 1), (state.h_2, state.c_2))  # eq. 4
        logits = self.output(self.project(self.dropout(h_2)))  # eq. 5
        return logits.float().log_softmax(1), FusionState(h_1, c_1, h_2, c_2), attention

    def _attend(self, h_1: Tensor, v: Tensor, memory: FusionMemory) -> tuple[Tensor, StepAttention]:
        """c_t (R, d); eqs. 2 and 3."""
        mask = per_row(memory.mask, h_1)
        if not self.attends:
            frames = mask.any(2).float()
            return v, StepAttention(frames / frames.sum(1, keepdim=True).clamp(min=1), None, {})
        scores = self.attention.scores(h_1, memory.keys)
        alpha = masked_softmax(scores.flatten(1), mask.flatten(1))
        context = weighted_sum(alpha, memory.x.flatten(1, 2))
        spatial = None if mask.shape[2] == 1 else masked_softmax(scores, mask)
        return context, StepAttention(alpha.view_as(scores).sum(2), spatial, {})


class Vanilla(TwoLayerCaptioner):
    """No attention: c_t = v̄."""

    name = "vanilla"

    def memory_width(self) -> int:
        return 0

    def attended(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        image = batches[self.config.image.name]
        return frame_means(image).unsqueeze(2), image.frame_mask.unsqueeze(2)


class Temporal(TwoLayerCaptioner):
    """Attention over segments, [image; motion] each."""

    name = "temporal"

    def memory_width(self) -> int:
        return self.config.image.width + (0 if self.config.motion is None else self.config.motion.width)

    def attended(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        image = batches[self.config.image.name]
        segments = frame_means(image)
        if self.config.motion is not None:
            motion = batches[self.config.motion.name]
            rows = nearest_rows(image.times, motion.times, motion.frame_mask)
            segments = torch.cat([segments, on_clock(frame_means(motion), rows)], 2)
        return segments.unsqueeze(2), image.frame_mask.unsqueeze(2)


class Spatial(TwoLayerCaptioner):
    """Attention over the objects of all frames in one memory."""

    name = "spatial"
    config: SpatialConfig
    config_class = SpatialConfig

    def memory_width(self) -> int:
        moving = self.config.moving_objects
        return self.config.objects.width + (0 if moving is None else moving.width)

    def attended(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        objects = batches[self.config.objects.name]
        if self.config.moving_objects is None:
            return objects.values, objects.region_mask
        moving = batches[self.config.moving_objects.name]
        rows = nearest_rows(objects.times, moving.times, moving.frame_mask)
        beside = on_clock(moving.values.flatten(2), rows).view(*rows.shape, *moving.values.shape[2:])
        return torch.cat([objects.values, beside], 3), objects.region_mask


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
