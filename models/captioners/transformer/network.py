"""Transformer: a decoder over the tokens of any streams, the baseline of today's video captioning.

The decoder is that of "Attention Is All You Need", Vaswani et al. (2017), normalised before each layer (Xiong
et al. 2020). As in SwinBERT (Lin et al., CVPR 2022) and CoCap (Shen et al., ICCV 2023) every place of every
moment is a token; unlike theirs, the features come from networks that stay as they are, so that it is trained
like the other captioners.

* A token is a cell, a box or a vector of a stream: its features by a linear of the stream, and its moment as
  sines of its share of the film. Cells have no order of their own, as in the other captioners.
* Keys and values of the tokens are computed once a video, and shared by all rows of it; those of the words
  are kept in the state. Training takes the same steps as the search.
* Reported is the last layer's attention to the first stream, the mean over its heads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.captioners.attention_layers import masked_softmax
from models.captioners.recurrent import RecurrentCaptioner
from models.captioners.transformer.config import TransformerConfig
from models.inputs import Batch
from models.memory import Memory, State, StepAttention
from models.vocabulary import Vocabulary

FREQUENCIES = 8  #: by which a moment is told from others


@dataclass(frozen=True, eq=False)
class TransformerMemory(Memory):
    """Holds the M tokens of B videos, of which the first stream's T·N come first."""

    keys: tuple[Tensor, ...]  #: one a layer, (B, heads, M, d)
    values: tuple[Tensor, ...]  #: one a layer, (B, heads, M, d)
    mask: Tensor  #: bool (B, M)
    lead: Tensor  #: bool (B, T, N), which of the first stream's tokens there are


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """Carries the words so far, as keys and values of every layer."""

    keys: Tensor  #: (R, layers, i, width)
    values: Tensor  #: (R, layers, i, width)


