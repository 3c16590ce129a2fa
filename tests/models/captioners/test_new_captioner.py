"""A captioner is one file and one line of the registry: no other file has to know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from pydantic import BaseModel
from torch import Tensor, nn

from extractors.features import Features
from models.caption import Extras
from models.captioner import Captioner, CaptionSteps, Memory, State, StepAttention
from models.captioners import registry
from models.captioners.attention_layers import expand_to_rows
from models.checkpoint import Card, load_checkpoint, save_checkpoint
from models.decoding.decode import DecodingOptions
from models.feature_sources.stream_checks import caption, lead_stream, optional_streams
from models.inputs import Batch, InputStream, average_frames, average_regions, collate_inputs
from models.vocabulary import Vocabulary, pad_captions
from tests.models.tiny import SPEC, videos
from training.batches.training_batch import TrainingBatch
from training.optimization.losses import supervised_loss
from training.recipes.demo_recipes import DEMO

WORDS = ("a", "dog", "cat", "runs", "sits")


class MeanConfig(BaseModel):
    """The one stream that it reads."""

    streams: tuple[InputStream, ...] = (InputStream(name="grid", width=6),)


@dataclass(frozen=True, eq=False)
class MeanMemory(Memory):
    mean: Tensor
    mask: Tensor


@dataclass(frozen=True, eq=False)
class MeanState(State):
    h: Tensor


class MeanCaptioner(Captioner[MeanMemory, MeanState]):
    """A GRU that begins with the video's mean and looks at all of its frames alike."""

    name = "mean"
    config_class = MeanConfig
    config: MeanConfig

    def __init__(self, config: MeanConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.words = nn.Embedding(len(vocabulary), 6)
        self.decoder, self.output = nn.GRUCell(6, 6), nn.Linear(6, len(vocabulary))

    @property
    def inputs(self) -> Sequence[InputStream]:
        return self.config.streams

    def encode(self, features: Sequence[Features]) -> MeanMemory:
        return self.encode_batches(collate_inputs(features, self.inputs, self.output.weight.device))

    def encode_batches(self, batches: Sequence[Batch]) -> MeanMemory:
        (grid,) = batches
        assert average_regions(grid).shape[1] == grid.frame_mask.shape[1]
        return MeanMemory(grid.times, average_frames(grid), grid.frame_mask)

    def start(self, memory: MeanMemory, rows_per_video: int) -> MeanState:
        return MeanState(memory.mean.repeat_interleave(rows_per_video, 0))

    def step(
        self, state: MeanState, word: Tensor, memory: MeanMemory
    ) -> tuple[Tensor, MeanState, StepAttention | None]:
        h = self.decoder(self.words(word), state.h)
        mask = expand_to_rows(memory.mask, h).float()
        attention = StepAttention(mask / mask.sum(1, keepdim=True), None, {})
        return F.log_softmax(self.output(h), 1), MeanState(h), attention

    def explain(self, caption: CaptionSteps) -> Extras:
        return Extras(selected=tuple((caption.moment(0, 1.0),) for _ in caption.steps.temporal))


@pytest.fixture
def captioner(monkeypatch: pytest.MonkeyPatch) -> MeanCaptioner:
    monkeypatch.setitem(registry.CAPTIONERS, MeanCaptioner.name, MeanCaptioner)  # the line
    torch.manual_seed(0)
    return MeanCaptioner(MeanConfig(), Vocabulary(WORDS)).eval()


def test_it_is_saved_loaded_and_served(captioner: MeanCaptioner, tmp_path: Path) -> None:
    file = tmp_path / "mean.safetensors"
    save_checkpoint(file, captioner, Card("mean", {"grid": SPEC}, {}, {}))
    checkpoint = load_checkpoint(file)
    assert (lead_stream(checkpoint), optional_streams(checkpoint)) == ("grid", frozenset())
    for found in caption(checkpoint, videos((3, 5)), DecodingOptions(beam_size=2, max_length=4)):
        attention = found[0].attention
        assert attention is not None
        assert len(attention.times) in (3, 5)
        assert attention.extras.selected is not None
        assert len(attention.extras.selected) == len(attention.words)


def test_it_is_trained(captioner: MeanCaptioner) -> None:
    collated = collate_inputs(videos((3, 5)), captioner.inputs, torch.device("cpu"))
    targets = pad_captions([captioner.vocabulary.encode(["a", "dog", "runs"])] * 4, 6)
    batch = TrainingBatch(("one", "two"), {"grid": collated[0]}, targets, None)
    optimizer, losses = torch.optim.Adam(captioner.parameters(), 0.05), []
    for _ in range(20):
        memory = captioner.encode_batches(batch.inputs_of(captioner))
        memory = captioner.memory_to_learn_from(memory, torch.Generator())
        loss = supervised_loss(captioner, memory, batch, DEMO, 1.0, torch.Generator())["total"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
