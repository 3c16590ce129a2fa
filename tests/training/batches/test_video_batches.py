"""Every captioner eats batches of real videos as it eats their features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from models.captioner import AnyCaptioner
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
from training.batches.video_batches import VideoInputs

MADE = (tiny_stats, tiny_g2l, tiny_refocus, tiny_dual_afr, tiny_vanilla, tiny_temporal, tiny_spatial)


def first_words(captioner: AnyCaptioner, memory: Any) -> torch.Tensor:
    """Log-probabilities (B, V) of the first word."""
    log_probs, _, _ = captioner.step(captioner.start(memory, 1), captioner.first_word(memory, 1), memory)
    return log_probs


@pytest.mark.parametrize("make", MADE)
def test_batches_and_features_give_the_same_words(make: Callable[[], Any]) -> None:
    captioner, features = make(), videos()
    batches = VideoInputs.for_captioner(captioner).collate(features)
    assert set(batches) == {stream.name for stream in captioner.config.streams}
    with torch.no_grad():
        memory = captioner.encode_batches([batches[stream.name] for stream in captioner.config.streams])
        wanted = captioner.encode(features)
        torch.testing.assert_close(first_words(captioner, memory), first_words(captioner, wanted))


def test_sound_may_be_missing() -> None:
    captioner: Any = tiny_refocus()
    inputs = VideoInputs.for_captioner(captioner)
    assert inputs.optional == {captioner.config.audio.name}
    silent = [{"grid": video["grid"]} for video in videos()]
    batches = inputs.collate(silent)
    assert not batches[captioner.config.audio.name].frame_mask.any()
