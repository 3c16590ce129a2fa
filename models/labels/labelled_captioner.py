"""Gives any captioner labels to read, by adding to what it is given of a word and to what it makes of it.

The captioner inside keeps its own streams, attention and explanation. Nothing outside this file knows that
there are two networks: the loop that writes calls the methods of ``Captioner``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from extractors.features import Features
from extractors.preprocessing.cell_edges import Edges
from models.caption import Extras
from models.captioner import (
    AnyCaptioner,
    Captioner,
    CaptionSteps,
    InputDescription,
    Judgement,
    Memory,
    State,
    StepAttention,
)
from models.captioners.attention_layers import expand_to_rows
from models.inputs import Batch, InputStream, average_frames, collate_inputs
from models.labels.classes import LABELS, LABELS_INPUT
from models.labels.expected_meaning import ExpectedMeaning, MeaningConfig
from models.labels.label_reader import LabelMemory, LabelReader, LabelReaderConfig
from models.labels.named_labels import describe_labels
from models.vocabulary import Vocabulary

WriterConfigT = TypeVar("WriterConfigT", bound=BaseModel)
WEIGHTS = "labels"  #: of the labels, among the extras of a step


class LabelledConfig(BaseModel, Generic[WriterConfigT]):
    """Configures a captioner that reads labels: itself, and its reader."""

    model_config = ConfigDict(frozen=True)

    writer: WriterConfigT
    labels: LabelReaderConfig = LabelReaderConfig()
    meaning: MeaningConfig = MeaningConfig()

    @property
    def streams(self) -> tuple[InputDescription, ...]:
        """Lists what the captioner inside reads, and the labels."""
        return (*self.writer.streams, LABELS_INPUT)  # type: ignore[attr-defined]  # every captioner's has them


@dataclass(frozen=True, eq=False)
class LabelledMemory(Memory):
    """Holds the memory of the captioner inside, the labels of the same videos, and what captions of them would
    mean (B, width)."""

    writer: Memory
    labels: LabelMemory
    expected: Tensor
    hint: Tensor  # (B, E), added to each written word

    @property
    def moments(self) -> Tensor:
        return self.writer.moments


class LabelledCaptioner(Captioner[LabelledMemory, State]):
    """Writes with a captioner that reads labels beside its own streams."""

    writer_class: ClassVar[type[AnyCaptioner]]
    config: LabelledConfig[Any]

    def __init__(self, config: LabelledConfig[Any], vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.writer = self.writer_class(config.writer, vocabulary)
        seen = self.writer.inputs[0].width
        written, output = find_widths(self.writer)
        self.reader = LabelReader(config.labels, seen, written, output)
        self.meaning = ExpectedMeaning(config.meaning, seen, written, len(vocabulary))

    @property
    def inputs(self) -> Sequence[InputDescription]:
        """Lists the streams of the captioner inside, and the labels."""
        return (*self.writer.inputs, LABELS_INPUT)

    @property
    def optional_streams(self) -> frozenset[str]:
        """Names the labels too: a video without any is written of as the captioner inside does."""
        return self.writer.optional_streams | {LABELS}

    def encode(self, features: Sequence[Features]) -> LabelledMemory:
        """Encodes features of B videos, any of which may lack its labels."""
        device = next(self.parameters()).device
        streams = [InputStream(name=each.name, width=each.width) for each in self.inputs]
        return self.encode_batches(collate_inputs(features, streams, device, self.optional_streams))

    def encode_batches(self, batches: Sequence[Batch]) -> LabelledMemory:
        """Encodes one batch a stream of ``inputs``."""
        *streams, labels = batches
        seen = average_frames(streams[0])
        read = self.reader.encode(labels, seen)
        return self.remember(streams, read, self.meaning.expect(seen, read, self.reader.texts))

    def remember(self, streams: Sequence[Batch], labels: LabelMemory, expected: Tensor) -> LabelledMemory:
        """Joins what is read of videos.

        Args:
            streams: Of the captioner inside, one batch a stream.
            labels: Of the reader.
            expected: μ (B, width), which training knows better than the network.
        """
        memory = self.writer.encode_batches(streams)
        hint = labels.summary + self.meaning.plan(expected)
        return LabelledMemory(
            times=memory.times, writer=memory, labels=labels, expected=expected, hint=hint
        )

    def start(self, memory: LabelledMemory, rows_per_video: int) -> State:
        """Makes the captioner's own state."""
        return self.writer.start(memory.writer, rows_per_video)

    def first_word(self, memory: LabelledMemory, rows_per_video: int) -> Tensor:
        """Makes the captioner's own first word."""
        return self.writer.first_word(memory.writer, rows_per_video)

    def step(
        self, state: State, word: Tensor, memory: LabelledMemory
    ) -> tuple[Tensor, State, StepAttention | None]:
        """Predicts the next word of R rows.

        Args:
            state: Of ``start``, or of the step before.
            word: (R,) ids just written.
            memory: B videos.

        Returns:
            Log-probabilities (R, V), the next state, and the attention with the labels' weights.
        """
        output, state, attention = self.advance(state, self.embed_words(word), memory)
        return self.score_words(output), state, attention

    def embed_words(self, words: Tensor) -> Tensor:
        """Embeds words as the captioner inside does."""
        return self.writer.embed_words(words)

    def advance(
        self, state: State, embedded: Tensor, memory: LabelledMemory
    ) -> tuple[Tensor, State, StepAttention | None]:
        """Takes the captioner's step between the reader's two additions (label_reader.py)."""
        labels = memory.labels
        hint = expand_to_rows(memory.hint, embedded).to(embedded.dtype)
        output, state, attention = self.writer.advance(state, embedded + hint, memory.writer)
        output, weights = self.reader(output, labels)
        if attention is not None:
            attention = replace(attention, extras={**attention.extras, WEIGHTS: weights})
        return output, state, attention

    def score_words(self, output: Tensor) -> Tensor:
        """Scores words as the captioner inside does."""
        return self.writer.score_words(output)

    def judge(self, memory: LabelledMemory, tokens: Tensor, scores: Tensor) -> Judgement:
        """Judges captions by what is expected of one, and by their scores (expected_meaning.py).

        Args:
            memory: B videos.
            tokens: (R, t) ids of the captions, those of a video side by side.
            scores: (R,), their log-probabilities over the length penalty.

        Returns:
            Their merits, and their confidence where that was fitted.
        """
        return self.meaning.judge(memory.expected, tokens, scores)

    def explain(self, caption: CaptionSteps) -> Extras:
        """Tells what the captioner inside shows, and from which label each word came."""
        memory = caption.memory
        assert isinstance(memory, LabelledMemory)
        shown = self.writer.explain(replace(caption, memory=memory.writer))
        return shown.model_copy(update={"labels": describe_labels(caption, memory.labels)})

    def map_edges(self, stream: str, side: int) -> Edges:
        """Says where rows and columns of the captioner's own map lie."""
        return self.writer.map_edges(stream, side)


