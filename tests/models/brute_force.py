"""The searches written the slow, obvious way: one video, one beam, one word at a time, in Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from models.captioner import Captioner
from models.memory import Memory
from models.vocabulary import BOS, EOS

#: Words that may follow a prefix, apart from <bos>.
Allowed = Callable[[tuple[int, ...], int], bool]


@dataclass(frozen=True)
class Scored:
    """tokens: with the end token where there is one."""

    tokens: tuple[int, ...]
    total: float

    def score(self, exponent: float) -> float:
        divisor: float = len(self.tokens) ** exponent
        return self.total / divisor


def anything(prefix: tuple[int, ...], word: int) -> bool:
    return True


def next_log_probs(captioner: Captioner, memory: Memory, prefix: Sequence[int]) -> list[float]:
    """log p(word | prefix) by running the whole prefix from the start."""
    state, word = captioner.start(memory, 1), captioner.first_word(memory, 1)
    log_probs, state, _ = captioner.step(state, word, memory)
    for token in prefix:
        log_probs, state, _ = captioner.step(state, word.new_tensor([token]), memory)
    values: list[float] = log_probs[0].tolist()
    return values


def every_sequence(
    captioner: Captioner, memory: Memory, longest: int, allowed: Allowed = anything
) -> list[Scored]:
    """All sequences of at most ``longest`` tokens, cut ones included."""
    open_, done = [Scored((), 0.0)], []
    for _ in range(longest):
        grown = [s for o in open_ for s in _grow(captioner, memory, o, allowed)]
        done += [s for s in grown if s.tokens[-1] == EOS]
        open_ = [s for s in grown if s.tokens[-1] != EOS]
    return done + open_


def plain_beam(
    captioner: Captioner, memory: Memory, width: int, longest: int, allowed: Allowed = anything
) -> list[Scored]:
    """The beams after ``longest`` steps, best plain log-probability first; never stops early."""
    beams = [Scored((), 0.0)]
    for _ in range(longest):
        grown: list[Scored] = []
        for beam in beams:
            ended = bool(beam.tokens) and beam.tokens[-1] == EOS
            grown += [beam] if ended else _grow(captioner, memory, beam, allowed)
        beams = sorted(grown, key=lambda s: -s.total)[:width]
    return beams


def diverse_beam(
    captioner: Captioner, memory: Memory, width: int, groups: int, strength: float, longest: int
) -> list[list[Scored]]:
    """The beams of each group: a word costs ``strength`` for each earlier group's beam that just wrote it."""
    beams = [[Scored((), 0.0)] for _ in range(groups)]
    for step in range(longest):
        written: list[int] = []
        for group in range(groups):
            grown = []
            for beam in beams[group]:
                if beam.tokens and beam.tokens[-1] == EOS:
                    grown.append((beam.total, beam))
                else:
                    longer = _grow(captioner, memory, beam, anything)
                    grown += [(s.total - strength * written.count(s.tokens[-1]), s) for s in longer]
            beams[group] = [s for _, s in sorted(grown, key=lambda pair: -pair[0])[:width]]
            written += [s.tokens[step] for s in beams[group] if len(s.tokens) == step + 1]
    return beams


def _grow(captioner: Captioner, memory: Memory, s: Scored, allowed: Allowed) -> list[Scored]:
    log_probs = next_log_probs(captioner, memory, s.tokens)
    words = [w for w in range(len(log_probs)) if w != BOS and allowed(s.tokens, w)]
    return [
        Scored((*s.tokens, w), s.total + log_probs[w]) for w in (words or [EOS]) if log_probs[w] > -math.inf
    ]


def ranked(sequences: Sequence[Scored], exponent: float) -> list[Scored]:
    return sorted(sequences, key=lambda s: -s.score(exponent))


def lone(memory: Memory, video: int) -> Memory:
    """One video of a memory."""
    return memory.select(torch.tensor([video]))