class DecoderLayer(nn.Module):
    """Attends to the words so far, then to the tokens, then to neither."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.before_words, self.before_tokens, self.before_forward = (nn.LayerNorm(width) for _ in range(3))
        self.word_query, self.word_key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.token_query, self.token_key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.word_output, self.token_output = nn.Linear(width, width), nn.Linear(width, width)
        self.forward_1 = nn.Linear(width, config.feed_forward)
        self.forward_2 = nn.Linear(config.feed_forward, width)
        self.dropout = nn.Dropout(config.dropout)

    def make_keys_and_values(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Computes what rows attend to: tokens (B, M, width) → twice (B, heads, M, d)."""
        keys, values = self.token_key_value(tokens).chunk(2, dim=2)
        return self._by_head(keys), self._by_head(values)

    def attend_words(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Attends to the words so far.

        Args:
            x: (R, width), the last of them.
            keys: (R, i, width), of the others.
            values: (R, i, width), of the others.

        Returns:
            x with what was attended to, and keys and values with its own behind.
        """
        normalised = self.before_words(x).unsqueeze(1)
        key, value = self.word_key_value(normalised).chunk(2, dim=2)
        keys, values = (
            torch.cat([keys, key.to(keys.dtype)], 1),
            torch.cat([values, value.to(values.dtype)], 1),
        )
        query = self._by_head(self.word_query(normalised)).to(keys.dtype)
        attended = F.scaled_dot_product_attention(query, self._by_head(keys), self._by_head(values))
        return x + self.dropout(self.word_output(attended.flatten(1))), keys, values

    def attend_tokens(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attends to the tokens of B videos.

        Args:
            x: (R, width), the rows of a video side by side.
            keys: (B, heads, M, d), of the tokens.
            values: (B, heads, M, d), of the tokens.
            mask: bool (B, M), which tokens there are.

        Returns:
            x with what was attended to, and the weights (R, M), the mean over heads.
        """
        videos, heads, count, size = keys.shape
        query = self.token_query(self.before_tokens(x)).view(videos, -1, heads, size).transpose(1, 2)
        scores = query.to(keys.dtype) @ keys.transpose(2, 3) / math.sqrt(size)  # (B, heads, rows, M)
        weights = masked_softmax(scores, mask[:, None, None])
        attended = (weights.to(values.dtype) @ values).transpose(1, 2).reshape(x.shape)
        return x + self.dropout(self.token_output(attended)), weights.mean(1).reshape(-1, count)

    def transform(self, x: Tensor) -> Tensor:
        """Transforms each row by itself: (R, width) → (R, width)."""
        hidden = self.dropout(F.relu(self.forward_1(self.before_forward(x))))
        transformed: Tensor = x + self.dropout(self.forward_2(hidden))
        return transformed

    def _by_head(self, x: Tensor) -> Tensor:
        """(B, M, width) → (B, heads, M, d)."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Transformer(RecurrentCaptioner):
    """Writes captions by a transformer decoder."""

    name = "transformer"
    config: TransformerConfig
    config_class = TransformerConfig

    def __init__(self, config: TransformerConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        width = config.width
        self.embed_tokens = nn.ModuleList(nn.Linear(each.width, width) for each in config.streams)
        self.normalise = nn.ModuleList(nn.LayerNorm(width) for _ in config.streams)
        self.embed_moment = nn.Linear(2 * FREQUENCIES, width)
        self.encoder = _build_encoder(config) if config.encoder_layers else None
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.word_embedding = nn.Embedding(len(vocabulary), width)
        self.last_norm = nn.LayerNorm(width)
        self.add_output(width)

    @property
    def optional_streams(self) -> frozenset[str]:
        return frozenset() if self.config.sound is None else frozenset({self.config.sound.name})

    def encode_batches(self, batches: Sequence[Batch]) -> TransformerMemory:
        """Makes the tokens of one batch a stream of ``inputs``."""
        end = batches[0].times[..., 1].amax(1)
        tokens = torch.cat([self._make_tokens(place, each, end) for place, each in enumerate(batches)], 1)
        mask = torch.cat([each.region_mask.flatten(1) for each in batches], 1)
        if self.encoder is not None:
            tokens = self.encoder(tokens, src_key_padding_mask=~mask)
        pairs = [layer.make_keys_and_values(tokens) for layer in self._decoder_layers()]
        keys, values = (tuple(each) for each in zip(*pairs, strict=True))
        return TransformerMemory(batches[0].times, keys, values, mask, lead=batches[0].region_mask)

    def _make_tokens(self, place: int, batch: Batch, end: Tensor) -> Tensor:
        """Makes the tokens (B, T·N, width) of one stream. end: (B,) seconds."""
        tokens: Tensor = self.normalise[place](self.embed_tokens[place](batch.values))
        share = batch.times.mean(2) / end.clamp(min=1e-6).unsqueeze(1)  # of the film, in [0, 1]
        rates = math.pi * 2.0 ** torch.arange(FREQUENCIES, device=share.device)
        moment = self.embed_moment(make_waves(share, rates).to(tokens.dtype))
        tokens = self.dropout(tokens + moment.unsqueeze(2))
        return tokens.flatten(1, 2)

    def start(self, memory: TransformerMemory, rows_per_video: int) -> TransformerState:
        shape = (memory.size * rows_per_video, self.config.layers, 0, self.config.width)
        empty = self.word_embedding.weight.new_zeros(shape)
        return TransformerState(empty, empty)

    def advance(
        self, state: TransformerState, embedded: Tensor, memory: TransformerMemory
    ) -> tuple[Tensor, TransformerState, StepAttention | None]:
        x = embedded + self._place_word(state.keys.shape[2], embedded.device).to(embedded)
        kept, weights = [], memory.mask.new_zeros(0)
        for number, layer in enumerate(self._decoder_layers()):
            x, keys, values = layer.attend_words(x, state.keys[:, number], state.values[:, number])
            x, weights = layer.attend_tokens(x, memory.keys[number], memory.values[number], memory.mask)
            x = layer.transform(x)
            kept.append((keys, values))
        keys, values = (torch.stack(each, 1) for each in zip(*kept, strict=True))
        return self.last_norm(x), TransformerState(keys, values), _attend_lead(weights, memory.lead)

    def _place_word(self, place: int, device: torch.device | None = None) -> Tensor:
        """Makes what tells the word at ``place`` of a caption from others: (width,), on the device."""
        half = self.config.width // 2
        rates = 10000.0 ** (-torch.arange(half, device=device) / half)
        return make_waves(torch.full((), float(place), device=device), rates)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


def _build_encoder(config: TransformerConfig) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        config.width, config.heads, config.feed_forward, config.dropout, batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, config.encoder_layers, enable_nested_tensor=False)


def make_waves(positions: Tensor, rates: Tensor) -> Tensor:
    """Computes sines and cosines of positions (…) at F rates: (…, 2F) float32."""
    angles = positions.float().unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


def _attend_lead(weights: Tensor, lead: Tensor) -> StepAttention:
    """Takes of weights (R, M) over all tokens those of the first stream, lead bool (B, T, N), as its maps."""
    moments, places = lead.shape[1:]
    of_lead = weights[:, : moments * places].float().view(-1, moments, places)
    temporal = of_lead.sum(2)
    spatial = of_lead / temporal.unsqueeze(2).clamp(min=torch.finfo(torch.float32).tiny)
    return StepAttention(temporal / temporal.sum(1, keepdim=True), spatial, {})
