"""Scoring all words at once is the same as taking one step after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from models.likelihood import teacher_force
from models.vocabulary import pad_captions
from tests.models.tiny import (
    tiny_dual_afr,
    tiny_g2l,
    tiny_refocus,
    tiny_spatial,
    tiny_stats,
    tiny_temporal,
    tiny_vanilla,
    videos,
)
from training.batches.forcing_plan import plan_forcing
from training.optimization.forced_steps import ForcedWords, force_words

TARGETS = pad_captions([[3, 4], [5, 6, 7], [8], [3, 9, 4], [5], [6, 3]], 9)
CAPTIONERS: list[Callable[[], Any]] = [
    tiny_stats,
    tiny_g2l,
    tiny_refocus,
    tiny_dual_afr,
    tiny_vanilla,
    tiny_temporal,
    tiny_spatial,
]


def force(captioner: Any, memory: Any, share: float = 1.0, seed: int = 0, fixed: bool = False) -> ForcedWords:
    generator = torch.Generator().manual_seed(seed)
    plan = plan_forcing(TARGETS, memory.size, share, generator, fixed=fixed)
    return force_words(captioner, memory, TARGETS, plan, generator)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("make", CAPTIONERS)
def test_words_are_as_likely_as_step_by_step(make: Callable[[], Any], fixed: bool) -> None:
    captioner = make()
    memory = captioner.encode(videos())
    plain = teacher_force(captioner, memory, TARGETS, lambda _, true: true)
    at_once = teacher_force(captioner, memory, TARGETS)
    torch.testing.assert_close(at_once.log_p, plain.log_p, rtol=1e-5, atol=1e-6)
    forced = force(captioner, memory, fixed=fixed)
    found = torch.zeros_like(plain.log_p)
    found[forced.captions, forced.places] = forced.weights * forced.log_probs.gather(
        1, forced.take(TARGETS.clamp(min=0)).unsqueeze(1)
    ).squeeze(1)
    torch.testing.assert_close(found, plain.log_p, rtol=1e-5, atol=1e-6)
    assert len(forced.log_probs) == (TARGETS.numel() if fixed else int((TARGETS >= 0).sum()))


@pytest.mark.parametrize("make", CAPTIONERS)
def test_gradients_are_those_of_step_by_step(make: Callable[[], Any]) -> None:
    captioner = make()

    def gradients(total: Callable[[Any], torch.Tensor]) -> list[torch.Tensor]:
        captioner.zero_grad()
        total(captioner.encode(videos())).backward()
        return [each.grad.clone() for each in captioner.parameters() if each.grad is not None]

    def plain(memory: Any) -> torch.Tensor:
        return teacher_force(captioner, memory, TARGETS, lambda _, true: true).log_p.sum()

    def at_once(memory: Any) -> torch.Tensor:
        forced = force(captioner, memory)
        return forced.log_probs.gather(1, forced.take(TARGETS).unsqueeze(1)).sum()

    for one, other in zip(gradients(plain), gradients(at_once), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_looks_are_of_the_words_that_count() -> None:
    captioner = tiny_stats()
    memory = captioner.encode(videos())
    forced = force(captioner, memory)
    plain = teacher_force(captioner, memory, TARGETS, lambda _, true: true)
    for place, (attention, counted, captions, _) in enumerate(forced.looks()):
        expected = plain.attentions[place]
        assert expected is not None
        torch.testing.assert_close(attention.temporal[counted], expected.temporal[captions])
        assert bool((TARGETS[captions, place] >= 0).all())


def test_words_of_its_own_follow_the_generator() -> None:
    captioner = tiny_g2l()
    memory = captioner.encode(videos())

    def forced(seed: int, ratio: float = 0.3, fixed: bool = False) -> torch.Tensor:
        words = force(captioner, memory, ratio, seed, fixed)
        return words.log_probs[words.weights > 0].detach()

    assert torch.equal(forced(1), forced(1))
    assert not torch.equal(forced(1), forced(2))
    assert torch.equal(forced(1, 1.0), forced(2, 1.0))
