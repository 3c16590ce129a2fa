"""STaTS: Spatio-Temporal Ranked-Attention Networks for Video Captioning.

Cherian, Wang, Hori, Marks (2020). Equation numbers are the paper's.

Two branches read the same features x (T frames, N regions, width d) under a query h of the words
so far. ST attends to regions first and then follows them through time (eqs. 3-8); TS picks a frame
first and then attends to regions inside it (eqs. 9-11). A third attention weighs the branches (eq. 12).

Where the paper is silent, or we differ:

* eq. 3 on a grid scores the mean over time of each cell, once for all frames; boxes have no place in
  common, so they are scored in every frame.
* "mean-pooling + ranked attention" (Table 2) is the sum of a linear of each; the ranking loss
  (eqs. 6-7) sees the LSTM's output before the mean is added. Margin β = 1. ``pooling`` has the table's
  other rows; its two with an LSTM are ranked attention trained without the ranking loss.
* The low-temperature softmax of eq. 9 becomes the exact argmax at inference.
* Every stream has its own STaTS; their x̂ are concatenated. A class label (``classes`` of them) is a learned
  embedding, with a row for "unknown", appended to the decoder's input. It comes as one more stream
  (models/video_category.py). In training ``class_dropout`` of the labels are dropped, so that "unknown" is
  learned too.
* The map that is reported for a word is the two branches' maps weighed as eq. 12 weighs the branches:
  what the word was really made from. (The paper's figures show TS's alone.)
* The query of every attention is W[h_{i-1}; self-attention over w_1..w_{i-1}].
* The decoder is one LSTM; its output is projected to the words' width and scored against the word
  embedding itself where ``tie_words`` is set (the demo recipe: it halves the model).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.caption import ExplanationPart, NamedChoice, WeightsExplanation
from models.captioner import CaptionSteps, as_numpy, rounded
from models.captioners.attention_layers import (
    AdditiveAttention,
    expand_to_rows,
    masked_softmax,
    sum_regions,
    weighted_sum,
)
from models.captioners.recurrent import RecurrentCaptioner
from models.captioners.stats.config import Pooling, STaTSConfig, StreamConfig
from models.inputs import Batch, InputStream
from models.memory import Memory, State, StepAttention
from models.video_category import CATEGORY_INPUT, read_labels
from models.vocabulary import Vocabulary

#: What a visitor is told of the branches.
BRANCHES = [
    NamedChoice(name="ST", title="followed things through the whole film"),
    NamedChoice(name="TS", title="looked closely at one frame"),
]


@dataclass(frozen=True, eq=False)
class StreamMemory(Memory):
    """Holds one embedded stream and the keys of its four attentions, which no word changes."""

    x: Tensor  # (B, T, N, d)
    frame_mask: Tensor  # (B, T)
    region_mask: Tensor  # (B, T, N)
    st_keys: Tensor  # (B, N, A) for a grid, (B, T, N, A) for boxes; one attention for all: (B, T[, N], A)
    frame_keys: Tensor  # (B, T, A)
    ts_keys: Tensor  # (B, T, N, A)


@dataclass(frozen=True, eq=False)
class STaTSMemory(Memory):
    """Holds all streams. ``times`` (B, T, 2) are the first one's, on which the attention is reported."""

    streams: tuple[StreamMemory, ...]
    label: Tensor  # (B,) class id, 0 = unknown


@dataclass(frozen=True, eq=False)
class STaTSState(State):
    """Carries the decoder's LSTM and the words so far as keys and values of the self-attention."""

    h: Tensor  # (R, H)
    c: Tensor  # (R, H)
    word_keys: Tensor  # (R, i, A)
    word_values: Tensor  # (R, i, E)


@dataclass(frozen=True, eq=False)
class StreamStep:
    """Holds what one stream's STaTS returns for one word."""

    x_hat: Tensor  # (R, d)
    temporal: Tensor  # (R, T)
    spatial: Tensor  # (R, T, N): the two branches' maps, weighed as the branches are
    st_spatial: Tensor  # (R, N), mean over frames
    branch: Tensor  # (R, 2): ST, TS
    ranking: Tensor | None  # (R,)