def find_widths(writer: AnyCaptioner) -> tuple[int, int]:
    """Finds how wide are what ``advance`` is given of a word, and what it returns."""
    with torch.no_grad():
        was_training, _ = writer.training, writer.eval()
        embedded = writer.embed_words(torch.zeros(1, dtype=torch.long))
        memory = writer.encode_batches([_make_empty_batch(stream.width) for stream in writer.inputs])
        output, _, _ = writer.advance(writer.start(memory, 1), embedded, memory)
        writer.train(was_training)
    return embedded.shape[1], output.shape[1]


def _make_empty_batch(width: int) -> Batch:
    """Makes one video of one moment and one place, all zero."""
    there = torch.ones(1, 1, 1, dtype=torch.bool)
    times = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64)
    return Batch(times=times, values=torch.zeros(1, 1, 1, width), frame_mask=there[..., 0], region_mask=there)


def add_labels(kind: type[AnyCaptioner]) -> type[LabelledCaptioner]:
    """Makes the class of a captioner that reads labels too, ``labelled_NAME``."""
    members = {
        "name": f"labelled_{kind.name}",
        "writer_class": kind,
        "config_class": LabelledConfig[kind.config_class],  # type: ignore[name-defined]
    }
    return type(f"Labelled{kind.__name__}", (LabelledCaptioner,), members)
