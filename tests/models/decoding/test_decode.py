"""The decoding loop against brute force, and what must not change its answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.decoding.constraints import BAD_ENDINGS, FUNCTION_WORDS
from models.decoding.decode import DecodingOptions, Hypothesis, decode
from models.memory import StepAttention
from models.vocabulary import BOS, EOS, UNK
from tests.models.brute_force import (
    Allowed,
    Scored,
    anything,
    diverse_beam,
    every_sequence,
    lone,
    plain_beam,
    ranked,
)
from tests.models.toy_captioners import Numbered, Prefixes, RandomToy, Toy, videos

WORDS = ("dog", "a", "runs", "the")
FREE = DecodingOptions(suppress_unk=False, name_once=False, max_length=4, length_penalty=0.0)


def options(**changes: Any) -> DecodingOptions:
    return FREE.changed(**changes)


def tokens_of(found: Hypothesis) -> tuple[int, ...]:
    return found.tokens + ((EOS,) if found.finished else ())


def check_equal(found: list[Hypothesis], wanted: list[Scored], exponent: float) -> None:
    assert [tokens_of(h) for h in found] == [s.tokens for s in wanted]
    assert [h.score for h in found] == pytest.approx([s.score(exponent) for s in wanted], abs=1e-12)
    for h in found:
        total = sum(h.logprobs) + (h.end_logprob or 0.0)
        assert h.score == pytest.approx(total / len(tokens_of(h)) ** exponent, abs=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_wide_enough_beams_find_the_best_of_all_sequences(exponent: float) -> None:
    captioner, memory = RandomToy(WORDS, seed=3), videos(0, 1, 2)
    search = options(beam_size=1555, num_captions=6, length_penalty=exponent)
    found = decode(captioner, memory, search)
    for video in range(3):
        everything = every_sequence(captioner, lone(memory, video), FREE.max_length)
        assert sum(torch.tensor(s.total).exp() for s in everything) < 1
        check_equal(found[video], ranked(everything, exponent)[:6], exponent)


@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 6),
    captions=st.integers(1, 6),
    exponent=st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0, 1.5]),
    ending=st.sampled_from([-2.0, 0.0, 2.0, 4.0]),
    scale=st.sampled_from([0.5, 2.0, 4.0]),
)
@settings(max_examples=50, deadline=None)
def test_equals_plain_beam_search_which_never_stops_early(
    seed: int, width: int, captions: int, exponent: float, ending: float, scale: float
) -> None:
    captioner, memory = RandomToy(WORDS, seed, scale, ending), videos(0, 3)
    captions = min(captions, width)
    search = options(beam_size=width, num_captions=captions, length_penalty=exponent, max_length=6)
    for video, found in enumerate(decode(captioner, memory, search)):
        beams = plain_beam(captioner, lone(memory, video), width, search.max_length)
        check_equal(found, ranked(beams, exponent)[:captions], exponent)


class CountingToy(RandomToy):
    steps = 0

    def step(
        self, state: Prefixes, word: Tensor, memory: Numbered
    ) -> tuple[Tensor, Prefixes, StepAttention | None]:
        self.steps += 1
        return super().step(state, word, memory)


def test_stops_when_no_open_beam_can_win() -> None:
    captioner = CountingToy(WORDS, seed=5, ending=4.0)
    decode(captioner, videos(0, 1), options(beam_size=3, max_length=50))
    assert captioner.steps < 10
    captioner.steps = 0
    decode(captioner, videos(0, 1), options(beam_size=3, max_length=50, num_captions=3))
    assert captioner.steps < 50


class RecordingToy(RandomToy):
    """Keeps what it was asked of at each step: the videos' numbers and the words so far."""

    def __init__(self, seed: int) -> None:
        super().__init__(WORDS, seed=seed, ending=2.0)
        self.asked: list[tuple[list[int], Tensor]] = []

    def step(
        self, state: Prefixes, word: Tensor, memory: Numbered
    ) -> tuple[Tensor, Prefixes, StepAttention | None]:
        log_probs, state, attention = super().step(state, word, memory)
        self.asked.append((memory.video.tolist(), state.tokens[:, 1:]))
        return log_probs, state, attention


def test_a_captioner_is_not_asked_of_finished_beams() -> None:
    for seed in range(10):
        captioner = RecordingToy(seed)
        decode(captioner, videos(seed % 8), options(beam_size=4, num_captions=4, max_length=9))
        assert min(len(tokens) for _, tokens in captioner.asked[1:]) < 4
        assert not any((tokens == EOS).any() for _, tokens in captioner.asked)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("captions", [1, 3])
