"""A GRU that begins with the video's mean and looks at all of its frames alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from pydantic import BaseModel
from torch import Tensor, nn

from models.caption import ExplanationPart
from models.captioner import Captioner, CaptionSteps
from models.captioners.attention_layers import expand_to_rows
from models.inputs import Batch, InputStream, average_frames
from models.likelihood import teacher_force
from models.memory import Memory, State, StepAttention
from models.training_phase import PhaseBatch, PhaseLoss, PhaseSpec
from models.vocabulary import Vocabulary

from .explanation import explain


class MeanConfig(BaseModel):
    """The one stream that it reads."""

    streams: tuple[InputStream, ...] = ()
    hidden: int = 8


@dataclass(frozen=True, eq=False)
class MeanMemory(Memory):
    mean: Tensor
    mask: Tensor


@dataclass(frozen=True, eq=False)
class MeanState(State):
    h: Tensor


class MeanCaptioner(Captioner):
    name = "mean"
    config_class = MeanConfig
    config: MeanConfig

    def __init__(self, config: MeanConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.embed = nn.Linear(config.streams[0].width, config.hidden)
        self.words = nn.Embedding(len(vocabulary), config.hidden)
        self.decoder = nn.GRUCell(config.hidden, config.hidden)
        self.output = nn.Linear(config.hidden, len(vocabulary))

    @property
    def inputs(self) -> Sequence[InputStream]:
        return self.config.streams

    @property
    def phases(self) -> Sequence[PhaseSpec]:
        return (
            PhaseSpec(),
            PhaseSpec("again", loss=MeanCaptioner.learn_again, keeps_start=True, remembers="last"),
        )

    def learn_again(self, batch: PhaseBatch) -> PhaseLoss:
        forced = teacher_force(self, batch.memory, batch.targets, batch.next_word)
        nats = -forced.log_p.sum(1)
        return PhaseLoss(nats.mean(), {"loss": nats.mean(), "halved": nats.mean() / 2}, nats)

    def encode_batches(self, batches: Sequence[Batch]) -> MeanMemory:
        (grid,) = batches
        return MeanMemory(grid.times, self.embed(average_frames(grid)), grid.frame_mask)

    def start(self, memory: MeanMemory, rows_per_video: int) -> MeanState:
        return MeanState(memory.mean.repeat_interleave(rows_per_video, 0))

    def step(
        self, state: MeanState, word: Tensor, memory: MeanMemory
    ) -> tuple[Tensor, MeanState, StepAttention | None]:
        h = self.decoder(self.words(word), state.h)
        mask = expand_to_rows(memory.mask, h).float()
        attention = StepAttention(mask / mask.sum(1, keepdim=True), None, {})
        return F.log_softmax(self.output(h).float(), 1), MeanState(h), attention

    def explain(self, caption: CaptionSteps) -> Sequence[ExplanationPart]:
        return explain(caption)
