"""What rows are judged by: the same samples for all, where words looked, what kinds of words they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lab.ablations.corpus import GROUP, STEPS, JudgedPictures
from lab.ablations.readers import OPTIONS, RerankedReader, SingleReader
from lab.ablations.scoring import measure_attention
from models.captioner import Captioner
from models.combining.reranking import Reranker
from models.decoding.decode import DecodingOptions, decode
from models.inputs import collate_inputs
from models.memory import StepAttention
from tests.models.captioners.test_semantic_embedding import tiny_embedding
from tests.models.tiny import GRID_INPUT, tiny_dual_afr, tiny_g2l, tiny_refocus, tiny_stats, videos
from tests.training.tiny_corpus import captioned
from training.batches.picture_batches import TrainingItem

TRUE = np.array([False, True, True, False])


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[TrainingItem]:
    return captioned(tmp_path_factory.mktemp("shapes"), 12)


def test_shots_are_the_same_for_all_and_stand_between_other_pictures(items: list[TrainingItem]) -> None:
    one, again = JudgedPictures.show("shots", items), JudgedPictures.show("shots", items)
    places = set()
    for place, item in enumerate(items):
        shown = one.draw_sample(place)
        assert np.array_equal(shown.values["grid"], again.draw_sample(place).values["grid"])
        assert len(shown.true) == STEPS["shots"]
        assert 0 < shown.true.sum() < len(shown.true)
        cache, [row] = item.pictures.cache, item.pictures.rows
        own = cache.streams["grid"][row]
        are_own = [any(np.array_equal(step, view) for view in own) for step in shown.values["grid"]]
        assert are_own == shown.true.tolist()
        places.add(tuple(shown.true))
    assert len(places) > 3


def test_stills_are_the_whole_picture(items: list[TrainingItem]) -> None:
    [(group, samples)] = JudgedPictures.show("stills", items).draw_groups()
    assert list(group) == items
    assert len(items) < GROUP
    for item, shown in zip(items, samples, strict=True):
        assert shown.true.tolist() == [True]
        assert np.array_equal(
            shown.values["grid"][0], item.pictures.cache.streams["grid"][item.pictures.rows[0], 0]
        )


def looked(temporal: list[list[float]], **extras: torch.Tensor) -> dict[str, float]:
    return dict(measure_attention(StepAttention(torch.tensor(temporal), None, extras), TRUE))


def test_attention_on_the_true_shot() -> None:
    found = looked([[0.4, 0.3, 0.1, 0.2], [0.0, 0.0, 1.0, 0.0]])
    assert found == pytest.approx({"chance": 0.5, "attention": 0.7, "word_frame": 0.5})


@pytest.mark.parametrize("make", [tiny_stats, tiny_dual_afr, tiny_refocus])
def test_attention_is_read_at_the_words_of_given_captions(make: Callable[[], Captioner]) -> None:
    """A caption's end is no word, and dualAFR's first word has no attention."""
    captioner: Any = make()
    features = videos((3, 3))
    streams = captioner.config.streams
    pairs = zip(streams, collate_inputs(features, streams, torch.device("cpu")), strict=True)
    batches = {stream.name: batch for stream, batch in pairs}
    with torch.no_grad():
        found = SingleReader(captioner).read_attention(batches, [("w1", "w4", "w2"), ("w5", "w0")])
        [alone] = SingleReader(captioner).read_attention(
            {name: batch.select(torch.tensor([1])) for name, batch in batches.items()}, [("w5", "w0")]
        )
    silent = 1 if captioner.name == "dual_afr" else 0
    assert [tuple(each.temporal.shape) for each in found] == [(3 - silent, 3), (2 - silent, 3)]
    torch.testing.assert_close(found[1].temporal, alone.temporal)
    assert all(len(value) == 2 - silent for value in found[1].extras.values())
    assert not torch.allclose(found[0].temporal[-1], found[1].temporal[-1])


def test_fused_captions_are_those_of_a_fusion_of_the_same_weight() -> None:
    """The paper's where none is given; and what the members find likely makes a difference."""
    members: dict[str, Captioner] = {"a": tiny_stats(), "b": tiny_stats(seed=1)}
    embedding, features = tiny_embedding(streams=(GRID_INPUT,)), videos((3, 1, 5, 2))
    [batch] = collate_inputs(features, [GRID_INPUT], torch.device("cpu"))
    found = {}
    for reader in (RerankedReader(members, embedding), RerankedReader(members, embedding, 1e4)):
        weight = reader.likelihood_weight
        with torch.inference_mode():
            found[weight] = reader.write_captions({"grid": batch})
        served = Reranker(members, embedding, weight).caption(features, OPTIONS, OPTIONS.beam_size)
        assert found[weight] == [each.best.words for each in served]
    assert found.keys() == {0.0, 1e4}
    assert found[0.0] != found[1e4]


def test_key_frames_on_the_true_shot() -> None:
    even = [[0.25] * 4] * 2
    selected = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
    assert looked(even, selected=selected)["selected"] == pytest.approx(0.75)
    keys = {"key_frame": torch.tensor([3, 3]), "default_key_frame": torch.tensor([2, 2])}
    found = looked(even, **keys)
    assert (found["key_frame"], found["middle"]) == (0.0, 1.0)
    none = {name: value[:0] for name, value in keys.items()}
    empty = StepAttention(torch.zeros(0, 4), None, none)
    assert measure_attention(empty, TRUE)["key_frame"] == 0.5


def test_the_same_weights_are_read_under_another_config() -> None:
    captioner = tiny_g2l()
    looked = []
    for each in (captioner, captioner.with_config({"masked": {"al": 0.5}})):
        [[written]] = decode(each, each.encode(videos((5,))), DecodingOptions(beam_size=1, max_length=5))
        assert written.attention is not None
        looked.append(written.attention.temporal[0])
    assert [int((weights > 0).sum()) for weights in looked] == [5, 3]
