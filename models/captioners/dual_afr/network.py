"""dualAFR: Adaptive Feature Abstraction for Translating Video to Text.

Pu, Min, Gan, Carin (2018). Equation numbers are the paper's.

The maps of L layers of one network are aligned in space, time and width (eq. 3). One attention chooses the
place, shared by all layers (eqs. 4-5), a second the layer, the level of abstraction (eqs. 6-7); both are
soft (eq. 8) or hard (eq. 9), and hard attention is trained by a multi-sample bound (eqs. 10-16).

Where the paper is silent, or we differ:

* Time is padded by repeating the last row of a layer, so that any number of frames works and no tail is
  dropped. The layers' maps must be whole, without masked cells.
* The first word comes from h_1 = tanh(C a_{L+1}) alone and has no attention; the first cell state is zero.
* Eqs. 13 and 14 print ω_k ∇p(Y|m_k); the gradient of the bound has ω_k ∇log p(Y|m_k), and that is
  implemented (the tests compare it with finite differences).
* Hard inference takes the place and the layer of the greatest weight.
* a_L is aligned by a 1 × 1 × 1 convolution where its width is not ``channels`` (the demo recipe).
* ``weight_range`` is the paper's U(-0.01, 0.01) with zero biases and orthogonal recurrence; None leaves
  torch's own initial weights, with which short trainings get further.
* Attention width and dropout (on words and output) are not given; words may be tied to the output.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extractors.preprocessing.images import Edges
from models.caption import ExplanationPart, NamedChoice, WeightsExplanation
from models.captioner import CaptionSteps, as_numpy, without_nothing
from models.captioners.attention_layers import AdditiveAttention, expand_to_rows, masked_softmax, weighted_sum
from models.captioners.dual_afr.alignment import build_alignment, find_aligned_edges, split_into_steps
from models.captioners.dual_afr.config import DualAFRConfig
from models.captioners.recurrent import RecurrentCaptioner
from models.inputs import Batch, average_frames
from models.likelihood import CaptionLikelihoods, teacher_force
from models.memory import Memory, State, StepAttention
from models.training_phase import PhaseBatch, PhaseLoss, PhaseSpec
from models.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class DualAFRMemory(Memory):
    """Holds L aligned layers over M slots of N cells. ``times`` (B, M, 2) are a_L's."""

    a: Tensor  # (B, M, N, L·C): at each place the vector that stacks all layers
    keys: Tensor  # (B, M, N, A)
    mask: Tensor  # (B, M)
    h_1: Tensor  # (B, H)

    @property
    def moments(self) -> Tensor:
        return self.mask.sum(1)


@dataclass(frozen=True, eq=False)
class DualAFRState(State):
    """Carries the decoder's LSTM; before the first word ``h`` is h_1 and asks for no attention."""

    h: Tensor  # (R, H)
    c: Tensor  # (R, H)
    before_first: bool


@dataclass(frozen=True, eq=False)
class MultiSampleBound:
    """Holds the bound of each caption, both (captions,)."""

    surrogate: Tensor  #: to be descended, its gradient is eq. 14 negated.
    value: Tensor  #: L^K of eq. 12.


@dataclass(frozen=True, eq=False)
class MultiSampleLoss:
    """Holds the loss in nats a word: ``surrogate`` is descended, ``bound`` is -L^K, to be read."""

    surrogate: Tensor
    bound: Tensor


def multi_sample_bound(log_p: Tensor, log_m: Tensor) -> MultiSampleBound:
    """Computes the multi-sample bound of K draws a caption (eqs. 12 and 14 to 16).

    log_p: log p(Y|m_k), log_m: log p(m_k), both (captions, K) with gradient.
    """
    fixed, samples = log_p.detach(), log_p.shape[1]
    value = fixed.logsumexp(1) - math.log(samples)
    others = (fixed.sum(1, keepdim=True) - fixed) / (samples - 1)  # log f of eq. 16
    replaced = fixed.unsqueeze(1).repeat(1, samples, 1)
    replaced.diagonal(dim1=1, dim2=2).copy_(others)
    signal = value.unsqueeze(1) - (replaced.logsumexp(2) - math.log(samples))  # L̂ of eq. 15
    omega = fixed.softmax(1)
    return MultiSampleBound(-(signal * log_m + omega * log_p).sum(1), value)