class RankedAttention(nn.Module):
    """Trains an LSTM to emulate a rank-SVM over the frames (eqs. 6-8), and adds the frames' mean.

    Args:
        width: d, of the frames.
        margin: β of eq. 6.
        pooling: Leaves out the one or the other (table 2).
    """

    def __init__(self, width: int, margin: float, pooling: Pooling = "mean_ranked") -> None:
        super().__init__()
        if pooling != "mean":
            self.lstm = nn.LSTMCell(width, width)
            self.ranked = nn.Linear(width, width)
        if pooling != "ranked":
            self.mean = nn.Linear(width, width, bias=False)
        self.margin, self.pooling = margin, pooling

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Pools attended frames to x̂_ST.

        x: (R, T, d), mask: bool (R, T). Returns (R, d), and in training the ranking loss (R,).
        """
        mean = (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        if self.pooling == "mean":
            return self.mean(mean), None
        # on a GPU autocast would take float16 here, in which the gradients of the ranking loss vanish
        with torch.autocast("cuda" if x.is_cuda else "cpu", enabled=False):
            w = self._last_output(x.float(), mask)
        pooled = self.ranked(w) if self.pooling == "ranked" else self.ranked(w) + self.mean(mean)
        return pooled, self._loss(w, x, mask) if self.training else None

    def _last_output(self, x: Tensor, mask: Tensor) -> Tensor:
        """Computes ⊕ of eq. 8, all frames by one kernel. Masked frames are put behind the others, so that
        the output of the last valid one is the same without them."""
        if x.shape[1] == 1:  # the kernel lays out its weights at each call, which takes longer than a step
            output: Tensor = self.lstm(x[:, 0])[0]
            return output * mask
        counts = mask.sum(1)
        order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
        frames = x.gather(1, order.unsqueeze(2).expand_as(x))
        zero = frames.new_zeros(1, *frames.shape[::2])
        cell = self.lstm
        weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
        outputs, _, _ = torch.lstm(frames, (zero, zero), weights, True, 1, 0.0, self.training, False, True)
        last = (counts - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, outputs.shape[2])
        return outputs.gather(1, last).squeeze(1) * (counts > 0).unsqueeze(1)

    def _loss(self, w: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """Averages softplus(<w, x_{t-1}> + β - <w, x_t>) over t, eqs. 6 and 7; 0 for one frame."""
        projected = torch.einsum("rd,rtd->rt", w.float(), x.float())
        pairs = mask[:, 1:] & mask[:, :-1]
        zeta = projected[:, :-1] + self.margin - projected[:, 1:]
        return (F.softplus(zeta) * pairs).sum(1) / pairs.sum(1).clamp(min=1)


class StreamAttention(nn.Module):
    """Runs STaTS over one stream."""

    def __init__(self, stream: StreamConfig, config: STaTSConfig) -> None:
        super().__init__()
        d, attention, query = config.embedded, config.attention, config.query
        self.regions, self.branches, self.temperature = stream.regions, config.branches, config.temperature
        self.pooling = config.pooling
        self.embed = nn.Sequential(nn.Linear(stream.width, d), nn.ReLU(), nn.Dropout(config.dropout))
        self.st_attention = AdditiveAttention(query, d, attention)
        if config.pooling in ("frames", "everything"):
            self.pooled = nn.Linear(d, d)
        else:
            self.ranked = RankedAttention(d, config.margin, config.pooling)
        self.frame_attention = AdditiveAttention(query, d, attention)
        self.ts_attention = AdditiveAttention(query, d, attention)
        self.W_h = nn.Linear(query, attention, bias=False)
        self.W_ST, self.w_ST = nn.Linear(d, attention), nn.Linear(attention, 1, bias=False)
        self.W_TS, self.w_TS = nn.Linear(d, attention), nn.Linear(attention, 1, bias=False)

    def encode(self, batch: Batch) -> StreamMemory:
        """Embeds the features once and computes every key."""
        region_mask = batch.region_mask
        x = self.embed(batch.values) * region_mask.unsqueeze(-1)
        frame_mean = x.sum(2) / region_mask.sum(2, keepdim=True).clamp(min=1)  # x̄_t of eq. 9
        st_input = x
        if self.pooling == "frames":
            st_input = frame_mean
        elif self.pooling != "everything" and self.regions == "grid":
            frames = batch.frame_mask.sum(1).clamp(min=1).view(-1, 1, 1)
            st_input = x.sum(1) / frames  # x̃_j, the overestimated region of eq. 3
        return StreamMemory(
            times=batch.times,
            x=x,
            frame_mask=batch.frame_mask,
            region_mask=region_mask,
            st_keys=self.st_attention.make_keys(st_input),
            frame_keys=self.frame_attention.make_keys(frame_mean),
            ts_keys=self.ts_attention.make_keys(x),
        )

    def forward(self, h: Tensor, memory: StreamMemory) -> StreamStep:
        """Attends under the query h (R, query) by both branches and weighs them (eqs. 3-12)."""
        at_once = self.pooling in ("frames", "everything")
        x_ST, st, ranking = self._at_once(h, memory) if at_once else self._spatio_temporal(h, memory)
        x_TS, temporal, ts = self._temporo_spatial(h, memory)
        branch = self._branch(h, x_ST, x_TS)
        mixed = branch[:, :1] * x_ST + branch[:, 1:] * x_TS
        spatial = branch[:, 0, None, None] * st + branch[:, 1, None, None] * ts
        st_spatial = st.sum(1) / expand_to_rows(memory.frame_mask, h).sum(1, keepdim=True).clamp(min=1)
        return StreamStep(torch.tanh(mixed), temporal, spatial, st_spatial, branch, ranking)  # eq. 12

    def _spatio_temporal(self, h: Tensor, memory: StreamMemory) -> tuple[Tensor, Tensor, Tensor | None]:
        videos, frames, regions, width = memory.x.shape
        scores = self.st_attention.score(h, memory.st_keys)
        frame_mask = expand_to_rows(memory.frame_mask, h)
        if self.regions == "grid":
            e = masked_softmax(
                scores, expand_to_rows(memory.region_mask.any(1), h)
            )  # eq. 3, ẽ for all frames
            # frame by frame, since a product over all frames at once would copy the video at every word
            by_frame = torch.matmul(e.to(memory.x.dtype).view(videos, 1, -1, regions), memory.x)
            x = by_frame.transpose(1, 2).reshape(-1, frames, width)
            e_t = e.unsqueeze(1) * frame_mask.unsqueeze(2)
        else:
            e_t = masked_softmax(scores, expand_to_rows(memory.region_mask, h))  # eq. 3, frame by frame
            x = sum_regions(e_t, memory.x)
        x_ST, ranking = self.ranked(x, frame_mask)
        return x_ST, e_t, None if self.branches == "ts" else ranking

    def _at_once(self, h: Tensor, memory: StreamMemory) -> tuple[Tensor, Tensor, None]:
        """Computes table 2's temporal attentions, which know neither eq. 3 nor an order of the frames."""
        scores, mask = self.st_attention.score(h, memory.st_keys), expand_to_rows(memory.region_mask, h)
        e_t = mask / mask.sum(2, keepdim=True).clamp(min=1)
        if self.pooling == "frames":
            joint = masked_softmax(scores, expand_to_rows(memory.frame_mask, h)).unsqueeze(2) * e_t
        else:
            joint = masked_softmax(scores.flatten(1), mask.flatten(1)).view_as(scores)
            e_t = masked_softmax(scores, mask)
        x_ST: Tensor = self.pooled(weighted_sum(joint.flatten(1), memory.x.flatten(1, 2)))
        return x_ST, e_t, None

    def _temporo_spatial(self, h: Tensor, memory: StreamMemory) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.frame_attention.score(h, memory.frame_keys)
        temporal = masked_softmax(scores / self.temperature, expand_to_rows(memory.frame_mask, h))  # eq. 9
        scores = self.ts_attention.score(h, memory.ts_keys)
        e = masked_softmax(scores, expand_to_rows(memory.region_mask, h))  # eq. 10
        chosen = temporal
        if not self.training:
            chosen = F.one_hot(temporal.argmax(1), temporal.shape[1]).to(temporal.dtype)
        joint = (chosen.unsqueeze(-1) * e).flatten(1)
        return weighted_sum(joint, memory.x.flatten(1, 2)), temporal, e  # eq. 11

    def _branch(self, h: Tensor, x_ST: Tensor, x_TS: Tensor) -> Tensor:
        """Computes the softmax of β_1 and β_2; a single branch (the paper's ablation) gets all the weight."""
        if self.branches != "stats":
            only = h.new_tensor([1.0, 0.0] if self.branches == "st" else [0.0, 1.0])
            return only.expand(h.shape[0], 2)
        q = self.W_h(h)
        beta_1 = self.w_ST(torch.tanh(self.W_ST(x_ST) + q))
        beta_2 = self.w_TS(torch.tanh(self.W_TS(x_TS) + q))
        return torch.cat([beta_1, beta_2], 1).float().softmax(1)