def test_a_settled_video_leaves_its_batch_and_nothing_changes(groups: int, captions: int) -> None:
    numbers, left = range(8), 0
    search = options(beam_size=4, group_size=groups, num_captions=captions, max_length=12, length_penalty=0.5)
    for seed in range(10):
        captioner = RecordingToy(seed)
        together = decode(captioner, videos(*numbers), search)
        left += len(captioner.asked[0][0]) - len(captioner.asked[-1][0])
        for number, found in zip(numbers, together, strict=True):
            [alone] = decode(captioner, videos(number), search)
            assert [(h.tokens, h.score) for h in found] == [(h.tokens, h.score) for h in alone]
            assert found[0].attention is not None
            assert alone[0].attention is not None
            assert torch.equal(found[0].attention.temporal, alone[0].attention.temporal)
    assert left > 20


@pytest.mark.parametrize(
    "changes", [{}, {"block_trigrams": True}, {"decoding_constraint": True}, {"name_once": True}]
)
def test_one_beam_is_greedy(changes: dict[str, bool]) -> None:
    for seed in range(20):
        captioner, memory = RandomToy(WORDS, seed), videos(0, 1, 2, 3)
        one_beam = decode(captioner, memory, options(beam_size=1, max_length=9, **changes))
        greedy = decode(captioner, memory, options(method="greedy", max_length=9, **changes))
        for [beam], [choice] in zip(one_beam, greedy, strict=True):
            assert (beam.tokens, beam.logprobs, beam.finished) == (
                choice.tokens,
                choice.logprobs,
                choice.finished,
            )
            assert beam.score == pytest.approx(choice.score, abs=1e-12)
            assert beam.attention is not None
            assert choice.attention is not None
            assert torch.equal(beam.attention.temporal, choice.attention.temporal)


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_companions_and_their_padding_change_nothing(method: Any) -> None:
    captioner = RandomToy(WORDS, seed=8)
    search = options(method=method, beam_size=4, max_length=7, length_penalty=0.5)
    together = decode(captioner, videos(2, 0, 5, 2, frames=[3, 1, 9, 6]), search)
    for video, frames, [found] in zip((2, 0, 5, 2), (3, 1, 9, 6), together, strict=True):
        [[alone]] = decode(captioner, videos(video, frames=[frames]), search)
        assert (found.tokens, found.logprobs, found.score) == (alone.tokens, alone.logprobs, alone.score)
        assert found.attention is not None
        assert alone.attention is not None
        assert torch.equal(found.attention.temporal[:, :frames], alone.attention.temporal)
        assert not found.attention.temporal[:, frames:].any()


@given(seed=st.integers(0, 10_000), width=st.integers(1, 5), groups=st.sampled_from([1, 2]))
@settings(max_examples=30, deadline=None)
def test_attention_is_of_exactly_the_words_returned(seed: int, width: int, groups: int) -> None:
    captioner, memory = RandomToy(WORDS, seed), videos(1, 4, frames=[2, 3])
    beams = width * groups
    search = options(beam_size=beams, num_captions=beams, group_size=groups, max_length=6)
    for found in decode(captioner, memory, search):
        for h in found:
            before = [BOS, BOS, *h.tokens]
            assert h.attention is not None
            assert h.attention.extras["prefix"].tolist() == [
                [float(before[i]), float(before[i + 1])] for i in range(len(h.tokens))
            ]
            assert h.attention.temporal.shape == (len(h.tokens), 3)
            assert h.attention.spatial is not None
            assert h.attention.spatial.shape == (len(h.tokens), 3, 2)
            assert h.attention.loss is None


def test_attention_can_be_left_out_and_can_be_missing() -> None:
    class Half(RandomToy):
        """Has no attention for the first word."""

        def look(self, state: Prefixes, memory: Numbered) -> StepAttention:
            seen = super().look(state, memory)
            return seen if state.tokens.shape[1] > 1 else None  # type: ignore[return-value]

    memory = videos(0)
    [[plain]] = decode(RandomToy(WORDS, seed=1), memory, options(attention=False))
    assert plain.attention is None
    [[half]] = decode(Half(WORDS, seed=1, ending=-9), memory, options())
    assert half.attention is not None
    assert half.attention.temporal.sum(1).tolist() == pytest.approx([0, 1, 1, 1])


