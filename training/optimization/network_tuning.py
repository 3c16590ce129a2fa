"""Joins a captioner and the end of its image networks to one network: the grid is computed on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from extractors.catalog.efficientnet_lite2 import STAGE_14
from extractors.catalog.efficientnet_lite3 import WIDTH
from extractors.catalog.tuned_pair import PairEnd
from extractors.errors import ReelwordError
from extractors.features import Features
from extractors.networks.efficientnet_lite import LITE2
from models.captioner import AnyCaptioner, Captioner, InputDescription, Memory, OwnLoss, State, StepAttention
from models.inputs import Batch, InputStream, collate_inputs, order_inputs

STAGE, LITE3_GRID = "stage_14", "lite3_grid"
#: Pictures at a time where no gradient is wanted; more would only take memory.
SLICE = 32


class NotOnGrid(ReelwordError, ValueError):
    """The captioner reads other streams than the image networks' grid; the message says which."""

    code = "not_on_grid"
    hint = "Start from a captioner whose stream set is the demo's: python -m app models lists them."


class TunedConfig(BaseModel):
    """The streams that are read: of each network the cells where the trained part begins."""

    model_config = ConfigDict(frozen=True)

    streams: tuple[InputStream, ...] = (
        InputStream(name=STAGE, width=LITE2[STAGE_14].width),
        InputStream(name=LITE3_GRID, width=WIDTH),
    )


class TunedCaptioner(Captioner[Memory, State]):
    """A captioner that computes its grid itself: for training alone, its two parts are kept apart.

    captioner: one that reads the networks' grid, by whatever name, and nothing else. end: makes the grid from
    both networks' cells. Raises NotOnGrid.
    """

    name = "tuned"
    config: TunedConfig
    config_class = TunedConfig
    captioner: AnyCaptioner
    end: PairEnd

    def __init__(self, captioner: AnyCaptioner, end: PairEnd) -> None:
        super().__init__(TunedConfig(), captioner.vocabulary)
        names = [stream.name for stream in captioner.inputs]
        if len(names) != 1:
            raise NotOnGrid(f"{captioner.name} reads {', '.join(names)}, and not one grid alone")
        (self.grid,) = names
        self.captioner, self.end = captioner, end

    @property
    def inputs(self) -> Sequence[InputDescription]:
        return self.config.streams

    def encode(self, features: Sequence[Features]) -> Memory:
        device = next(self.parameters()).device
        return self.encode_batches(collate_inputs(features, self.config.streams, device))

    def encode_batches(self, batches: Sequence[Batch]) -> Memory:
        """Encodes a batch of each network's cells."""
        memory: Memory = self.captioner.encode_batches(
            order_inputs(self.captioner, {self.grid: self.compute_grid(*batches)})
        )
        return memory

    def compute_grid(self, stage: Batch, lite3: Batch) -> Batch:
        """Computes the grid of the same steps: values (B, T, 49, 1280)."""
        videos, steps = stage.frame_mask.shape
        grid = self._run_end(stage.values.flatten(0, 1), lite3.values.flatten(0, 1))
        grid = grid.view(videos, steps, *grid.shape[1:])
        mask = stage.frame_mask.unsqueeze(2).expand(-1, -1, grid.shape[2])
        return replace(stage, values=grid * mask.unsqueeze(3), region_mask=mask)

    def _run_end(self, *cells: Tensor) -> Tensor:
        """Runs the end in float32 always: channel-wise convolutions go backward slowly in bf16."""
        with torch.autocast(cells[0].device.type, enabled=False):
            if self.training:
                return self.end(*(each.float() for each in cells))  # type: ignore[no-any-return]
            parts = zip(*(torch.split(each, SLICE) for each in cells), strict=True)
            with torch.no_grad():
                return torch.cat([self.end(*(each.float() for each in part)) for part in parts])

    def memory_to_learn_from(self, memory: Memory, generator: torch.Generator) -> Memory:
        learned: Memory = self.captioner.memory_to_learn_from(memory, generator)
        return learned

    def own_loss(self, memory: Memory, targets: Tensor) -> OwnLoss | None:
        return self.captioner.own_loss(memory, targets)

    def start(self, memory: Memory, rows_per_video: int) -> State:
        state: State = self.captioner.start(memory, rows_per_video)
        return state

    def step(self, state: State, word: Tensor, memory: Memory) -> tuple[Tensor, State, StepAttention | None]:
        taken: tuple[Tensor, State, StepAttention | None] = self.captioner.step(state, word, memory)
        return taken

    def embed_words(self, words: Tensor) -> Tensor:
        return self.captioner.embed_words(words)

    def advance(
        self, state: State, embedded: Tensor, memory: Memory
    ) -> tuple[Tensor, State, StepAttention | None]:
        taken: tuple[Tensor, State, StepAttention | None] = self.captioner.advance(state, embedded, memory)
        return taken

    def score_words(self, output: Tensor) -> Tensor:
        return self.captioner.score_words(output)

    def first_word(self, memory: Memory, rows_per_video: int) -> Tensor:
        word: Tensor = self.captioner.first_word(memory, rows_per_video)
        return word
