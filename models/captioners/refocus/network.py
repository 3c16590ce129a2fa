"""Refocus: Watch It Twice, video captioning with a refocused video encoder.

Shi, Cai, Joty, Gu (2019). Equation and algorithm numbers are the paper's.

The video is encoded from its middle frame outwards, a refocusing module reads that encoding and picks the
key frame, and the video is encoded again from there (algorithm 1). One decoder writes a caption for each of
the two encodings (algorithm 2); the second is the captioner's answer.

Where the paper is silent, or we differ:

* Eq. 21 as printed raises α where the reward fell: -Δ log(1 - α) with Δ < 0 is |Δ| log(1 - α), smallest
  at α = 1. The text wants "α to decrease", so the falling case here is -|Δ| log(1 - α).
* log(1 - α) is taken from the other frames' scores, so that α near 1 still has its gradient. With one frame
  there is nothing to choose and the loss is 0.
* A reward's predecessor is that of the same caption of the same video, as it was last trained on: a video
  has twenty captions or more, of which a batch has a few. A video's difference is the mean over those of
  its captions that have a predecessor, and where none has one it is 0.
* The biases of eqs. 8 and 14 stand outside the tanh, cancel in the softmax, and are left out.
* The middle frame of an even number of frames is the later one, K/2 counted from 0.
* ``embedded`` puts a linear, ReLU and dropout before all else (the demo recipe); None is the paper's.
* The spatial feature is the mean over frames, so its one map is reported for every frame.
* Last stage of the training: ``with_frozen_key_frames`` copies the encoder that predicts the key frame
  into the captioner, unchanging, while the captioner's own encoder is trained again for those key frames.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.caption import ExplanationPart, MomentsExplanation, WeightsExplanation
from models.captioner import CaptionSteps, as_numpy, rounded
from models.captioners.attention_layers import BilinearAttention, expand_to_rows, masked_softmax, weighted_sum
from models.captioners.recurrent import RecurrentCaptioner
from models.captioners.refocus.config import RefocusConfig
from models.captioners.refocus.encoder import VideoEncoder, VideoEncoding
from models.inputs import Batch, average_frames
from models.likelihood import teacher_force
from models.memory import Memory, State, StepAttention
from models.training_phase import PhaseBatch, PhaseLoss, PhaseSpec
from models.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class RefocusMemory(Memory):
    """Holds the encoded videos. ``o`` is the encoding to decode from: o_2, or o_1 of ``first_step``."""

    frames: Tensor  # (B, K, d): V^f
    frame_keys: Tensor  # (B, K, A)
    frame_mask: Tensor  # (B, K)
    cells: Tensor  # (B, N, d): v^s
    cell_keys: Tensor  # (B, N, A)
    cell_mask: Tensor  # (B, N)
    audio: Tensor  # (B, d_audio): v^a
    encoding: VideoEncoding
    o: Tensor  # (B, H)

    def first_step(self) -> Self:
        """Takes the same videos as the default key frame shows them."""
        return replace(self, o=self.encoding.o_1)

    def either_step(self, first: Tensor) -> Self:
        """Takes the videos of ``first`` (B,) as the default key frame shows them, the others refocused."""
        return replace(self, o=torch.where(first.unsqueeze(1), self.encoding.o_1, self.encoding.o_2))


@dataclass(frozen=True, eq=False)
class RefocusState(State):
    """Carries the decoder's LSTM; before the first word its input is o and not a word."""

    h: Tensor  # (R, H)
    c: Tensor  # (R, H)
    before_first: bool