class FixedToy(Toy):
    """The same log-probabilities after every prefix, in a given dtype."""

    def __init__(
        self, words: tuple[str, ...], probs: list[float], dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__(words)
        self.log_probs = torch.tensor(probs, dtype=dtype).log()

    def next_log_probs(self, state: Prefixes) -> Tensor:
        return self.log_probs.expand(len(state.video), -1).clone()


def test_of_equal_scores_the_lower_word_of_the_earlier_beam_wins() -> None:
    words = tuple(f"w{i}" for i in range(40))
    captioner = FixedToy(words, [0.0, 0.0, 0.0] + [1 / 40] * 40)
    for method in ("beam", "greedy"):
        [[best]] = decode(captioner, videos(0), options(method=method, beam_size=5))
        assert best.tokens == (3, 3, 3, 3)
    [found] = decode(captioner, videos(0), options(beam_size=5, num_captions=5))
    assert [h.tokens for h in found] == [(3, 3, 3, word) for word in range(3, 8)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_precision_of_the_captioner(dtype: torch.dtype) -> None:
    captioner = FixedToy(("dog",), [0.1, 0.0, 0.2, 0.7], dtype)
    [[found]] = decode(captioner, videos(0), options(max_length=3))
    exact = float(torch.tensor(0.7, dtype=dtype).log())
    assert found.logprobs == (exact,) * 3


def test_more_captions_than_there_are_sequences() -> None:
    captioner = FixedToy(("dog",), [0.25, 0.0, 0.0, 0.75])
    [found] = decode(captioner, videos(0), options(beam_size=10, num_captions=10, max_length=2))
    assert [tokens_of(h) for h in found] == [(3, 3), (EOS,), (3, EOS)]


def test_a_captioner_that_gives_nan_is_refused() -> None:
    captioner = FixedToy(("dog",), [float("nan")] * 4)
    for method in ("beam", "greedy"):
        with pytest.raises(ValueError, match="not numbers"):
            decode(captioner, videos(0), options(method=method))


def _no_repeat(prefix: tuple[int, ...], word: int) -> bool:
    return word == EOS or prefix[-1:] != (word,)


def _no_trigram(prefix: tuple[int, ...], word: int) -> bool:
    written = [*prefix, word]
    trigrams = [tuple(written[i : i + 3]) for i in range(len(written) - 2)]
    return len(set(trigrams)) == len(trigrams)


def _name_once(prefix: tuple[int, ...], word: int) -> bool:
    return word == EOS or word not in prefix or WORDS[word - 3] in FUNCTION_WORDS


def _no_bad_ending(prefix: tuple[int, ...], word: int) -> bool:
    return word != EOS or not prefix or WORDS[prefix[-1] - 3] not in BAD_ENDINGS


def _no_unk(prefix: tuple[int, ...], word: int) -> bool:
    return word != UNK


CONSTRAINTS: dict[str, Allowed] = {
    "decoding_constraint": _no_repeat,
    "block_trigrams": _no_trigram,
    "name_once": _name_once,
    "remove_bad_endings": _no_bad_ending,
    "suppress_unk": _no_unk,
}


@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 4),
    chosen=st.sets(st.sampled_from(sorted(CONSTRAINTS)), min_size=1),
    ending=st.sampled_from([-6.0, 0.0]),
)
@settings(max_examples=30, deadline=None)
def test_constraints_hold_in_beam_search_as_in_the_slow_one(
    seed: int, width: int, chosen: set[str], ending: float
) -> None:
    chosen |= {
        "suppress_unk"
    }  # the unknown word has no place in WORDS, which _no_bad_ending and _name_once read
    captioner, memory = RandomToy(WORDS, seed, 2.0, ending), videos(0, 1)
    flags = {name: name in chosen for name in CONSTRAINTS}

    def allowed(prefix: tuple[int, ...], word: int) -> bool:
        return all(CONSTRAINTS[name](prefix, word) for name in chosen)

    found = decode(captioner, memory, options(beam_size=width, num_captions=width, max_length=8, **flags))
    for video in range(2):
        beams = plain_beam(captioner, lone(memory, video), width, 8, allowed)
        check_equal(found[video], beams, 0.0)


@given(seed=st.integers(0, 10_000), chosen=st.sampled_from(sorted(CONSTRAINTS)))
@settings(max_examples=30, deadline=None)
def test_constraints_hold_in_greedy_search_and_draws(seed: int, chosen: str) -> None:
    captioner, memory = RandomToy(WORDS, seed, 2.0, -2.0), videos(0, 1, 2)
    flags = {name: name in (chosen, "suppress_unk") for name in CONSTRAINTS}
    for search in ({"method": "greedy"}, {"method": "sample", "num_captions": 8, "seed": seed}):
        for found in decode(captioner, memory, options(max_length=12, **search, **flags)):
            for h in found:
                written = tokens_of(h)
                assert all(CONSTRAINTS[chosen](written[:i], word) for i, word in enumerate(written))


def test_the_best_words_so_far_are_told_as_they_are_written() -> None:
    captioner, memory = RandomToy(WORDS, seed=3), videos(0)
    heard: list[list[str]] = []
    search = options(beam_size=1, num_captions=1)
    ((best,),) = decode(captioner, memory, search.heard_by(lambda words: heard.append(list(words))))
    words = captioner.vocabulary.decode(best.tokens)
    assert heard[: len(words)] == [words[: count + 1] for count in range(len(words))]
    assert heard[-1] == words
    assert search.listener is None
    assert decode(captioner, memory, search)[0][0].tokens == best.tokens


