"""What every captioner of the registry promises to the decoding loop, the losses and the service."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.captioner import Captioner
from models.captioners.labelled.network import LabelledSTaTS
from models.captioners.registry import UnknownCaptioner, captioner_class, list_captioners
from models.checkpoint import Card, load_checkpoint, save_checkpoint
from models.decoding.decode import DecodingOptions, decode
from models.memory import Memory, State, TensorRows
from models.vocabulary import BOS
from tests.models.tiny import (
    BOXES,
    GRID,
    SPEC,
    dual_afr_config,
    refocus_config,
    stats_config,
    tiny_dual_afr,
    tiny_g2l,
    tiny_refocus,
    tiny_spatial,
    tiny_stats,
    tiny_temporal,
    tiny_transformer,
    tiny_vanilla,
    transformer_config,
    videos,
)

#: A small captioner of each registered name; a new name fails the first test until it stands here.
TINY: dict[str, Callable[[], Captioner]] = {
    "stats": lambda: tiny_stats(stats_config(GRID, BOXES, classes=3, class_width=2)),
    "g2l": tiny_g2l,
    "refocus": lambda: tiny_refocus(refocus_config(frozen_key_frames=True, tie_words=True)),
    "vanilla": tiny_vanilla,
    "temporal": tiny_temporal,
    "spatial": tiny_spatial,
    "dual_afr": lambda: tiny_dual_afr(dual_afr_config(kind="hard")),
    "transformer": lambda: tiny_transformer(transformer_config(encoder_layers=1)),
}
KIND = pytest.mark.parametrize("captioner", [make() for make in TINY.values()], ids=list(TINY))
WORDS = torch.tensor([3, 4, 5, 6, 7, 8])  # three videos, two rows each


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_every_registered_captioner_is_tested_here_and_has_a_demo_config() -> None:
    registered = list_captioners()
    assert registered.keys() == TINY.keys() | {LabelledSTaTS.name}  # which tests/models/labels tries
    for name, captioner in registered.items():
        assert captioner.kind.name == name
        assert captioner_class(name) is captioner.kind
        assert captioner.description.demo


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownCaptioner, match=r"'lstm'.*stats"):
        captioner_class("lstm")


@KIND
def test_log_probabilities_are_normalised_float32(captioner: Captioner) -> None:
    log_probs, _, _ = two_steps(captioner, captioner.encode(videos()), WORDS)
    assert log_probs.shape == (6, len(captioner.vocabulary))
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(6))


@KIND
def test_attention_sums_to_one_and_padding_gets_none(captioner: Captioner) -> None:
    memory = captioner.encode(videos((3, 1, 5)))
    _, _, attention = two_steps(captioner, memory, WORDS)
    assert attention.temporal.shape == (6, 5)
    torch.testing.assert_close(attention.temporal.sum(1), torch.ones(6))
    for row, frames in enumerate([3, 3, 1, 1, 5, 5]):
        assert not attention.temporal[row, frames:].any()
        if attention.spatial is not None:
            sums = attention.spatial[row].sum(1)
            torch.testing.assert_close(sums[:frames], torch.ones(frames))
            assert not sums[frames:].any()
    assert all(len(value) == 6 for value in attention.extras.values())
    assert attention.loss is None


@KIND
def test_times_are_those_of_the_stream(captioner: Captioner) -> None:
    memory = captioner.encode(videos((3, 1, 5)))
    assert memory.size == 3
    assert memory.times[2].tolist() == [[t, t + 1] for t in range(5)]


@KIND
def test_padding_a_batch_changes_nothing(captioner: Captioner) -> None:
    together, _, looked = two_steps(captioner, captioner.encode(videos((3, 1, 5))), WORDS)
    for i, features in enumerate(videos((3, 1, 5))):
        rows = slice(2 * i, 2 * i + 2)
        alone, _, own = two_steps(captioner, captioner.encode([features]), WORDS[rows])
        close(together[rows], alone)
        frames = own.temporal.shape[1]
        close(looked.temporal[rows, :frames], own.temporal)


@KIND
def test_rows_of_a_video_equal_repeating_its_memory(captioner: Captioner) -> None:
    memory = captioner.encode(videos())
    repeated = memory.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    shared, _, looked = two_steps(captioner, memory, WORDS)
    copied, _, own = two_steps(captioner, repeated, WORDS)
    close(shared, copied)
    close(looked.temporal, own.temporal)


@KIND
def test_selected_rows_go_on_as_they_would_have(captioner: Captioner) -> None:
    """As beams are reordered: within each video, with repeats."""
    memory = captioner.encode(videos())
    _, state, _ = two_steps(captioner, memory, WORDS)
    index = torch.tensor([1, 1, 3, 2, 4, 4])
    log_probs, _, _ = captioner.step(state, WORDS.flip(0), memory)
    moved, _, _ = captioner.step(state.select(index), WORDS.flip(0)[index], memory)
    close(moved, log_probs[index])


@KIND
def test_selected_videos_are_described_as_before(captioner: Captioner) -> None:
    memory = captioner.encode(videos())
    first, _, _ = two_steps(captioner, memory, WORDS)
    turned, _, _ = two_steps(captioner, memory.select(torch.tensor([2, 0])), WORDS[[4, 5, 0, 1]])
    close(turned, first[[4, 5, 0, 1]])


@KIND
def test_a_step_leaves_the_state_before_it_as_it_was(captioner: Captioner) -> None:
    """Beams share states; a captioner that wrote into one would corrupt the others."""
    memory = captioner.encode(videos())
    _, state, _ = two_steps(captioner, memory, WORDS)
    before = [value.clone() for value in tensors(state)]
    first, _, _ = captioner.step(state, WORDS, memory)
    again, _, _ = captioner.step(state, WORDS, memory)
    assert torch.equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(before, tensors(state), strict=True))


@KIND
def test_the_first_word_is_begin_of_sentence(captioner: Captioner) -> None:
    assert captioner.first_word(captioner.encode(videos()), 2).tolist() == [BOS] * 6


@KIND
def test_every_tensor_of_state_and_memory_has_the_rows_first(captioner: Captioner) -> None:
    memory = captioner.encode(videos())
    _, state, attention = two_steps(captioner, memory, WORDS)
    assert {len(value) for value in tensors(memory)} == {3}
    assert {len(value) for value in tensors(state)} == {6}
    assert {len(value) for value in tensors(attention)} == {6}


@KIND
def test_one_beam_is_greedy(captioner: Captioner) -> None:
    memory = captioner.encode(videos())
    beam = decode(captioner, memory, DecodingOptions(beam_size=1, max_length=7))
    greedy = decode(captioner, memory, DecodingOptions(method="greedy", max_length=7))
    for (ours,), (theirs,) in zip(beam, greedy, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.score == pytest.approx(theirs.score)


@KIND
def test_a_checkpoint_describes_as_what_was_saved(captioner: Captioner, tmp_path: Path) -> None:
    rounded = deepcopy(captioner).half().float()
    path = tmp_path / "captioner.safetensors"
    save_checkpoint(path, captioner, Card(captioner.name, {"grid": SPEC}, {}, {}))
    loaded = load_checkpoint(path).captioner
    assert loaded.config == captioner.config
    ours, _, _ = two_steps(loaded, loaded.encode(videos()), WORDS)
    wanted, _, _ = two_steps(rounded, rounded.encode(videos()), WORDS)
    assert torch.equal(ours, wanted)


@pytest.mark.parametrize("name", TINY)
def test_demo_widths_stay_small(name: str) -> None:
    from models.vocabulary import Vocabulary
    from training.recipes.demo_recipes import DEMO

    words = [f"w{i}" for i in range(DEMO.vocabulary_size)]
    registered = list_captioners()[name]
    captioner = registered.kind(registered.make_demo_config(), Vocabulary(words))
    parameters = sum(p.numel() for p in captioner.parameters())
    assert parameters <= (5_000_000 if name == "stats" else 3_000_000)


@dataclass(frozen=True, eq=False)
class Nested(TensorRows):
    """All that ``select`` has to reach into."""

    plain: Tensor
    inner: tuple[Memory, ...]
    extras: dict[str, Tensor]
    absent: Tensor | None


def test_select_reaches_into_tuples_mappings_and_rows() -> None:
    memory = Memory(times=torch.arange(12.0).view(3, 2, 2))
    rows = Nested(torch.arange(3), (memory,), {"a": torch.arange(3) * 10}, None)
    chosen = rows.select(torch.tensor([2, 0, 2]))
    assert chosen.plain.tolist() == [2, 0, 2]
    assert chosen.inner[0].times[:, 0, 0].tolist() == [8, 0, 8]
    assert chosen.extras["a"].tolist() == [20, 0, 20]
    assert chosen.absent is None


def two_steps(captioner: Captioner, memory: Any, words: Tensor) -> tuple[Tensor, State, Any]:
    """<bos>, then ``words`` (R,): the second step's answer."""
    rows = len(words) // memory.size
    state = captioner.start(memory, rows)
    with torch.no_grad():
        _, state, _ = captioner.step(state, captioner.first_word(memory, rows), memory)
        log_probs, state, attention = captioner.step(state, words, memory)
    return log_probs, state, attention


def tensors(value: Any) -> list[Tensor]:
    """Every tensor of a dataclass, its tuples, mappings and dataclasses within."""
    if isinstance(value, Tensor):
        return [value]
    if is_dataclass(value):
        return [t for f in fields(value) for t in tensors(getattr(value, f.name))]
    if isinstance(value, tuple):
        return [t for item in value for t in tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors(item)]
    return []
