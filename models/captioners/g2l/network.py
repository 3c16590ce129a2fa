"""G2L: Global2Local, a joint-hierarchical attention for video captioning.

Dai, Chen, Sun, Ji, Ye, Wu (2021). Equation numbers are the paper's.

Three attentions follow the words over all frames f and clips v (eqs. 1-4). The weights of the third,
over the aligned pairs [f'; v'], also choose K key frames through a Gumbel top-k sampler (eqs. 5-6), and
a region attention reads those frames alone (eqs. 7-9). A GRU of two layers writes the words (eqs. 10-12).

Where the paper is silent, or we differ:

* σ is ReLU (config). φ stands inside the sum of eq. 4, so padded frames are masked after it.
* Clips and regions are joined to frames by time: each frame takes the clip nearest to it, and eq. 8
  averages over the frames nearest to a region row. With the paper's strides those are its pairs and threes.
  The averages are scaled to sum to one, which eqs. 5-6 do not see.
* The sampler is hard at τ = 1e-4 and its gradient there is zero in nearly every draw, so as printed it
  trains nothing. Here the backward pass is that of a softmax at ``tau_backward``; None is the printed form.
* A frame once chosen is suppressed as a constant: the gradient of eq. 6 through the earlier choices is
  divided by π⁰ and explodes for frames that get no attention.
* The log of eq. 6 is clamped at 1e-20, in float32. λ cancels in the softmax but for that clamp.
* Noise in training only; inference takes the exact top-k, of equal frames the earlier (before the first
  word h = 0 makes the product of eq. 3 the same for all). A video of fewer than K frames gives all it has.
* The words' attention is reported on the clock of the regions.
* Dropout on features, words and output; words tied to the output where ``tie_words`` (the demo recipe).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.caption import ExplanationPart, MomentsExplanation
from models.captioner import CaptionSteps
from models.captioners.attention_layers import BilinearAttention, expand_to_rows, masked_softmax, weighted_sum
from models.captioners.g2l.config import G2LConfig, Level
from models.captioners.recurrent import RecurrentCaptioner
from models.inputs import Batch, average_regions, find_nearest_rows, gather_rows
from models.memory import Memory, State, StepAttention
from models.vocabulary import Vocabulary

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


@dataclass(frozen=True, eq=False)
class G2LMemory(Memory):
    """Holds L frames with their clips, and J region rows. ``times`` (B, J, 2) are the regions'."""

    f: Tensor  # (B, L, d)
    v: Tensor  # (B, L, d)
    aligned: Tensor  # (B, L, d_al): W_al [f'; v'], without the bias
    f_keys: Tensor  # (B, L, A)
    v_keys: Tensor  # (B, L, A)
    aligned_keys: Tensor  # (B, L, A)
    frame_mask: Tensor  # (B, L)
    averaging: Tensor  # (B, L, J): eq. 8 as a matrix
    r: Tensor  # (B, J, N, d)
    r_keys: Tensor  # (B, J, N, A)
    region_mask: Tensor  # (B, J, N)


@dataclass(frozen=True, eq=False)
class G2LState(State):
    """Carries both layers of the GRU."""

    h_1: Tensor  # (R, H)
    h_2: Tensor  # (R, H)


class GumbelTopK(nn.Module):
    """Chooses K frames almost one-hot, each choice suppressing those before it (eqs. 5 and 6)."""

    def __init__(self, config: G2LConfig) -> None:
        super().__init__()
        self.k, self.scale, self.gumbel = config.key_frames, config.scale, config.gumbel
        self.tau, self.tau_backward = config.tau, config.tau_backward

    def forward(self, pi: Tensor, mask: Tensor) -> Tensor:
        """Chooses frames: at random in training, the likeliest otherwise.

        pi: (R, J) probabilities, mask: bool (R, J). Returns (R, J), about one for each
        of the min(K, J) chosen frames.
        """
        if self.training and self.gumbel:
            return self.sample(pi.float(), mask, self.draw_noise(pi))
        # before the first word h = 0 and all frames are equal: rounded, so that the earliest are taken
        ranked = (pi * 1e6).round().masked_fill(~mask, -1).argsort(dim=1, descending=True, stable=True)
        return torch.zeros_like(pi).scatter(1, ranked[:, : self.k], 1) * mask

    def draw_noise(self, pi: Tensor) -> Tensor:
        """Draws (R, K, J) independent values of Gumbel(0, 1)."""
        draws = torch.empty(pi.shape[0], self.k, pi.shape[1], device=pi.device)
        return -draws.exponential_().log()

    def sample(self, pi: Tensor, mask: Tensor, noise: Tensor) -> Tensor:
        """Adds up the choices π¹ to π^K of eq. 6.

        Args:
            pi: (R, J) probabilities, float32.
            mask: bool (R, J), the frames that there are.
            noise: (R, K, J) of ``draw_noise``.

        Returns:
            (R, J). There is no k-th choice in a video of fewer than k frames.
        """
        chosen = torch.zeros_like(pi)
        for k in range(self.k):
            rest = self.scale * pi - self.scale * chosen.detach()
            # finite, so that a row without any frame has a gradient of 0 and not NaN
            logits = (rest.clamp(min=1e-20).log() + noise[:, k]).masked_fill(~mask, -1e30)
            there_is = (mask.sum(1, keepdim=True) > k).to(pi.dtype)
            chosen = chosen + self._choice(logits) * there_is
        return chosen

    def _choice(self, logits: Tensor) -> Tensor:
        """Returns (R, J): forward at τ, backward at ``tau_backward``."""
        hard = (logits / self.tau).softmax(1)
        if self.tau_backward is None:
            return hard
        soft = (logits / self.tau_backward).softmax(1)
        return soft + (hard - soft).detach()


