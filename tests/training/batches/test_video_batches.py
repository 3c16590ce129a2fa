"""Every captioner eats batches of real videos as it eats their features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from extractors.features import Features
from models.captioner import Captioner
from models.inputs import BatchLayout
from models.vocabulary import Vocabulary
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
from training.batches.training_batch import BatchPart, TrainingBatch, TrainingBatches
from training.batches.video_batches import VideoInputs

MADE = (tiny_stats, tiny_g2l, tiny_refocus, tiny_dual_afr, tiny_vanilla, tiny_temporal, tiny_spatial)


def first_words(captioner: Captioner, memory: Any) -> torch.Tensor:
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


def halved(video: Features) -> Features:
    return {name: replace(stream, values=stream.values.half()) for name, stream in video.items()}


@pytest.mark.parametrize("make", MADE)
def test_half_precision_that_is_kept_is_read_as_if_it_had_not_been(make: Callable[[], Any]) -> None:
    captioner, features = make(), [halved(video) for video in videos()]
    inputs = VideoInputs.for_captioner(captioner)
    plain = TrainingBatch((), inputs.collate(features), torch.empty(0), None)
    kept = replace(plain, batches=replace(inputs, layout=BatchLayout(keeps_half=True)).collate(features))
    for name, batch in kept.batches.items():
        assert batch.values.dtype == torch.float16
        assert torch.equal(batch.values.float(), plain.batches[name].values)
        assert torch.equal(batch.region_mask, plain.batches[name].region_mask)
    for one, other in zip(plain.inputs_of(captioner), kept.inputs_of(captioner), strict=True):
        assert torch.equal(one.values, other.values)


@pytest.mark.parametrize("make", MADE)
def test_batches_of_fixed_shapes_give_the_same_words(make: Callable[[], Any]) -> None:
    captioner, features = make(), videos()
    inputs = VideoInputs.for_captioner(captioner)
    fixed = inputs.fix_shapes([Loaded(video) for video in features])  # type: ignore[misc]
    short = inputs.collate(features[:1])
    long = fixed.collate(features[:1])
    everything = inputs.collate(features)
    for name, batch in long.items():
        assert batch.values.shape[1:] == everything[name].values.shape[1:]
        assert batch.values.shape[1] > short[name].values.shape[1]
    words = []
    for batches in (short, long):
        with torch.no_grad():
            memory = captioner.encode_batches([batches[each.name] for each in captioner.inputs])
            words.append(first_words(captioner, memory))
    torch.testing.assert_close(words[0], words[1])


class Loaded:
    """A video whose features are at hand."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def load(self) -> Features:
        return self._features


@dataclass(frozen=True)
class Captioned:
    id: str
    captions: tuple[tuple[str, ...], ...]


class Chosen(TrainingBatches[Captioned]):
    """Batches that say which captions they take."""

    def at(self, step: int) -> TrainingBatch:
        taken = self.part.of(self._choose_captions(step))
        places = tuple(place for _, of_item in taken for place in of_item)
        return TrainingBatch(tuple(item.id for item, _ in taken), {}, torch.zeros(0), None, None, places)

    def pairs(self, *steps: int) -> list[tuple[str, int]]:
        batches = [self.at(step) for step in steps]
        return [pair for each in batches for pair in zip(each.ids, each.places, strict=True)]


def test_an_epoch_is_every_caption_once() -> None:
    """Eleven captions of three videos, four a batch: the third batch ends one epoch and begins the next."""
    items = [Captioned(name, (("a",),) * count) for name, count in (("x", 1), ("y", 8), ("z", 2))]
    batches = Chosen(items, Vocabulary(["a"]), 4, 1, 9, 7, every_caption=True)
    assert batches.steps_per_epoch == 3
    shown = batches.pairs(*range(11))
    every = {(item.id, place) for item in items for place in range(len(item.captions))}
    for epoch in range(4):
        assert set(shown[11 * epoch : 11 * epoch + 11]) == every
    assert shown[:11] != shown[11:22]
    assert Counter(shown) == dict.fromkeys(every, 4)
    assert shown == replace(batches).pairs(*range(11)), "a step follows from the seed and its number"
    halves = [replace(batches, part=BatchPart(number, 2)).pairs(5) for number in (0, 1)]
    assert [*halves[0], *halves[1]] == batches.pairs(5)
    several = batches.with_captions(2).at(0)
    assert (len(several.ids), len(several.places)) == (3, 6), "several of a video are drawn"