class STaTS(RecurrentCaptioner):
    """Writes captions by ranked attention: streams, self-attention over words, decoder LSTM."""

    name = "stats"
    config: STaTSConfig
    config_class = STaTSConfig

    def __init__(self, config: STaTSConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        E, H, size = config.words, config.hidden, len(vocabulary)
        self.word_embedding = nn.Embedding(size, E)
        self.word_query = nn.Linear(E, config.attention, bias=False)
        self.word_key = nn.Linear(E, config.attention, bias=False)
        self.word_value = nn.Linear(E, E, bias=False)
        self.query = nn.Linear(H + E, config.query)
        self.streams = nn.ModuleList([StreamAttention(stream, config) for stream in config.streams])
        self.label = nn.Embedding(config.classes + 1, config.class_width) if config.classes else None
        attended = config.embedded * len(config.streams)
        self.decoder = nn.LSTMCell(E + attended + (config.class_width if config.classes else 0), H)
        self.add_output(H)

    @property
    def inputs(self) -> Sequence[InputStream]:
        return (*self.config.streams, CATEGORY_INPUT) if self.config.classes else self.config.streams

    @property
    def optional_streams(self) -> frozenset[str]:
        return frozenset({CATEGORY_INPUT.name}) if self.config.classes else frozenset()

    def encode_batches(self, batches: Sequence[Batch]) -> STaTSMemory:
        """Encodes one batch a stream of ``inputs``."""
        seen = batches[: len(self.config.streams)]
        streams = tuple(stream.encode(b) for stream, b in zip(self._attentions(), seen, strict=True))
        times = streams[0].times
        label = torch.zeros(times.shape[0], dtype=torch.long, device=times.device)
        if self.config.classes:
            label = read_labels(batches[-1], self.config.classes)
        if self.training and self.config.classes:
            label = label * (torch.rand(label.shape, device=label.device) >= self.config.class_dropout)
        return STaTSMemory(times=times, streams=streams, label=label)

    def explain(self, caption: CaptionSteps) -> Sequence[ExplanationPart]:
        """Shows the branches' shares of each stream in each word, and ST's map of the first."""
        branch = as_numpy(caption.steps.extras["branch"])  # (words, streams, 2)
        is_alone = len(self.config.streams) == 1
        shares = [
            WeightsExplanation(
                name="branch" if is_alone else f"branch:{stream.name}",
                title="Two ways of looking" if is_alone else f"Two ways of looking, {stream.name}",
                note="ST is the share of what was followed through time, the rest is of one frame.",
                over="choices",
                choices=BRANCHES,
                words=rounded(branch[:, place]),
            )
            for place, stream in enumerate(self.config.streams)
        ]
        followed = rounded(as_numpy(caption.steps.extras["st_spatial"][:, : caption.regions]))
        title = "Where things were followed"
        return [*shares, WeightsExplanation(name="st_spatial", title=title, over="places", words=followed)]

    def start(self, memory: STaTSMemory, rows_per_video: int) -> STaTSState:
        rows = memory.size * rows_per_video
        like = self.word_embedding.weight
        return STaTSState(
            h=like.new_zeros(rows, self.config.hidden),
            c=like.new_zeros(rows, self.config.hidden),
            word_keys=like.new_zeros(rows, 0, self.config.attention),
            word_values=like.new_zeros(rows, 0, self.config.words),
        )

    def embed_words(self, words: Tensor) -> Tensor:
        """Joins the words' vectors with their queries, keys and values of the self-attention."""
        w = super().embed_words(words)
        parts = (self.word_query(w), self.word_key(w), self.word_value(w))
        return torch.cat([w.to(parts[0].dtype), *parts], -1)

    def advance(
        self, state: STaTSState, embedded: Tensor, memory: STaTSMemory
    ) -> tuple[Tensor, STaTSState, StepAttention | None]:
        # eqs. 3 to 12
        E, A = self.config.words, self.config.attention
        w, word_query, word_key, word_value = torch.split(embedded, [E, A, A, E], 1)
        context, keys, values = self._attend_words(word_query, word_key, word_value, state)
        query = self.query(torch.cat([state.h, context], 1))
        steps = [
            attention(query, stream)
            for attention, stream in zip(self._attentions(), memory.streams, strict=True)
        ]
        inputs = [w, *(each.x_hat for each in steps)]
        if self.label is not None:
            inputs.append(self.label(expand_to_rows(memory.label, w)))
        h, c = self.decoder(torch.cat(inputs, 1), (state.h, state.c))
        return h, STaTSState(h, c, keys, values), _attention(steps)

    def _attentions(self) -> list[StreamAttention]:
        return [module for module in self.streams if isinstance(module, StreamAttention)]

    def _attend_words(
        self, query: Tensor, key: Tensor, value: Tensor, state: STaTSState
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attends with the last word to all words so far, itself included, by one head."""
        keys = torch.cat([state.word_keys, key.unsqueeze(1)], 1)
        values = torch.cat([state.word_values, value.unsqueeze(1)], 1)
        scores = torch.einsum("ra,ria->ri", query, keys) / keys.shape[2] ** 0.5
        weights = masked_softmax(scores, None).to(values.dtype)
        return torch.einsum("ri,rie->re", weights, values), keys, values


def _attention(steps: Sequence[StreamStep]) -> StepAttention:
    """Returns the first stream's maps on the captioner's clock; every stream's branch weights."""
    rankings = [each.ranking for each in steps if each.ranking is not None]
    extras: Mapping[str, Tensor] = {
        "branch": torch.stack([each.branch for each in steps], 1),
        "st_spatial": steps[0].st_spatial,
    }
    loss = torch.stack(rankings).mean(0) if rankings else None
    return StepAttention(steps[0].temporal, steps[0].spatial, extras, loss)