class DualAFR(RecurrentCaptioner):
    """Writes captions from layers of one network, choosing place and level of abstraction word by word."""

    name = "dual_afr"
    config: DualAFRConfig
    config_class = DualAFRConfig

    def __init__(self, config: DualAFRConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        C, A, H, E, size = config.channels, config.attention, config.hidden, config.words, len(vocabulary)
        self.align = nn.ModuleList([build_alignment(config.alignment, layer, C) for layer in config.layers])
        self.C = nn.Linear(config.top.width, H)
        self.attention_alpha = AdditiveAttention(H, C * len(config.layers), A)
        self.attention_beta = AdditiveAttention(H, C, A)
        self.word_embedding = nn.Embedding(size, E)
        self.decoder = nn.LSTMCell(E + C, H)
        self.project = nn.Linear(H, E) if config.tie_words else nn.Identity()
        self.output = nn.Linear(E if config.tie_words else H, size)
        self.dropout = nn.Dropout(config.dropout)
        if config.weight_range is not None:
            self._initialise(config.weight_range)
        nn.init.normal_(self.word_embedding.weight, std=E**-0.5)
        if config.tie_words:
            self.output.weight = self.word_embedding.weight

    def _initialise(self, weight_range: float) -> None:
        for parameter in self.parameters():
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -weight_range, weight_range)
        for gate in self.decoder.weight_hh.chunk(4):
            nn.init.orthogonal_(gate)

    def encode_batches(self, batches: Sequence[Batch]) -> DualAFRMemory:
        """Encodes one batch a stream of ``config.streams``."""
        by_name = dict(zip((s.name for s in self.config.streams), batches, strict=True))
        layers = [split_into_steps(by_name[layer.name], layer.side) for layer in self.config.layers]
        slots = torch.stack([self._slots(i, batch) for i, batch in enumerate(layers)]).amax(0)
        # of the batch's rows, however many are masked: to ask a GPU for the most slots would wait for it
        pools = [layer.pool[0] for layer in self.config.layers]
        count = max(-(-each.values.shape[1] // pool) for each, pool in zip(layers, pools, strict=True))
        mask = torch.arange(count, device=slots.device) < slots.unsqueeze(1)
        aligned = [
            align(_repeat_last(batch, slots, layer.pool[0], count))
            for align, batch, layer in zip(self.align, layers, self.config.layers, strict=True)
        ]
        a = torch.cat(aligned, 3) * mask.view(*mask.shape, 1, 1)
        last = (layers[-1].frame_mask.sum(1, keepdim=True) - 1).clamp(min=0)
        rows = torch.minimum(torch.arange(count, device=slots.device), last)
        return DualAFRMemory(
            times=layers[-1].times.gather(1, rows.unsqueeze(2).expand(-1, -1, 2)),
            a=a,
            keys=self.attention_alpha.make_keys(a),
            mask=mask,
            h_1=torch.tanh(self.C(average_frames(by_name[self.config.top.name]))),
        )

    @property
    def needs_all_cells(self) -> bool:
        return True  # they are aligned by convolutions

    def map_edges(self, stream: str, side: int) -> Edges:  # noqa: ARG002 - its own configuration says both
        """Returns the edges of the cells that a_L has after its alignment, which attention is over."""
        return find_aligned_edges(self.config.alignment, self.config.layers[-1])

    def _slots(self, layer: int, batch: Batch) -> Tensor:
        """Counts (B,) the slots that a layer's rows fill, the last perhaps in part."""
        ratio = self.config.layers[layer].pool[0]
        return (batch.frame_mask.sum(1) + ratio - 1).div(ratio, rounding_mode="floor").clamp(min=1)

    def explain(self, caption: CaptionSteps) -> Sequence[ExplanationPart]:
        """Shows the layers' weights β (eq. 7) for each word but the first."""
        names = [layer.name for layer in self.config.layers]
        levels = [_describe_level(place, len(names)) for place in range(len(names))]
        return [
            WeightsExplanation(
                name="layers",
                title="Levels of detail",
                note=f"Each word weighs the layers {', '.join(names)}.",
                over="choices",
                choices=[NamedChoice(name=n, title=level) for n, level in zip(names, levels, strict=True)],
                words=without_nothing(as_numpy(caption.steps.extras["layers"])),
                absent="The first word comes from the film as a whole.",
            )
        ]

    def start(self, memory: DualAFRMemory, rows_per_video: int) -> DualAFRState:
        h = memory.h_1.repeat_interleave(rows_per_video, 0)
        return DualAFRState(h, torch.zeros_like(h), before_first=True)

    def advance(
        self, state: DualAFRState, embedded: Tensor, memory: DualAFRMemory
    ) -> tuple[Tensor, DualAFRState, StepAttention | None]:
        # eqs. 4 to 9; the first word comes from h_1 alone
        h, c, attention = state.h, state.c, None
        if not state.before_first:
            z, attention = self._attend(state.h, memory)
            h, c = self.decoder(torch.cat([embedded, z], 1), (state.h, state.c))
        return h, DualAFRState(h, c, before_first=False), attention

    def _attend(self, h: Tensor, memory: DualAFRMemory) -> tuple[Tensor, StepAttention]:
        """Computes z_t = φ(h_{t-1}, a_1..a_L), (R, C)."""
        scores = self.attention_alpha.score(h, memory.keys)  # eq. 4, (R, M, N)
        mask = expand_to_rows(memory.mask, h).unsqueeze(2).expand_as(scores)
        alpha = masked_softmax(scores.flatten(1), mask.flatten(1))  # eq. 5
        place, log_place = self._psi(alpha)
        s = weighted_sum(place, memory.a.flatten(1, 2)).view(h.shape[0], -1, self.config.channels)
        beta = masked_softmax(
            self.attention_beta.score(h, self.attention_beta.make_keys(s)), None
        )  # eqs. 6, 7
        layer, log_layer = self._psi(beta)
        z = torch.bmm(layer.to(s.dtype).unsqueeze(1), s).squeeze(1)
        extras = {"layers": beta}
        if log_place is not None and log_layer is not None:
            extras["log_m"] = log_place + log_layer
        temporal = alpha.view_as(scores).sum(2)
        return z, StepAttention(temporal, masked_softmax(scores, mask), extras)

    def _psi(self, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """ψ's weights (R, n): soft as they are (eq. 8), or one of them (eq. 9) and its log-probability."""
        if self.config.kind == "soft":
            return weights, None
        index = self.draw(weights) if self.training else weights.argmax(1)
        m = F.one_hot(index, weights.shape[1]).to(weights.dtype)
        if not self.training:
            return m, None
        return m, weights.gather(1, index.unsqueeze(1)).squeeze(1).clamp(min=1e-30).log()

    def draw(self, weights: Tensor) -> Tensor:
        """Draws m ~ Mult(1, weights): weights (R, n) → (R,) indices."""
        return torch.multinomial(weights.detach(), 1).squeeze(1)

    @property
    def phases(self) -> Sequence[PhaseSpec]:
        """Lists cross-entropy, or of hard attention its multi-sample bound.

        The bound's p(Y|m) is that of the caption itself: smoothing, a teacher's words or sampled words in Y's
        place would bound something else, so it has none of them.
        """
        return (PhaseSpec() if self.config.kind == "soft" else PhaseSpec(loss=DualAFR.descend_bound),)

    def descend_bound(self, batch: PhaseBatch) -> PhaseLoss:
        """Computes the multi-sample bound of hard attention, from the true words."""
        assert isinstance(batch.memory, DualAFRMemory)
        loss = self.multi_sample_loss(batch.memory, batch.targets)
        return PhaseLoss(loss.surrogate, {"loss": loss.bound})

    def multi_sample_loss(self, memory: DualAFRMemory, targets: Tensor) -> MultiSampleLoss:
        """Computes the bound over ``config.samples`` draws a caption; hard attention in training mode alone.

        targets: (R, L) word ids, ended by <eos> and padded by -1, the captions of a video side by side.
        """
        samples = self.config.samples
        forced = teacher_force(self, memory, targets.repeat_interleave(samples, 0))
        log_p = forced.log_p.sum(1).view(-1, samples)
        bound = multi_sample_bound(log_p, _log_m(forced).view(-1, samples))
        words = (targets >= 0).sum()
        return MultiSampleLoss(bound.surrogate.sum() / words, -bound.value.sum() / words)


def _describe_level(place: int, count: int) -> str:
    """Tells in a visitor's words what a layer shows, the first being the one nearest the picture."""
    if place == 0:
        return "fine detail, edges and texture"
    if place == count - 1:
        return "whole things"
    return f"shapes and parts, level {place}" if count > 3 else "shapes and parts"


def _log_m(forced: CaptionLikelihoods) -> Tensor:
    """Computes (R,) log p(m): the draws of every word that counts."""
    total = torch.zeros_like(forced.log_p[:, 0])
    for attention, valid in zip(forced.attentions, forced.valid.unbind(1), strict=True):
        if attention is not None:
            total = total + attention.extras["log_m"] * valid
    return total


def _repeat_last(batch: Batch, slots: Tensor, ratio: int, count: int) -> Tensor:
    """Returns (B, ratio·count, N, C): a video's rows, its last one up to the end of its slots, then zeros.

    The zeros are what the convolution pads by as well, so that padding a batch changes nothing.
    """
    places = torch.arange(ratio * count, device=slots.device)
    last = (batch.frame_mask.sum(1, keepdim=True) - 1).clamp(min=0)
    videos = torch.arange(len(last), device=slots.device).unsqueeze(1)
    inside = places < ratio * slots.unsqueeze(1)
    return batch.values[videos, torch.minimum(places, last)] * inside[:, :, None, None]
