"""Captioners small enough to be searched exhaustively, in float64."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from models.captioner import Captioner
from models.inputs import Batch, InputStream
from models.memory import Memory, State, StepAttention
from models.vocabulary import BOS, EOS, Vocabulary

FIRST_WORD = 3


@dataclass(frozen=True, eq=False)
class Prefixes(State):
    """tokens: (R, t), the first word included; video: (R,)."""

    tokens: Tensor
    video: Tensor


@dataclass(frozen=True, eq=False)
class Numbered(Memory):
    """video: (B,) number of each video; frames: (B,), how many of the T times are real."""

    video: Tensor
    frames: Tensor


class NoConfig(BaseModel):
    """Toys have nothing to configure."""


class Toy(Captioner):
    """Base: the state is the whole prefix, and ``table`` says what follows it."""

    name = "toy"
    config_class = NoConfig

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(NoConfig(), Vocabulary(words))

    @property
    def inputs(self) -> Sequence[InputStream]:
        return ()

    def encode_batches(self, batches: Sequence[Batch]) -> Numbered:
        raise NotImplementedError("toys are given their memory by `videos`")

    def start(self, memory: Numbered, rows_per_video: int) -> Prefixes:
        video = memory.video.repeat_interleave(rows_per_video)
        return Prefixes(torch.zeros(len(video), 0, dtype=torch.long), video)

    def step(
        self, state: Prefixes, word: Tensor, memory: Numbered
    ) -> tuple[Tensor, Prefixes, StepAttention | None]:
        state = Prefixes(torch.cat([state.tokens, word.unsqueeze(1)], 1), state.video)
        return self.next_log_probs(state), state, self.look(state, memory)

    def next_log_probs(self, state: Prefixes) -> Tensor:
        raise NotImplementedError

    def look(self, state: Prefixes, memory: Numbered) -> StepAttention | None:
        return None


def videos(*numbers: int, frames: Sequence[int] | None = None) -> Numbered:
    """Memory of the videos of these numbers, padded to the longest."""
    counts = list(frames) if frames is not None else [2] * len(numbers)
    times = torch.zeros(len(numbers), max(counts), 2, dtype=torch.float64)
    return Numbered(times, torch.tensor(numbers), torch.tensor(counts))


class RandomToy(Toy):
    """Log-probabilities drawn once for every (video, last two tokens); attention that tells who looked.

    temporal: (R, T), a softmax over the video's own frames of numbers that depend on the last two tokens.
    extras["prefix"]: (R, 2), those tokens themselves, so that a test can see which beam a row was.
    """

    def __init__(self, words: Sequence[str], seed: int, scale: float = 2.0, ending: float = 0.0) -> None:
        super().__init__(words)
        generator = torch.Generator().manual_seed(seed)
        size = len(self.vocabulary)
        logits = scale * torch.randn(8, size, size, size, generator=generator, dtype=torch.float64)
        logits[..., EOS] += ending
        self.table: Tensor
        self.gaze: Tensor
        self.register_buffer("table", logits.log_softmax(-1))
        self.register_buffer("gaze", torch.randn(size, size, 16, generator=generator, dtype=torch.float64))

    def next_log_probs(self, state: Prefixes) -> Tensor:
        before, last = self._context(state)
        return self.table[state.video, before, last]

    def look(self, state: Prefixes, memory: Numbered) -> StepAttention:
        before, last = self._context(state)
        frames = memory.frames.repeat_interleave(len(state.video) // memory.size)
        padding = torch.arange(memory.times.shape[1]) >= frames.unsqueeze(1)
        scores = self.gaze[before, last, : memory.times.shape[1]]
        temporal = scores.masked_fill(padding, -torch.inf).softmax(1)
        spatial = temporal.unsqueeze(2) * torch.tensor([0.25, 0.75])
        prefix = torch.stack([before, last], 1).double()
        return StepAttention(temporal, spatial, {"prefix": prefix}, loss=temporal.sum(1))

    @staticmethod
    def _context(state: Prefixes) -> tuple[Tensor, Tensor]:
        last = state.tokens[:, -1]
        before = state.tokens[:, -2] if state.tokens.shape[1] > 1 else torch.full_like(last, BOS)
        return before, last


class HashToy(Toy):
    """The language models of the golden beam search cases, defined by SHA-256 of the prefix.

    Their tokens 1 to 6 are words 3 to 8 here, since <bos> and <unk> are no tokens of theirs.
    """

    def __init__(self, case: str, context: int | None) -> None:
        """context: how many tokens of the prefix are seen, None for all."""
        super().__init__([str(token) for token in range(1, 7)])
        self.case, self.context = case, context
        self.known: dict[tuple[int, ...], Any] = {}

    def next_log_probs(self, state: Prefixes) -> Tensor:
        rows = np.array([self._logits(tuple(prefix)) for prefix in state.tokens[:, 1:].tolist()])
        log_probs = torch.from_numpy(rows).log_softmax(1)
        full = torch.full((len(rows), len(self.vocabulary)), -torch.inf, dtype=torch.float64)
        full[:, EOS] = log_probs[:, 0]
        full[:, FIRST_WORD:] = log_probs[:, 1:]
        return full

    def _logits(self, prefix: tuple[int, ...]) -> Any:
        seen = prefix if self.context is None else prefix[-self.context :]
        if seen not in self.known:
            self.known[seen] = self._hashed(seen)
        return self.known[seen]

    def _hashed(self, seen: tuple[int, ...]) -> Any:
        names = ",".join(self.vocabulary.words[i] for i in seen)
        digest = hashlib.sha256(f"{self.case}|{names}".encode()).digest()
        logits = np.frombuffer(digest, ">u2", 7).astype(np.float64) / 8192
        logits[0] -= 1.8
        return logits
