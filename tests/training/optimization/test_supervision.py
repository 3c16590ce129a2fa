"""Which memory is written from, and which loss a captioner has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import binomtest

from models.captioners.dual_afr.network import DualAFR
from models.captioners.refocus.network import RefocusMemory
from models.vocabulary import pad_captions
from tests.models.tiny import dual_afr_config, tiny_dual_afr, tiny_refocus, tiny_stats, videos
from training.batches.training_batch import TrainingBatch
from training.optimization.losses import caption_loss, supervised_loss
from training.recipes.demo_recipes import DEMO
from training.recipes.recipe import Recipe

TARGETS = pad_captions([[3, 4], [5, 6, 7], [8], [3, 9, 4], [5], [6, 3]], 9)


def batch() -> TrainingBatch:
    return TrainingBatch(("a", "b", "c"), {}, TARGETS, None)


def loss(captioner: Any, memory: Any, recipe: Recipe = DEMO) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)  # of hard attention's draws
    return supervised_loss(captioner, memory, batch(), recipe, 1.0, torch.Generator().manual_seed(0))


def test_refocus_learns_each_video_from_either_of_its_encodings() -> None:
    captioner = tiny_refocus()
    memory = captioner.encode(videos())
    first, second = memory.encoding.o_1, memory.encoding.o_2
    assert not torch.equal(first, second)
    chosen = memory.either_step(torch.tensor([True, False, True])).o
    assert torch.equal(chosen, torch.stack([first[0], second[1], first[2]]))
    generator, firsts = torch.Generator().manual_seed(0), 0
    for _ in range(100):
        drawn = captioner.phases[0].choose(memory, generator)
        assert isinstance(drawn, RefocusMemory)
        is_first = (drawn.o == first).all(1)
        assert torch.equal(drawn.o, torch.where(is_first.unsqueeze(1), first, second))
        firsts += int(is_first.sum())
    assert binomtest(firsts, 300, 0.5).pvalue > 1e-4


def test_others_have_one_memory() -> None:
    captioner = tiny_stats()
    memory = captioner.encode(videos())
    assert captioner.phases[0].choose(memory, torch.Generator()) is memory


def test_auxiliary_losses_are_added_by_their_weights() -> None:
    captioner = tiny_stats().train()
    memory = captioner.encode(videos())
    plain = caption_loss(captioner, memory, TARGETS, smoothing=DEMO.smoothing)
    found = loss(captioner, memory, DEMO.model_copy(update={"auxiliary_weight": 0.7}))
    assert float(found["auxiliary"].detach()) > 0
    torch.testing.assert_close(found["total"], plain.cross_entropy + 0.7 * plain.auxiliary)


def test_hard_attention_descends_its_bound_whatever_the_smoothing() -> None:
    captioner = tiny_dual_afr(dual_afr_config(kind="hard", samples=3)).train()
    memory = captioner.encode(videos())
    found = loss(captioner, memory)
    torch.manual_seed(1)
    wanted = captioner.multi_sample_loss(memory, TARGETS)
    torch.testing.assert_close(found["total"], wanted.surrogate)
    torch.testing.assert_close(found["loss"], wanted.bound)
    unsmoothed = loss(captioner, memory, DEMO.model_copy(update={"smoothing": 0.0}))
    torch.testing.assert_close(unsmoothed["total"], found["total"])


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_only_hard_attention_has_the_bound(kind: str) -> None:
    captioner: DualAFR = tiny_dual_afr(dual_afr_config(kind=kind)).train()
    assert ("shot" in loss(captioner, captioner.encode(videos()))) == (kind == "soft")
