"""Baseline, mixture, and a reward that rises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.decoding.decode import DecodingOptions, decode, sample
from models.inputs import Batch, InputStream
from models.vocabulary import EOS, pad_captions
from tests.models.toy_captioners import Numbered, Prefixes, Toy, videos
from training.batches.training_batch import TrainingBatch
from training.optimization.losses import caption_loss
from training.optimization.rewards import Rewards
from training.optimization.self_critical import SelfCritical, subtract_others_mean
from training.recipes.demo_recipes import DEMO
from training.scores.cider import CiderD

WORDS = ["a", "red", "blue", "dog", "cat"]
VOCABULARY = ("<eos>", "<bos>", "<unk>", *WORDS)
REFERENCES: dict[str, list[list[str]]] = {"one": [["a", "red", "dog"]], "two": [["a", "blue", "cat"]]}
CIDER = CiderD(REFERENCES, count_end=True)


class Learning(Toy):
    """Logits learned for every (video, place in the caption)."""

    def __init__(self) -> None:
        super().__init__(WORDS)
        self.logits = nn.Parameter(torch.zeros(2, 8, len(self.vocabulary)))

    @property
    def inputs(self) -> Sequence[InputStream]:
        return (InputStream(name="grid", width=1),)

    def encode_batches(self, batches: Sequence[Batch]) -> Numbered:
        return videos(0, 1)

    def next_log_probs(self, state: Prefixes) -> Tensor:
        return self.logits[state.video, state.tokens.shape[1] - 1].log_softmax(1)


def batch() -> TrainingBatch:
    targets = pad_captions([[3, 4, 6], [3, 5, 7]], 6)
    empty = torch.zeros(2, 1, 1, 1)
    mask = torch.ones(2, 1, dtype=torch.bool)
    seen = Batch(torch.zeros(2, 1, 2), empty, mask, mask.unsqueeze(2))
    return TrainingBatch(("one", "two"), {"grid": seen}, targets, mask)


def reward_of(weight: float = 1.0, samples: int = 5, **changes: object) -> SelfCritical:
    recipe = DEMO.model_copy(
        update={
            "self_critical_weight": weight,
            "self_critical_samples": samples,
            "max_length": 6,
            "smoothing": 0.0,
            "self_critical_temperature": 1.0,
            **changes,
        }
    )
    return SelfCritical(recipe, Rewards(recipe.rewards, REFERENCES), VOCABULARY)


def test_the_baseline_is_the_mean_of_the_others() -> None:
    reward = torch.tensor([[1.0, 2.0, 6.0], [0.5, 0.5, 0.5]])
    expected = torch.tensor([[1 - 4, 2 - 3.5, 6 - 1.5], [0, 0, 0]])
    torch.testing.assert_close(subtract_others_mean(reward), expected)


def test_a_shift_of_all_rewards_changes_nothing() -> None:
    reward = torch.rand(4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        subtract_others_mean(reward + 7), subtract_others_mean(reward), atol=1e-5, rtol=0
    )


def test_the_loss_is_the_policy_gradient_by_hand() -> None:
    """Each sample's advantage times its words' log-probabilities, over all words drawn, ends included."""
    captioner, judge = Learning(), reward_of()
    nn.init.normal_(captioner.logits, generator=torch.Generator().manual_seed(8))
    found = judge.loss(captioner, batch(), torch.Generator().manual_seed(2), torch.float32)
    drawn = sample(captioner, videos(0, 1), 5, 6, torch.Generator().manual_seed(2))
    total = words = 0.0
    rewards: list[float] = []
    for row, tokens in enumerate(drawn.tokens.tolist()):
        ended = EOS in tokens
        text = [VOCABULARY[i] for i in tokens[: tokens.index(EOS) if ended else None]]
        rewards.append(CIDER.score([("one", "two")[row // 5]], [text], [ended])[0])
    for row, logprobs in enumerate(drawn.logprobs.tolist()):
        group = rewards[row // 5 * 5 : row // 5 * 5 + 5]
        advantage = rewards[row] - (sum(group) - rewards[row]) / 4
        total -= advantage * sum(logprobs)
        words += int(drawn.mask[row].sum())
    assert max(rewards) > min(rewards)
    assert found["total"].item() == pytest.approx(total / words, rel=1e-4)
    assert found["reward"].item() == pytest.approx(np.mean(rewards), rel=1e-5)


def test_weight_mixes_in_cross_entropy() -> None:
    captioner = Learning()
    generators = [torch.Generator().manual_seed(2) for _ in range(3)]
    policy, mixed, supervised = (
        reward_of(weight).loss(captioner, batch(), generator, torch.float32)
        for weight, generator in zip((1.0, 0.7, 0.0), generators, strict=True)
    )
    torch.testing.assert_close(mixed["total"], 0.7 * policy["total"] + 0.3 * supervised["total"])
    plain = caption_loss(captioner, videos(0, 1), batch().targets)
    torch.testing.assert_close(supervised["total"], plain.cross_entropy)


def test_the_classical_baseline_is_what_the_greedy_caption_earns() -> None:
    """By hand, and the captioner goes on in training mode."""
    captioner, judge = Learning().train(), reward_of(baseline="greedy")
    nn.init.normal_(captioner.logits, generator=torch.Generator().manual_seed(8))
    found = judge.loss(captioner, batch(), torch.Generator().manual_seed(2), torch.float32)
    assert captioner.training
    drawn = sample(captioner, videos(0, 1), 5, 6, torch.Generator().manual_seed(2))
    earned = judge._reward_samples(("one", "two"), drawn.tokens, 5)
    written = decode(captioner, videos(0, 1), DecodingOptions(method="greedy", max_length=6, name_once=False))
    total = 0.0
    for row, logprobs in enumerate(drawn.logprobs.tolist()):
        greedy = written[row // 5][0]
        text = [VOCABULARY[i] for i in greedy.tokens]
        baseline = CIDER.score([("one", "two")[row // 5]], [text], [greedy.finished])[0]
        total -= (float(earned[row]) - baseline) * sum(logprobs)
    assert found["total"].item() == pytest.approx(total / int(drawn.mask.sum()), rel=1e-4)


def test_a_temperature_sharpens_what_is_drawn_and_what_is_learned() -> None:
    captioner, judge = Learning(), reward_of(self_critical_temperature=0.5)
    nn.init.normal_(captioner.logits, generator=torch.Generator().manual_seed(8))
    found = judge.loss(captioner, batch(), torch.Generator().manual_seed(2), torch.float32)
    generator = torch.Generator().manual_seed(2)
    drawn = sample(captioner, videos(0, 1), 5, 6, generator, temperature=0.5)
    advantage = subtract_others_mean(judge._reward_samples(("one", "two"), drawn.tokens, 5).view(2, 5)).view(
        -1, 1
    )
    torch.testing.assert_close(found["total"], -(advantage * drawn.logprobs).sum() / drawn.mask.sum())


def test_mixer_rewards_more_words_every_epoch() -> None:
    recipe = DEMO.model_copy(update={"mixer_words": 5})
    assert [recipe.words_rewarded(epoch) for epoch in (0, 0.99, 1, 2)] == [5, 5, 10, 15]
    assert DEMO.words_rewarded(3) is None


def test_mixer_counts_from_the_end_of_each_caption() -> None:
    """Of a caption of two words and its end, and one of five, the last two tokens are rewarded."""
    targets = pad_captions([[3, 4], [5, 6, 7, 3, 4]])
    prefix, supervised, words = reward_of(samples=2)._divide_losses(targets, 2, 2)
    assert supervised.tolist() == [[3, -1, -1, -1], [5, 6, 7, 3]]
    assert prefix is not None
    assert prefix.tolist() == [[3, -1, -1, -1]] * 2 + [[5, 6, 7, 3]] * 2
    assert words == 5
    prefix, _, words = reward_of(samples=2)._divide_losses(targets, 2, 6)
    assert prefix is not None
    assert prefix.shape == (4, 0)
    assert words == 0


def test_with_mixer_the_first_words_are_supervised_and_the_rest_is_rewarded() -> None:
    captioner, judge = Learning(), reward_of()
    nn.init.normal_(captioner.logits, generator=torch.Generator().manual_seed(8))
    plain = caption_loss(captioner, videos(0, 1), batch().targets[:, :2]).cross_entropy
    found = judge.loss(captioner, batch(), torch.Generator().manual_seed(2), torch.float32, rewarded=2)
    prefix = batch().targets[:, :2].repeat_interleave(5, 0)
    drawn = sample(captioner, videos(0, 1), 5, 6, torch.Generator().manual_seed(2), prefix)
    assert torch.equal(drawn.tokens[:, :2], prefix)
    assert not drawn.mask[:, :2].any()
    assert not drawn.logprobs[:, :2].any()
    advantage = subtract_others_mean(judge._reward_samples(("one", "two"), drawn.tokens, 5).view(2, 5)).view(
        -1, 1
    )
    policy = (
        -(advantage * drawn.logprobs).sum() / 5
    )  # over the words of a caption's samples, as of one of them
    torch.testing.assert_close(found["total"], (policy + plain * 4) / (drawn.mask.sum() / 5 + 4))
    alone, plain_policy = (
        judge.loss(captioner, batch(), torch.Generator().manual_seed(2), torch.float32, rewarded)["total"]
        for rewarded in (4, None)
    )
    torch.testing.assert_close(alone, plain_policy)


def test_the_reward_rises_on_a_toy_problem() -> None:
    """From uniform words to each video's own caption, by reward alone."""
    captioner, judge = Learning(), reward_of()
    optimizer = torch.optim.Adam(captioner.parameters(), 0.1)
    generator = torch.Generator().manual_seed(0)
    rewards = []
    for _ in range(150):
        losses = judge.loss(captioner, batch(), generator, torch.float32)
        optimizer.zero_grad()
        losses["total"].backward()
        optimizer.step()
        rewards.append(float(losses["reward"]))
    first, last = np.mean(rewards[:10]), np.mean(rewards[-10:])
    best = CIDER.score(["one"], [["a", "red", "dog"]])[0]
    assert last > first + 0.3 * best