def test_constraints_that_forbid_everything_end_the_caption() -> None:
    captioner = FixedToy(("a",), [0.01, 0.0, 0.0, 0.99])
    forbidden = options(decoding_constraint=True, remove_bad_endings=True, suppress_unk=True)
    for method in ("greedy", "sample"):
        [[found]] = decode(captioner, videos(0), forbidden.changed(method=method))
        assert tokens_of(found) == (3, EOS)
    [beams] = decode(captioner, videos(0), forbidden.changed(num_captions=5))
    assert [tokens_of(h) for h in beams] == [(EOS,), (3, EOS)]


def test_bos_is_never_written() -> None:
    captioner = FixedToy(("dog",), [0.01, 0.9, 0.0, 0.09])
    for method in ("beam", "greedy", "sample"):
        [[found]] = decode(captioner, videos(0), options(method=method))
        assert BOS not in found.tokens


@given(seed=st.integers(0, 10_000), groups=st.integers(2, 3), width=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_the_first_group_of_diverse_search_is_plain_search(seed: int, groups: int, width: int) -> None:
    captioner, memory = RandomToy(WORDS, seed), videos(0, 1)
    beams = groups * width
    diverse = options(beam_size=beams, num_captions=beams, group_size=groups, max_length=5)
    plain = options(beam_size=width, num_captions=width, max_length=5)
    for many, few in zip(decode(captioner, memory, diverse), decode(captioner, memory, plain), strict=True):
        for h in few:
            assert any(tokens_of(h) == tokens_of(m) and h.score == m.score for m in many)


@given(
    seed=st.integers(0, 10_000),
    groups=st.integers(2, 3),
    width=st.sampled_from([1, 2, 3, 9]),
    strength=st.sampled_from([0.1, 0.5, 2.0]),
    ending=st.sampled_from([0.0, 2.0]),
)
@settings(max_examples=40, deadline=None)
def test_equals_slow_diverse_search(
    seed: int, groups: int, width: int, strength: float, ending: float
) -> None:
    captioner, memory = RandomToy(WORDS[:2], seed, 1.0, ending), videos(0, 1)
    beams = groups * width
    search = options(
        beam_size=beams, num_captions=beams, group_size=groups, diversity_lambda=strength, max_length=5
    )
    for video, found in enumerate(decode(captioner, memory, search)):
        slow = diverse_beam(captioner, lone(memory, video), width, groups, strength, 5)
        wanted = sorted((s for group in slow for s in group), key=lambda s: -s.total)
        assert sorted(tokens_of(h) for h in found) == sorted(s.tokens for s in wanted)
        assert [h.score for h in found] == pytest.approx([s.total for s in wanted], abs=1e-12)


def test_diversity_makes_groups_differ_and_leaves_scores_true() -> None:
    captioner, memory = RandomToy(WORDS, seed=11), videos(0)
    two = {"beam_size": 2, "num_captions": 2, "group_size": 2, "max_length": 5}
    [alike] = decode(captioner, memory, options(diversity_lambda=0.0, **two))
    assert alike[0].tokens == alike[1].tokens
    [apart] = decode(captioner, memory, options(diversity_lambda=50.0, **two))
    first, second = (tokens_of(h) for h in apart)
    assert all(a != b for a, b in zip(first, second, strict=False))
    total = {s.tokens: s.total for s in every_sequence(captioner, memory, 5, anything)}
    assert [h.score for h in apart] == pytest.approx([total[tokens_of(h)] for h in apart], abs=1e-12)


def test_temperature_sharpens_what_is_reported() -> None:
    captioner = FixedToy(("dog", "cat"), [0.5, 0.0, 0.0, 0.3, 0.2])
    [[found]] = decode(captioner, videos(0), options(method="greedy", temperature=0.5))
    assert found.end_logprob == pytest.approx(float(torch.tensor(0.25 / 0.38).log()))


@pytest.mark.parametrize("penalty", ["wu_0.9", "avg_0"])
def test_named_length_penalties_rank_all_sequences(penalty: str) -> None:
    captioner, memory = RandomToy(WORDS, seed=21), videos(0)
    [[found]] = decode(captioner, memory, options(beam_size=1555, length_penalty=penalty))

    def score(s: Scored) -> float:
        n = len(s.tokens)
        return s.total / (n if penalty == "avg_0" else ((5 + n) / 6) ** 0.9)

    best = max(every_sequence(captioner, memory, FREE.max_length), key=score)
    assert tokens_of(found) == best.tokens
    assert found.score == pytest.approx(score(best), abs=1e-12)
