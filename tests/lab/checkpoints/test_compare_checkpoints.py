"""Marks of checkpoints on held-out pictures, against each picture alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.checkpoints import compare_checkpoints
from lab.checkpoints.compare_checkpoints import WAYS, CheckpointScore, HeldOutPictures, score_checkpoint
from lab.pictures.picture_batches import TrainingItem
from lab.pictures.pseudo_video import sample_whole, stack_samples
from models.captioners.stats.config import StreamConfig
from models.captioners.stats.network import STaTS
from models.decoding.decode import decode
from models.inputs import order_inputs
from models.likelihood import teacher_force
from models.vocabulary import EOS, Vocabulary
from tests.models.tiny import randomised, stats_config
from tests.training.tiny_corpus import captioned
from training.scores.cider import CiderD


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[TrainingItem]:
    """One has fewer captions than the others."""
    first, *others = captioned(tmp_path_factory.mktemp("corpus"), 7)
    return [replace(first, captions=first.captions[:2]), *others]


@torch.inference_mode()
def test_marks_are_the_means_over_pictures_and_ways(
    items: list[TrainingItem], monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = Vocabulary.from_captions((c for item in items for c in item.captions), size=40)
    ours = STaTS(stats_config(StreamConfig(name="grid", width=8)), vocabulary)
    randomised(ours, 3)
    monkeypatch.setattr(compare_checkpoints, "GROUP", 3)
    found = score_checkpoint(ours.eval(), HeldOutPictures.from_items(items))
    scorer = CiderD({item.id: item.captions for item in items})
    for i, item in enumerate(items):
        memory = ours.encode_batches(order_inputs(ours.inputs, stack_samples([sample_whole(item.pictures)])))
        by_way = []
        for options in WAYS:
            [[best, *_]] = decode(ours, memory, options)
            by_way.append(100 * float(scorer.score([item.id], [vocabulary.decode(best.tokens)])[0]))
        assert found.cider[i] == pytest.approx(np.mean(by_way))
        nats = 0.0
        for caption in item.captions:
            targets = torch.tensor([[*vocabulary.encode(caption), EOS]])
            nats -= float(teacher_force(ours, memory, targets).log_p.sum())
        words = sum(len(caption) + 1 for caption in item.captions)
        if len(item.captions) == 3:
            assert (found.nats[i], found.words[i]) == (pytest.approx(nats, rel=1e-4), words)
        else:  # its first caption twice
            assert words < found.words[i] < 2 * words


def test_differences_are_paired() -> None:
    first = CheckpointScore(np.array([1.0, 5.0, 9.0]), np.array([4.0, 4.0, 4.0]), np.array([2.0, 4.0, 2.0]))
    second = CheckpointScore(first.cider + np.array([1.0, 1.0, 4.0]), first.nats, first.words)
    assert second.compare_with(first) == pytest.approx((2.0, 2**0.5 / 3**0.5))
    assert first.compare_with(first) == (0.0, 0.0)
    assert first.nats_a_word == pytest.approx(1.5)
