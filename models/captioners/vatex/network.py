"""VATEX challenge 2019: captioners with no attention, temporal and spatial attention, to be fused.

"Integrating Temporal and Spatial Attentions for VATEX Video Captioning Challenge 2019", Chen, Zhao, Song, Jin
(2019). Equation numbers are the paper's.

One decoder of two LSTMs (eqs. 1-5) under three attentions: vanilla has none and reads the global vector v̄,
temporal attends to segments V^t, spatial to the objects V^o of all frames. The three are trained apart. Which
of their captions wins (section 2.3) is decided in models/combining/reranking.py.

Where the paper is silent, or we differ:

* No width is given: 512 for the LSTMs and v̄, 300 for words, 512 for attention.
* Motion is joined to the image's segments by time. Sound may be missing in any video.
* Vanilla's c_t is v̄ itself, and its reported attention is uniform over time: that is what a mean looks at.
* Dropout on v̄, memory, words and output; words tied to the output where ``tie_words`` (the demo recipe).
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.captioners.attention_layers import AdditiveAttention, expand_to_rows, masked_softmax, weighted_sum
from models.captioners.recurrent import RecurrentCaptioner
from models.captioners.vatex.config import SpatialVatexConfig, VatexConfig
from models.inputs import Batch, average_frames, average_regions, find_nearest_rows, gather_rows
from models.memory import Memory, State, StepAttention
from models.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class VatexMemory(Memory):
    """Holds T rows of N things to attend to: segments (N = 1) or objects; nothing wide for vanilla."""

    v: Tensor  # (B, d): v̄
    x: Tensor  # (B, T, N, d): V^t or V^o
    keys: Tensor  # (B, T, N, A)
    mask: Tensor  # (B, T, N)


@dataclass(frozen=True, eq=False)
class VatexState(State):
    """Carries both LSTMs: the attention's and the words'."""

    h_1: Tensor  # (R, H)
    c_1: Tensor
    h_2: Tensor
    c_2: Tensor


class TwoLayerCaptioner(RecurrentCaptioner):
    """Decodes by two LSTMs (eqs. 1 to 5); a subclass chooses what is attended to."""

    config: VatexConfig
    config_class = VatexConfig

    def __init__(self, config: VatexConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        d, H, E, size = config.embedded, config.hidden, config.words, len(vocabulary)
        self.embed_global = nn.Linear(sum(stream.width for stream in config.pooled), d)
        self.attends = self.memory_width() > 0
        if self.attends:
            self.embed_memory = nn.Linear(self.memory_width(), d)
            self.attention = AdditiveAttention(H, d, config.attention)
        self.word_embedding = nn.Embedding(size, E)
        self.lstm_1, self.lstm_2 = nn.LSTMCell(d + E + H, H), nn.LSTMCell(d + H, H)
        self.add_output(H)

    @abstractmethod
    def memory_width(self) -> int:
        """Width of what is attended to, before its linear; 0 for nothing."""

    @abstractmethod
    def collect(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        """Collects what is attended to: values (B, T, N, C) and mask bool (B, T, N)."""

    @property
    def optional_streams(self) -> frozenset[str]:
        return frozenset() if self.config.audio is None else frozenset({self.config.audio.name})

    def encode_batches(self, batches: Sequence[Batch]) -> VatexMemory:
        """Encodes one batch a stream of ``config.streams``."""
        by_name = dict(zip((s.name for s in self.config.streams), batches, strict=True))
        pooled = torch.cat([average_frames(by_name[stream.name]) for stream in self.config.pooled], 1)
        values, mask = self.collect(by_name)
        x = keys = values[..., :0]
        if self.attends:
            x = self.dropout(self.embed_memory(values)) * mask.unsqueeze(3)
            keys = self.attention.make_keys(x)
        v = self.dropout(self.embed_global(pooled))
        return VatexMemory(times=batches[0].times, v=v, x=x, keys=keys, mask=mask)

    def start(self, memory: VatexMemory, rows_per_video: int) -> VatexState:
        rows = memory.size * rows_per_video
        zero = self.word_embedding.weight.new_zeros(rows, self.config.hidden)
        return VatexState(zero, zero, zero, zero)

    def advance(
        self, state: VatexState, embedded: Tensor, memory: VatexMemory
    ) -> tuple[Tensor, VatexState, StepAttention | None]:
        # eqs. 1 to 5
        w = embedded
        v = expand_to_rows(memory.v, w)
        h_1, c_1 = self.lstm_1(torch.cat([v, w, state.h_2], 1), (state.h_1, state.c_1))  # eq. 1
        context, attention = self._attend(h_1, v, memory)
        h_2, c_2 = self.lstm_2(torch.cat([context, h_1], 1), (state.h_2, state.c_2))  # eq. 4
        return h_2, VatexState(h_1, c_1, h_2, c_2), attention

    def _attend(self, h_1: Tensor, v: Tensor, memory: VatexMemory) -> tuple[Tensor, StepAttention]:
        """Computes c_t (R, d) by eqs. 2 and 3."""
        mask = expand_to_rows(memory.mask, h_1)
        if not self.attends:
            frames = mask.any(2).float()
            return v, StepAttention(frames / frames.sum(1, keepdim=True).clamp(min=1), None, {})
        scores = self.attention.score(h_1, memory.keys)
        alpha = masked_softmax(scores.flatten(1), mask.flatten(1))
        context = weighted_sum(alpha, memory.x.flatten(1, 2))
        spatial = None if mask.shape[2] == 1 else masked_softmax(scores, mask)
        return context, StepAttention(alpha.view_as(scores).sum(2), spatial, {})


class VanillaCaptioner(TwoLayerCaptioner):
    """Attends to nothing: c_t = v̄."""

    name = "vanilla"

    def memory_width(self) -> int:
        return 0

    def collect(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        image = batches[self.config.image.name]
        return average_regions(image).unsqueeze(2), image.frame_mask.unsqueeze(2)


class TemporalCaptioner(TwoLayerCaptioner):
    """Attends to segments, [image; motion] each."""

    name = "temporal"

    def memory_width(self) -> int:
        return self.config.image.width + (0 if self.config.motion is None else self.config.motion.width)

    def collect(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        image = batches[self.config.image.name]
        segments = average_regions(image)
        if self.config.motion is not None:
            motion = batches[self.config.motion.name]
            rows = find_nearest_rows(image.times, motion.times, motion.frame_mask)
            segments = torch.cat([segments, gather_rows(average_regions(motion), rows)], 2)
        return segments.unsqueeze(2), image.frame_mask.unsqueeze(2)


class SpatialCaptioner(TwoLayerCaptioner):
    """Attends to the objects of all frames in one memory."""

    name = "spatial"
    config: SpatialVatexConfig
    config_class = SpatialVatexConfig

    def memory_width(self) -> int:
        moving = self.config.moving_objects
        return self.config.objects.width + (0 if moving is None else moving.width)

    def collect(self, batches: Mapping[str, Batch]) -> tuple[Tensor, Tensor]:
        objects = batches[self.config.objects.name]
        if self.config.moving_objects is None:
            return objects.values, objects.region_mask
        moving = batches[self.config.moving_objects.name]
        rows = find_nearest_rows(objects.times, moving.times, moving.frame_mask)
        beside = gather_rows(moving.values.flatten(2), rows).view(*rows.shape, *moving.values.shape[2:])
        return torch.cat([objects.values, beside], 3), objects.region_mask
