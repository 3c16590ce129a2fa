"""What each captioner tells of itself, for a video alone and in a batch that pads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from extractors.features import Features
from models.caption import Caption, MomentsExplanation, WeightsExplanation, join_words
from models.captioner import Captioner
from models.checkpoint import Card, Checkpoint
from models.combining.caption_writers import SingleWriter
from models.decoding.decode import DecodingOptions, decode
from models.feature_sources.stream_checks import StreamMismatch
from tests.models.parts import find_part, list_names
from tests.models.tiny import (
    BOXES,
    GRID,
    SPEC,
    stats_config,
    tiny_dual_afr,
    tiny_g2l,
    tiny_refocus,
    tiny_spatial,
    tiny_stats,
    tiny_temporal,
    tiny_vanilla,
    videos,
)

OPTIONS = DecodingOptions(beam_size=2, max_length=5)
LENGTHS = (3, 1, 5)
OWN: dict[str, tuple[Callable[[], Captioner], set[str]]] = {
    "stats": (tiny_stats, {"branch", "st_spatial"}),
    "g2l": (tiny_g2l, {"selected"}),
    "refocus": (tiny_refocus, {"key_frames", "refocus"}),
    "dual_afr": (tiny_dual_afr, {"layers"}),
    "vanilla": (tiny_vanilla, set()),
    "temporal": (tiny_temporal, set()),
    "spatial": (tiny_spatial, set()),
}


def checkpoint(captioner: Captioner) -> Checkpoint:
    streams = {stream.name: SPEC for stream in captioner.config.streams}  # type: ignore[attr-defined]
    return Checkpoint(captioner, Card(captioner.name, streams, {}, {}), "0" * 64)


def best_of(captioner: Captioner, features: list[Features]) -> list[Caption]:
    return [captions[0] for captions in SingleWriter(checkpoint(captioner)).caption(features, OPTIONS)]


@pytest.mark.parametrize("name", OWN)
def test_each_has_its_own_and_no_other(name: str) -> None:
    make, own = OWN[name]
    for found in best_of(make(), videos(LENGTHS)):
        assert found.attention is not None
        assert list_names(found.attention) == own


@pytest.mark.parametrize("name", OWN)
def test_a_batchs_padding_is_not_told(name: str) -> None:
    captioner = OWN[name][0]()
    together = best_of(captioner, videos(LENGTHS))
    for features, found in zip(videos(LENGTHS), together, strict=True):
        (alone,) = best_of(captioner, [features])
        assert found.text == alone.text
        assert found.attention is not None
        assert alone.attention is not None
        same(found.attention.model_dump(mode="json"), alone.attention.model_dump(mode="json"))


def same(ours: Any, other: Any) -> None:
    """Equal up to the last digit that is told."""
    assert type(ours) is type(other)
    if isinstance(ours, dict):
        assert ours.keys() == other.keys()
        for key, value in ours.items():
            same(value, other[key])
    elif isinstance(ours, list):
        assert len(ours) == len(other)
        for value, its in zip(ours, other, strict=True):
            same(value, its)
    else:
        assert ours == (pytest.approx(other, abs=3e-5) if isinstance(ours, float) else other)


def test_g2l_tells_the_frames_that_it_took_and_how_heavy_they_were() -> None:
    captioner = tiny_g2l()
    for frames, found in zip(LENGTHS, best_of(captioner, videos(LENGTHS)), strict=True):
        assert found.attention is not None
        selected = find_part(found.attention, "selected", MomentsExplanation).words
        assert selected is not None
        assert len(selected) == len(found.words)
        for word, chosen in enumerate(selected):
            assert len(chosen) == min(captioner.config.key_frames, frames)
            weights = found.attention.temporal[word] or []
            heaviest = sorted(weights, reverse=True)[: len(chosen)]
            assert sorted((each.weight or 0.0 for each in chosen), reverse=True) == pytest.approx(
                heaviest, abs=2e-5
            )
            for each in chosen:
                assert each.time == found.attention.times[each.moment][0]


def test_refocus_tells_both_key_frames_and_what_was_written_from_each() -> None:
    captioner = tiny_refocus()
    features = videos(LENGTHS)
    memory = captioner.encode(features)
    first = decode(captioner, memory.first_step(), OPTIONS)
    for video, found in enumerate(best_of(captioner, features)):
        middle = LENGTHS[video] // 2
        alpha = find_part(found.attention, "refocus", WeightsExplanation).caption
        frames = find_part(found.attention, "key_frames", MomentsExplanation).caption
        assert alpha is not None
        assert frames is not None
        default, key = frames
        assert (default.moment, default.time, default.weight) == (middle, float(middle), alpha[middle])
        assert key.moment == int(np.argmax(alpha)) == int(memory.encoding.key[video])
        assert default.text == join_words(captioner.vocabulary.decode(first[video][0].tokens))
        assert key.text == found.text


def test_stats_tells_the_shares_of_each_streams_branches() -> None:
    (found,) = best_of(tiny_stats(stats_config(GRID, BOXES)), videos((3,)))
    assert found.attention is not None
    assert list_names(found.attention) == {"branch:grid", "branch:boxes", "st_spatial"}
    shares = find_part(found.attention, "branch:boxes", WeightsExplanation).words
    assert [sum(row or []) for row in shares or []] == pytest.approx([1.0] * len(found.words), abs=1e-4)


def test_dual_afr_tells_a_weight_a_layer_for_each_word_but_the_first() -> None:
    captioner = tiny_dual_afr()
    captioner.output.bias.data[0] = -50.0  # it goes on to the longest caption
    (found,) = best_of(captioner, videos((3,)))
    assert len(found.words) == OPTIONS.max_length
    layers = find_part(found.attention, "layers", WeightsExplanation)
    assert [each.name for each in layers.choices or []] == ["grid", "grid"]
    assert layers.words is not None
    assert layers.words[0] is None
    assert found.attention is not None
    assert found.attention.temporal[0] is None
    assert [sum(row or []) for row in layers.words[1:]] == pytest.approx(
        [1.0] * (len(found.words) - 1), abs=1e-4
    )


def test_a_caption_without_words_has_attention_without_rows() -> None:
    """Refocus's key frames are the video's, so that they are told all the same."""
    captioner = tiny_refocus()
    silent = OPTIONS.changed(max_length=1)
    captioner.output.bias.data[0] = 50.0  # the end at once
    ((found,),) = SingleWriter(checkpoint(captioner)).caption(videos((3,)), silent)
    assert found.text == ""
    assert found.attention is not None
    assert (found.attention.words, found.attention.temporal) == ([], [])
    assert len(found.attention.times) == 3
    frames = find_part(found.attention, "key_frames", MomentsExplanation).caption
    assert [each.text for each in frames or []] == ["", ""]


def test_sound_may_be_missing_and_nothing_else() -> None:
    """The boxes stand for the sound of tiny_refocus."""
    captioner = tiny_refocus()
    assert captioner.optional_streams == {"boxes"}
    assert best_of(captioner, [{"grid": video["grid"]} for video in videos(LENGTHS)])
    with pytest.raises(StreamMismatch, match="refocus needs the stream 'grid'"):
        best_of(captioner, [{"boxes": videos((2,))[0]["boxes"]}])
    assert tiny_stats().optional_streams == frozenset()
