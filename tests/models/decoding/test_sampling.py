"""Draws: their statistics, what top_k and top_p leave, and the path that training takes gradients through."""

from __future__ import annotations

import torch
from torch import Tensor

from models.decoding.decode import DecodingOptions, decode, sample
from models.memory import StepAttention
from models.vocabulary import BOS, EOS
from tests.models.brute_force import every_sequence
from tests.models.toy_captioners import Numbered, Prefixes, RandomToy, videos

WORDS = ("dog", "a")


def _frequencies(captioner: RandomToy, options: DecodingOptions) -> dict[tuple[int, ...], float]:
    [found] = decode(captioner, videos(0), options)
    counts: dict[tuple[int, ...], float] = {}
    for h in found:
        tokens = h.tokens + ((EOS,) if h.finished else ())
        counts[tokens] = counts.get(tokens, 0) + 1 / len(found)
    return counts


def test_draws_follow_the_captioners_distribution() -> None:
    captioner, draws = RandomToy(WORDS, seed=1, scale=1.0), 20_000
    captioner.table[..., BOS] = -torch.inf
    captioner.table.copy_(captioner.table.log_softmax(-1))
    options = DecodingOptions(
        method="sample",
        num_captions=draws,
        max_length=2,
        suppress_unk=False,
        name_once=False,
        seed=4,
        attention=False,
    )
    drawn = _frequencies(captioner, options)
    for sequence in every_sequence(captioner, videos(0), 2):
        p = float(torch.tensor(sequence.total).exp())
        assert abs(drawn.get(sequence.tokens, 0) - p) < 5 * (p * (1 - p) / draws) ** 0.5 + 1e-9


def test_top_k_and_top_p_draw_among_the_likeliest_in_proportion() -> None:
    captioner = RandomToy(tuple("abcdefg"), seed=2)
    captioner.table.copy_(torch.tensor([0.0, 0, 0, 0.05, 0.4, 0.1, 0.2, 0.15, 0.06, 0.04]).log())
    draw = {"method": "sample", "num_captions": 10_000, "max_length": 1, "seed": 0, "attention": False}
    three = _frequencies(captioner, DecodingOptions(**draw, top_k=3))  # type: ignore[arg-type]
    assert three.keys() == {(4,), (6,), (7,)}
    assert abs(three[(4,)] - 0.4 / 0.75) < 0.03
    nucleus = _frequencies(captioner, DecodingOptions(**draw, top_p=0.61))  # type: ignore[arg-type]
    assert nucleus.keys() == {(4,), (6,), (7,)}
    assert _frequencies(captioner, DecodingOptions(**draw, top_p=0.01)).keys() == {(4,)}  # type: ignore[arg-type]
    assert len(_frequencies(captioner, DecodingOptions(**draw, top_k=99, top_p=1.0))) == 7  # type: ignore[arg-type]


def test_a_seed_or_a_generator_repeats_the_draws() -> None:
    captioner, memory = RandomToy(WORDS, seed=3), videos(0, 1)

    def drawn(seed: int | None, generator: torch.Generator | None = None) -> list[tuple[int, ...]]:
        options = DecodingOptions(method="sample", num_captions=30, seed=seed)
        return [h.tokens for found in decode(captioner, memory, options, generator) for h in found]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert drawn(8, torch.Generator().manual_seed(7)) == drawn(7)


def test_low_temperature_draws_are_greedy() -> None:
    captioner, memory = RandomToy(WORDS, seed=5), videos(0, 1, 2)
    cold = DecodingOptions(method="sample", temperature=1e-3)
    drawn = decode(captioner, memory, cold)
    greedy = decode(captioner, memory, DecodingOptions(method="greedy"))
    assert [h.tokens for [h] in drawn] == [h.tokens for [h] in greedy]


class Trainable(RandomToy):
    """Log-probabilities under one parameter a word, so that the gradient can be written down."""

    def __init__(self) -> None:
        super().__init__(WORDS, seed=6)
        self.bias = torch.nn.Parameter(torch.zeros(len(self.vocabulary), dtype=torch.float64))

    def step(
        self, state: Prefixes, word: Tensor, memory: Numbered
    ) -> tuple[Tensor, Prefixes, StepAttention | None]:
        log_probs, state, attention = super().step(state, word, memory)
        return (log_probs + self.bias).log_softmax(1), state, attention


def test_training_samples_carry_the_gradient_of_their_log_probabilities() -> None:
    captioner, memory = Trainable(), videos(0, 1, 2)
    drawn = sample(captioner, memory, 4, 9, torch.Generator().manual_seed(0))
    assert drawn.tokens.shape == drawn.logprobs.shape == drawn.mask.shape
    assert drawn.tokens.shape[0] == 12
    drawn.logprobs.sum().backward()

    expected = torch.zeros(len(captioner.vocabulary), dtype=torch.float64)
    for row, tokens in enumerate(drawn.tokens.tolist()):
        before, last = BOS, BOS
        for position, token in enumerate(tokens[: tokens.index(EOS) + 1 if EOS in tokens else None]):
            log_probs = captioner.table[row // 4, before, last]
            assert drawn.mask[row, position]
            assert torch.isclose(drawn.logprobs[row, position], log_probs[token])
            expected -= log_probs.exp()
            expected[token] += 1
            before, last = last, token
        ended = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
        assert not drawn.mask[row, ended:].any()
        assert not drawn.logprobs[row, ended:].any()
        assert set(tokens[ended:]) <= {EOS}
    assert captioner.bias.grad is not None
    assert torch.allclose(captioner.bias.grad, expected)


def test_training_samples_stop_when_all_rows_have_ended() -> None:
    captioner = RandomToy(WORDS, seed=7, ending=30.0)
    assert sample(captioner, videos(0, 1), 3, 20).tokens.tolist() == [[EOS]] * 6


def test_every_sample_of_a_video_is_drawn_on_its_own() -> None:
    drawn = sample(RandomToy(WORDS, seed=8, scale=0.1), videos(0), 64, 8, torch.Generator().manual_seed(1))
    assert len({tuple(row) for row in drawn.tokens.tolist()}) > 32


def test_a_sharpened_policy_has_the_log_probabilities_that_it_is_drawn_by() -> None:
    captioner, generator = RandomToy(WORDS, seed=9), torch.Generator().manual_seed(2)
    drawn = sample(captioner, videos(0), 40, 6, generator, temperature=0.5)
    for row, tokens in enumerate(drawn.tokens.tolist()):
        before, last = BOS, BOS
        for position in range(int(drawn.mask[row].sum())):
            sharper = (captioner.table[0, before, last] / 0.5).log_softmax(0)
            assert torch.isclose(drawn.logprobs[row, position], sharper[tokens[position]])
            before, last = last, tokens[position]


def test_a_policy_of_almost_no_temperature_is_greedy() -> None:
    captioner = RandomToy(WORDS, seed=10)
    [[greedy]] = decode(
        captioner,
        videos(0),
        DecodingOptions(method="greedy", max_length=6, suppress_unk=False, name_once=False),
    )
    drawn = sample(captioner, videos(0), 8, 6, torch.Generator().manual_seed(3), temperature=1e-4)
    written = [tuple(t for t in row if t != EOS) for row in drawn.tokens.tolist()]
    assert set(written) == {greedy.tokens}
