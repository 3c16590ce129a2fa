"""Cross-entropy by hand, smoothing, scheduled sampling, and rows that leave when their caption has ended."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binomtest

from models.vocabulary import EOS, UNK, pad_captions
from tests.models.tiny import tiny_stats
from tests.models.tiny import videos as tiny_videos
from tests.models.toy_captioners import RandomToy, videos
from training.batches.forcing_plan import plan_forcing
from training.optimization.losses import caption_loss
from training.recipes.recipe import compute_forcing_ratio

WORDS = ["a", "b", "c"]
A, B, C = 3, 4, 5
BOS = 1


def test_captions_end_in_eos_and_are_padded() -> None:
    assert pad_captions([[A], [B, C, A]], 17).tolist() == [[A, EOS, -1, -1], [B, C, A, EOS]]


def test_a_cut_caption_has_no_end() -> None:
    assert pad_captions([[A, B, C], [A]], 3).tolist() == [[A, B, C], [A, EOS, -1]]


@pytest.mark.parametrize(
    ("epoch", "ratio"),
    [(0, 0.96), (24, 24 / (24 + math.e)), (76.27, 0.5), (1000, 0.0)],  # 24 ln 24 = 76.27
)
def test_teacher_forcing_ratio(epoch: float, ratio: float) -> None:
    assert compute_forcing_ratio(epoch) == pytest.approx(ratio, abs=1e-3)


def by_hand(toy: RandomToy, captions: list[list[int]], video_of: list[int], smoothing: float) -> float:
    """Nats a word, one caption and one word at a time."""
    total, words = 0.0, 0
    for caption, video in zip(captions, video_of, strict=True):
        before, last = BOS, BOS
        for word in [*caption, EOS]:
            log_probs = toy.table[video, before, last]
            nll = -float(log_probs[word])
            total += (1 - smoothing) * nll - smoothing * float(log_probs.mean())
            words += 1
            before, last = last, word
    return total / words


CAPTIONS = [[A], [B, C, A, B], [], [C, C], [A, B, C], [B]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("numbers", [(2,), (2, 5), (0, 1, 3)])
def test_equals_a_hand_computation(numbers: tuple[int, ...], smoothing: float) -> None:
    """Captions of all lengths, so that rows leave the batch at different words."""
    toy = RandomToy(WORDS, seed=3)
    rows = len(CAPTIONS) // len(numbers)
    video_of = [number for number in numbers for _ in range(rows)]
    found = caption_loss(toy, videos(*numbers), pad_captions(CAPTIONS, 17), smoothing=smoothing)
    assert float(found.cross_entropy) == pytest.approx(by_hand(toy, CAPTIONS, video_of, smoothing), rel=1e-6)


def test_the_auxiliary_loss_is_the_mean_over_words_not_padding() -> None:
    """The toy's own loss is 1 at every step."""
    found = caption_loss(RandomToy(WORDS, seed=3), videos(0, 1), pad_captions(CAPTIONS, 17))
    assert float(found.auxiliary) == pytest.approx(1)


def test_the_shot_loss_is_what_the_temporal_attention_gave_the_true_steps() -> None:
    """By hand from the toy's attention of every word; without true steps there is none."""
    toy, targets = RandomToy(WORDS, seed=3), pad_captions(CAPTIONS, 17)
    memory = videos(2, 5)
    true_steps = torch.zeros(memory.times.shape[:2], dtype=torch.bool)
    true_steps[0, 1], true_steps[1, :2] = True, True
    total, words = 0.0, 0
    for row, caption in enumerate(CAPTIONS):
        video = row // 3
        single, word = memory.select(torch.tensor([video])), torch.tensor([BOS])
        state = toy.start(single, 1)
        for following in [*caption, EOS]:
            _, state, attention = toy.step(state, word, single)
            assert attention is not None
            total -= math.log(float(attention.temporal[0, true_steps[video]].sum()))
            words, word = words + 1, torch.tensor([following])
    found = caption_loss(toy, memory, targets, true_steps=true_steps)
    assert float(found.shot) == pytest.approx(total / words, rel=1e-5)
    assert float(caption_loss(toy, memory, targets).shot) == 0


def test_order_of_a_videos_captions_does_not_matter() -> None:
    captioner = tiny_stats()
    memory = captioner.encode(tiny_videos((3, 2)))
    captions = [[3, 4], [5], [6, 7, 8], [9, 3, 4, 5], [], [8]]
    turned = [captions[i] for i in (2, 0, 1, 5, 4, 3)]
    one, other = (
        caption_loss(captioner, memory, pad_captions(c, 9)).cross_entropy for c in (captions, turned)
    )
    torch.testing.assert_close(one, other)


def inputs(toy: RandomToy, teacher_forcing: float, seed: int, rows: int = 400) -> torch.Tensor:
    """(rows,) second words that the captioner was given, the true one being B throughout."""
    given: list[torch.Tensor] = []
    step = toy.step

    def spying(state, word, memory):  # type: ignore[no-untyped-def]
        given.append(word)
        return step(state, word, memory)

    toy.step = spying  # type: ignore[method-assign]
    generator = torch.Generator().manual_seed(seed)
    targets = pad_captions([[B, C]] * rows, 9)
    plan = plan_forcing(targets, 1, teacher_forcing, generator)
    caption_loss(toy, videos(1), targets, plan=plan, generator=generator)
    return given[1]


def test_all_words_are_true_at_ratio_one() -> None:
    assert (inputs(RandomToy(WORDS, seed=3), 1.0, seed=0) == B).all()


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9])
def test_other_words_come_from_the_captioners_own_distribution(ratio: float) -> None:
    toy = RandomToy(WORDS, seed=3)
    own = toy.table[1, BOS, BOS].exp().clone()
    own[UNK] = 0
    own /= own.sum()
    given = inputs(toy, ratio, seed=1)
    for word in (A, B, C, EOS):
        share = (1 - ratio) * float(own[word]) + ratio * (word == B)
        assert binomtest(int((given == word).sum()), len(given), share).pvalue > 1e-4
    assert not (given == UNK).any()


def test_the_generator_decides_the_draws() -> None:
    one, same, other = (inputs(RandomToy(WORDS, seed=3), 0.2, seed) for seed in (4, 4, 5))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