class G2L(RecurrentCaptioner):
    """Writes captions from frames, clips and the regions of the key frames that each word chooses."""

    name = "g2l"
    config: G2LConfig
    config_class = G2LConfig

    def __init__(self, config: G2LConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        d, A, H, E, size = config.encoded, config.attention, config.hidden, config.words, len(vocabulary)
        self.sigma = ACTIVATIONS[config.activation]
        self.W_f = nn.Linear(config.frames.width, d)
        self.W_v = nn.Linear(config.clips.width, d)
        self.attention_2d = BilinearAttention(H, d, A)
        self.attention_3d = BilinearAttention(H, d, A)
        x_width = 2 * d
        if config.alignment or config.key_frames:
            self.attention_al = BilinearAttention(H, 2 * d, A)
        if config.alignment:
            self.W_al = nn.Linear(2 * d, config.aligned, bias=False)
            self.b_al = nn.Parameter(torch.zeros(config.aligned))
            x_width += config.aligned
        if config.key_frames:
            self.W_r = nn.Linear(config.regions.width, d)
            self.attention_l = BilinearAttention(H, d, A)
            self.sampler = GumbelTopK(config)
            x_width += d
        self.word_embedding = nn.Embedding(size, E)
        self.gru_1, self.gru_2 = nn.GRUCell(x_width + E, H), nn.GRUCell(H, H)
        self.add_output(H)

    def encode_batches(self, batches: Sequence[Batch]) -> G2LMemory:
        """Encodes one batch a stream of ``config.streams`` (eqs. 1 and 7)."""
        by_name = dict(zip((s.name for s in self.config.streams), batches, strict=True))
        frames, clips = by_name[self.config.frames.name], by_name[self.config.clips.name]
        regions = by_name[self.config.regions.name]
        f = self.dropout(self.sigma(self.W_f(average_regions(frames))))  # eq. 1
        v = self.dropout(self.sigma(self.W_v(average_regions(clips))))
        v = gather_rows(v, find_nearest_rows(frames.times, clips.times, clips.frame_mask))
        pair = torch.cat([f, v], 2)
        has_al = self.config.alignment or self.config.key_frames > 0
        nothing = f.new_zeros(*f.shape[:2], 0)
        r, r_keys = self._encode_regions(regions)
        return G2LMemory(
            times=regions.times,
            f=f,
            v=v,
            aligned=self.W_al(pair) if self.config.alignment else nothing,
            f_keys=self.attention_2d.make_keys(f),
            v_keys=self.attention_3d.make_keys(v),
            aligned_keys=self.attention_al.make_keys(pair) if has_al else nothing,
            frame_mask=frames.frame_mask,
            averaging=_averaging(frames, regions),
            r=r,
            r_keys=r_keys,
            region_mask=regions.region_mask,
        )

    def _encode_regions(self, regions: Batch) -> tuple[Tensor, Tensor]:
        """Computes r' and the keys of the local attention; nothing where there is no local branch."""
        if not self.config.key_frames:
            nothing = regions.values[..., :0]
            return nothing, nothing
        r = self.dropout(self.sigma(self.W_r(regions.values)))  # eq. 7
        return r, self.attention_l.make_keys(r)

    def explain(self, caption: CaptionSteps) -> Sequence[ExplanationPart]:
        """Shows for each word the frames that the sampler took, with the attention it took them by."""
        selected = caption.steps.extras["selected"][:, : len(caption.times)]
        weights = caption.steps.temporal.tolist()
        by_word = [
            [caption.moment(k, weights[word][k]) for k in torch.nonzero(row > 0.5).flatten().tolist()]
            for word, row in enumerate(selected)
        ]
        note = "The key frames of a word are read whatever their weights."
        return [MomentsExplanation(name="selected", title="Frames read closely", note=note, words=by_word)]

    def start(self, memory: G2LMemory, rows_per_video: int) -> G2LState:
        zero = self.word_embedding.weight.new_zeros(memory.size * rows_per_video, self.config.hidden)
        return G2LState(zero, zero)

    def advance(
        self, state: G2LState, embedded: Tensor, memory: G2LMemory
    ) -> tuple[Tensor, G2LState, StepAttention | None]:
        # eqs. 2 to 4 and 8 to 12
        h, mask = state.h_2, expand_to_rows(memory.frame_mask, state.h_2)
        a_2d = self._weights("2d", self.attention_2d.score(h, memory.f_keys), mask)  # eqs. 2, 3
        a_3d = self._weights("3d", self.attention_3d.score(h, memory.v_keys), mask)
        a_al = a_2d
        if memory.aligned_keys.shape[2]:
            a_al = self._weights("al", self.attention_al.score(h, memory.aligned_keys), mask)
        x = [weighted_sum(a_2d, memory.f), weighted_sum(a_3d, memory.v)]  # eq. 4
        if self.config.alignment:
            x.append(self._phi(a_al, memory, mask))
        x_L, attention = self._local(h, a_al, memory)
        h_1 = self.gru_1(torch.cat([*x, *x_L, embedded], 1), state.h_1)  # eqs. 10, 11
        h_2 = self.gru_2(self.dropout(h_1), state.h_2)
        return h_2, G2LState(h_1, h_2), attention

    def _phi(self, a_al: Tensor, memory: G2LMemory, mask: Tensor) -> Tensor:
        """Computes Σ_i φ(a_i [f'_i; v'_i]): W_al is linear, so it was applied once a video."""
        weighted = a_al.to(memory.aligned.dtype).unsqueeze(2) * expand_to_rows(memory.aligned, a_al)
        return (self.sigma(weighted + self.b_al) * mask.unsqueeze(2)).sum(1)

    def _local(self, h: Tensor, a_al: Tensor, memory: G2LMemory) -> tuple[list[Tensor], StepAttention]:
        """Attends to the regions of the key frames (eqs. 8 and 9)."""
        by_video = a_al.view(memory.size, -1, a_al.shape[1], 1)
        pi = (by_video * memory.averaging.unsqueeze(1)).sum(2).flatten(0, 1)  # no bmm: float32 under autocast
        pi = pi / pi.sum(1, keepdim=True).clamp(min=1e-20)
        row_mask = expand_to_rows(memory.region_mask.any(2), h)
        if not self.config.key_frames:
            return [], StepAttention(pi, None, {"selected": torch.zeros_like(pi)})
        selected = self.sampler(pi, row_mask)
        scores = self.attention_l.score(h, memory.r_keys)
        a_l = self._weights("l", scores, expand_to_rows(memory.region_mask, h))
        x_L = weighted_sum((a_l * selected.unsqueeze(2)).flatten(1), memory.r.flatten(1, 2))
        return [x_L], StepAttention(pi, a_l, {"selected": selected})

    def _weights(self, level: Level, scores: Tensor, mask: Tensor) -> Tensor:
        weights = masked_softmax(scores, mask)
        share = self.config.masked.get(level, 0.0)
        return weights if share == 0 else drop_smallest(weights, mask, share)


def drop_smallest(weights: Tensor, mask: Tensor, share: float) -> Tensor:
    """Drops the smallest weights of an attention and scales the rest to sum to one (figure 6).

    Args:
        weights: (…, N).
        mask: bool (…, N), the valid ones.
        share: Of the valid weights, in [0, 1], rounded down.

    Returns:
        (…, N).
    """
    rank = weights.masked_fill(~mask, 2).argsort(dim=-1, stable=True).argsort(dim=-1)
    dropped = (share * mask.sum(-1, keepdim=True)).floor()
    kept = weights * (rank >= dropped)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-20)


def _averaging(frames: Batch, regions: Batch) -> Tensor:
    """Returns (B, L, J): column j averages over the frames nearest to region row j."""
    nearest = find_nearest_rows(frames.times, regions.times, regions.frame_mask)
    chosen = F.one_hot(nearest, regions.times.shape[1]) * frames.frame_mask.unsqueeze(2)
    return chosen / chosen.sum(1, keepdim=True).clamp(min=1)