class Refocus(RecurrentCaptioner):
    """Writes captions from a video that is encoded twice, the second time from the frame that matters."""

    name = "refocus"
    config: RefocusConfig
    config_class = RefocusConfig

    def __init__(self, config: RefocusConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        d, H, A, size = config.width, config.hidden, config.attention, len(vocabulary)
        self.watcher = VideoEncoder(config)
        self.predictor = VideoEncoder(config).requires_grad_(False) if config.frozen_key_frames else None
        self.temporal_attention = BilinearAttention(2 * H, d, A, bias=False)
        self.spatial_attention = BilinearAttention(2 * H, d, A, bias=False) if config.spatial else None
        self.word_embedding = nn.Embedding(size, H)
        self.decoder = nn.LSTMCell((2 if config.spatial else 1) * d + config.audio_width + H, H)
        self.add_output(H, project=False)

    @property
    def optional_streams(self) -> frozenset[str]:
        return frozenset() if self.config.audio is None else frozenset({self.config.audio.name})

    @property
    def phases(self) -> Sequence[PhaseSpec]:
        """Lists those of 3.4 and 4.2: either step drawn, step 1 alone, both by eq. 22, frozen key frames.

        In the last the key frames of the best weights so far stay, and eqs. 17 and 18 are descended; it goes
        on from those weights, since the paper says "trained again" and not from where.
        """
        both = PhaseSpec(choose_memory=_draw_step)
        if self.config.encoder != "vre":
            return (both,)
        # what is learned shows on videos that have frames to choose from
        gaining = PhaseSpec(metric="shots_cider", keeps_start=True)
        return (
            both,
            PhaseSpec("first_step", choose_memory=_take_step_1, judge_memory=RefocusMemory.first_step),
            replace(gaining, name="combined", loss=Refocus.combined_loss, remembers="rewards"),
            replace(
                gaining,
                name="frozen_key_frames",
                loss=Refocus.both_losses,
                prepare=Refocus.with_frozen_key_frames,
            ),
        )

    def encode_batches(self, batches: Sequence[Batch], keys: Tensor | None = None) -> RefocusMemory:
        """Encodes one batch a stream of ``config.streams``.

        keys: (B,) key frames that are known; None to predict them.
        """
        grid, audio = batches[0], self._audio(batches)
        if self.predictor is not None and keys is None:
            keys = self.predict_keys(batches)
        frames = self.watcher.encode_frames(grid)
        cell_mask = grid.region_mask.any(1)
        counts = grid.region_mask.sum(1).clamp(min=1).unsqueeze(2)
        cells = self.watcher.embed(grid.values.sum(1) / counts) * cell_mask.unsqueeze(2)  # eq. 3
        encoding = self.watcher.encode(frames, grid, audio, keys)
        nothing = cells[..., :0]
        return RefocusMemory(
            times=grid.times,
            frames=frames,
            frame_keys=self.temporal_attention.make_keys(frames),
            frame_mask=grid.frame_mask,
            cells=cells,
            cell_keys=nothing if self.spatial_attention is None else self.spatial_attention.make_keys(cells),
            cell_mask=cell_mask,
            audio=audio,
            encoding=encoding,
            o=encoding.o_2,
        )

    @torch.no_grad()
    def predict_keys(self, batches: Sequence[Batch]) -> Tensor:
        """Predicts (B,) key frames by the frozen encoder, or by the captioner's own where there is none."""
        watcher = self.watcher if self.predictor is None else self.predictor
        was_training = watcher.training
        watcher.eval()
        key = watcher.encode(watcher.encode_frames(batches[0]), batches[0], self._audio(batches), None).key
        watcher.train(was_training)
        return key

    def _audio(self, batches: Sequence[Batch]) -> Tensor:
        """Computes v^a (B, d_audio), of width 0 where the captioner takes no sound."""
        if self.config.audio is None:
            return batches[0].values.new_zeros(batches[0].size, 0)
        return average_frames(batches[1])

    def with_frozen_key_frames(self) -> Self:
        """Copies the captioner; the copy's key frames are this one's from now on, whatever it learns."""
        frozen = type(self)(self.config.model_copy(update={"frozen_key_frames": True}), self.vocabulary)
        frozen.load_state_dict(self.state_dict(), strict=False)
        frozen.predictor = deepcopy(self.watcher if self.predictor is None else self.predictor)
        frozen.predictor.requires_grad_(False)
        return frozen

    def explain(self, caption: CaptionSteps) -> Sequence[ExplanationPart]:
        """Shows both key frames, the video's and no word's, what was written from each, and α of eq. 9."""
        memory = caption.memory
        assert isinstance(memory, RefocusMemory)
        encoding, video = memory.encoding, caption.video
        alpha = as_numpy(encoding.scores[video, : len(caption.times)].float().softmax(0))
        default, key = int(encoding.default_key[video]), int(encoding.key[video])
        first = second = None
        if caption.write is not None:
            first, second = caption.write(memory.first_step()), caption.text
        frames = [
            caption.moment(default, float(alpha[default]), "First look, from the middle", first),
            caption.moment(key, float(alpha[key]), "Second look, from the frame it found", second),
        ]
        return [
            MomentsExplanation(
                name="key_frames",
                title="Watched twice",
                note="It first writes from the middle of the film, then finds the frame that matters most "
                "and writes again from there.",
                caption=frames,
            ),
            WeightsExplanation(
                name="refocus",
                title="Where to look again",
                note="The line shows by which weight the second frame was chosen.",
                over="moments",
                caption=rounded(alpha),
            ),
        ]

    def start(self, memory: RefocusMemory, rows_per_video: int) -> RefocusState:
        o = memory.o.repeat_interleave(rows_per_video, 0)
        return RefocusState(torch.zeros_like(o), o, before_first=True)

    def advance(
        self, state: RefocusState, embedded: Tensor, memory: RefocusMemory
    ) -> tuple[Tensor, RefocusState, StepAttention | None]:
        # algorithm 2; in the first step o stands in the word's place
        o = expand_to_rows(memory.o, state.h)
        query = torch.cat([o, state.h], 1)
        contexts, attention = self._attend(query, memory)
        w = o if state.before_first else embedded
        inputs = torch.cat([*contexts, expand_to_rows(memory.audio, o), w], 1)
        h, c = self.decoder(inputs, (state.h, state.c))
        return h, RefocusState(h, c, before_first=False), attention

    def _attend(self, query: Tensor, memory: RefocusMemory) -> tuple[list[Tensor], StepAttention]:
        """Computes v^T and v^S (eqs. 12-16), (R, d) each."""
        mask = expand_to_rows(memory.frame_mask, query)
        alpha_T = masked_softmax(self.temporal_attention.score(query, memory.frame_keys), mask)
        contexts, spatial = [weighted_sum(alpha_T, memory.frames)], None
        if self.spatial_attention is not None:
            scores = self.spatial_attention.score(query, memory.cell_keys)
            alpha_S = masked_softmax(scores, expand_to_rows(memory.cell_mask, query))
            contexts.append(weighted_sum(alpha_S, memory.cells))
            spatial = alpha_S.unsqueeze(1) * mask.unsqueeze(2)
        encoding = memory.encoding
        extras = {
            "key_frame": expand_to_rows(encoding.key, query),
            "default_key_frame": expand_to_rows(encoding.default_key, query),
            "refocus": expand_to_rows(masked_softmax(encoding.scores, memory.frame_mask), query),
        }
        return contexts, StepAttention(alpha_T, spatial, extras)

    def combined_loss(self, batch: PhaseBatch) -> PhaseLoss:
        """Computes L_All of eq. 22; what is remembered of a caption is R_e of eq. 20."""
        memory, targets = batch.memory, batch.targets
        assert isinstance(memory, RefocusMemory)
        step_1, step_2 = self._force_steps(batch)
        words = (targets >= 0).sum()
        reward = (step_1 - step_2).detach()  # eq. 20
        encoding, last = memory.encoding, batch.remembered
        refocusing = refocusing_loss(encoding.scores, memory.frame_mask, encoding.key, reward, last).mean()
        per_word = targets.shape[0] / words  # eq. 22 adds losses of captions; here they are by the word
        total = (step_1.sum() + step_2.sum()) / words + self.config.beta * per_word * refocusing
        parts = {"loss": step_2.sum() / words, "step_1": step_1.sum() / words, "refocusing": refocusing}
        return PhaseLoss(total, {**parts, "reward": reward.mean()}, reward)

    def both_losses(self, batch: PhaseBatch) -> PhaseLoss:
        """Computes the sum of eqs. 17 and 18."""
        words = (batch.targets >= 0).sum()
        step_1, step_2 = (step.sum() / words for step in self._force_steps(batch))
        return PhaseLoss(step_1 + step_2, {"loss": step_2, "step_1": step_1})

    def _force_steps(self, batch: PhaseBatch) -> tuple[Tensor, Tensor]:
        """Computes nats (R,) of the captions in either step."""
        memory = batch.memory
        assert isinstance(memory, RefocusMemory)
        memories = (memory.first_step(), memory)
        steps = [teacher_force(self, each, batch.targets, batch.next_word) for each in memories]
        return -steps[0].log_p.sum(1), -steps[1].log_p.sum(1)


def _draw_step(memory: RefocusMemory, generator: torch.Generator) -> RefocusMemory:
    """Takes each video's first or second encoding, with even odds.

    So one decoding teaches both captions (eqs. 17 and 18), where their sum takes two.
    """
    first = torch.rand(memory.size, generator=generator, device=generator.device) < 0.5
    return memory.either_step(first.to(memory.o.device))


def _take_step_1(memory: RefocusMemory, _: torch.Generator) -> RefocusMemory:
    return memory.first_step()


def refocusing_loss(scores: Tensor, mask: Tensor, key: Tensor, reward: Tensor, last_reward: Tensor) -> Tensor:
    """Computes L_R+ of eq. 21 with the sign that its text means.

    Args:
        scores: (B, K), a of eq. 8, with gradient.
        mask: bool (B, K), the frames that there are.
        key: (B,), the key frames that were used.
        reward: (R,), R_e of eq. 20, the captions of a video side by side.
        last_reward: (R,), R_{e-1} of the same captions; NaN means none.

    Returns:
        (B,), 0 for a video of one frame.
    """
    by_caption = (reward - last_reward.to(reward.device)).detach().view(len(scores), -1)
    difference = by_caption.nanmean(1).nan_to_num(0.0)
    log_all = scores.masked_fill(~mask, -1e30).log_softmax(1)
    log_alpha = log_all.gather(1, key.unsqueeze(1)).squeeze(1)
    others = mask & ~F.one_hot(key, scores.shape[1]).bool()
    log_rest = log_all.masked_fill(~others, -1e30).logsumexp(1)  # log(1 - α)
    loss = torch.where(difference > 0, -difference * log_alpha, difference * log_rest)
    return loss * others.any(1)
