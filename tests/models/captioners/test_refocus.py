"""Refocus against the slow reference: both steps, the key frame, its loss in both directions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Features
from models.captioners.refocus.config import RefocusConfig
from models.captioners.refocus.encoder import KBiGRU
from models.captioners.refocus.network import Refocus, RefocusMemory, refocusing_loss
from models.checkpoint import Card, load_checkpoint, save_checkpoint
from models.decoding.decode import DecodingOptions, decode
from models.inputs import InputStream, collate_inputs
from models.likelihood import teacher_force
from models.training_phase import PhaseBatch, PhaseLoss
from models.vocabulary import BOS, Vocabulary, pad_captions
from tests.models.forced import close, forced, never_reached, weights_of
from tests.models.tiny import SPEC, WORDS, refocus_config, stream, tiny_refocus
from tests.reference.refocus import RefocusReference
from training.optimization.losses import caption_loss

SOUND = InputStream(name="sound", width=3)
CAPTIONS = ([BOS, 4, 9, 4], [BOS, 12, 3, 7])
CONFIGS: dict[str, RefocusConfig] = {
    "vre": refocus_config(audio=SOUND),
    "embedded, no sound": refocus_config(audio=None, embedded=7),
    "one step": refocus_config(audio=SOUND, encoder="kbigru"),
    "one step, frames alone": refocus_config(audio=None, encoder="kbigru", spatial=False),
    "no encoder": refocus_config(audio=None, encoder="none"),
}


def clips() -> list[Features]:
    """Six, one and four frames; the second is silent."""
    made: list[Features] = []
    for i, frames in enumerate((6, 1, 4)):
        video = {"grid": stream(frames, 4, 6, 80 + i)}
        if i != 1:
            video["sound"] = stream(2, 1, 3, 90 + i)
        made.append(video)
    return made


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("name", CONFIGS)
def test_both_steps_agree_with_the_reference(name: str, training: bool) -> None:
    captioner = tiny_refocus(CONFIGS[name], seed=2).train(training)
    features = clips()
    with torch.no_grad():
        memory = captioner.encode(features)
        steps = [forced(captioner, m, CAPTIONS) for m in (memory.first_step(), memory)]
    slow = RefocusReference(weights_of(captioner), captioner.config)
    for row in range(6):
        video, grid = features[row // 2], features[row // 2]["grid"].values.double().numpy()
        hears = captioner.config.audio is not None and "sound" in video
        watched = slow.watch(grid, video["sound"].values.double().numpy().mean((0, 1)) if hears else None)
        for number in (1, 2):
            expected = slow.caption(watched, number, CAPTIONS[row % 2])
            for (log_probs, attention), wanted in zip(steps[number - 1], expected, strict=True):
                assert attention is not None
                close(log_probs[row], wanted.log_probs)
                close(attention.temporal[row, : len(grid)], wanted.temporal)
                if wanted.spatial is None:
                    assert attention.spatial is None
                else:
                    assert attention.spatial is not None
                    for t in range(len(grid)):
                        close(attention.spatial[row, t], wanted.spatial)
                assert int(attention.extras["key_frame"][row]) == watched.key
                assert int(attention.extras["default_key_frame"][row]) == len(grid) // 2
                if captioner.config.encoder == "vre":
                    close(attention.extras["refocus"][row, : len(grid)], watched.alpha)


def test_the_cases_tell_the_steps_apart() -> None:
    captioner = tiny_refocus(CONFIGS["vre"], seed=2)
    memory = captioner.encode(clips())
    assert memory.encoding.key.tolist() != memory.encoding.default_key.tolist()
    assert memory.encoding.default_key.tolist() == [3, 0, 2]
    assert (memory.o - memory.first_step().o).abs().max() > 0.1


def test_every_key_frame_may_differ_in_one_batch() -> None:
    torch.manual_seed(0)
    kbigru, frames = KBiGRU(4, 5), torch.randn(5, 5, 4)
    mask = torch.arange(5) < torch.tensor([5, 5, 3, 2, 1]).unsqueeze(1)
    key = torch.tensor([4, 0, 1, 1, 0])
    together = kbigru(frames, mask, key, most=4)
    for i, length in enumerate(mask.sum(1).tolist()):
        left = right = torch.zeros(1, 5)
        for t in reversed(range(int(key[i]) + 1)):
            left = kbigru.leftward(frames[i : i + 1, t], left)
        for t in range(int(key[i]), length):
            right = kbigru.rightward(frames[i : i + 1, t], right)
        wanted = torch.tanh(kbigru.W_c(torch.cat([left, right], 1)))
        torch.testing.assert_close(together[i : i + 1], wanted)


def test_known_key_frames_are_used() -> None:
    captioner = tiny_refocus(CONFIGS["vre"])
    features = clips()
    batches = collate_inputs(features, captioner.inputs, torch.device("cpu"), captioner.optional_streams)
    memory = captioner.encode_batches(batches, torch.tensor([5, 0, 1]))
    assert memory.encoding.key.tolist() == [5, 0, 1]
    slow = RefocusReference(weights_of(captioner), captioner.config)
    for i, key in enumerate((5, 0, 1)):
        sound = features[i]["sound"].values.double().numpy().mean((0, 1)) if "sound" in features[i] else None
        wanted = slow.watch(features[i]["grid"].values.double().numpy(), sound, key)
        close(memory.encoding.o_2[i].detach(), wanted.o[1])


def test_a_silent_video_is_one_whose_sound_is_nothing() -> None:
    captioner = tiny_refocus(CONFIGS["vre"])
    silent = clips()[1]
    nothing = stream(2, 1, 3, 0)
    zero = {**silent, "sound": replace(nothing, values=torch.zeros_like(nothing.values))}
    ours, theirs = (forced(captioner, captioner.encode([f]), CAPTIONS)[-1][0] for f in (silent, zero))
    torch.testing.assert_close(ours, theirs)
    with pytest.raises(KeyError, match="grid"):
        captioner.encode([{"sound": nothing}])


def alpha_after(difference: float, start: tuple[float, ...]) -> tuple[float, float]:
    """The key frame's probability before and after one step down the refocusing loss."""
    scores = torch.tensor([start], requires_grad=True)
    mask, key = torch.ones(1, len(start), dtype=torch.bool), scores.argmax(1)
    refocusing_loss(scores, mask, key, torch.tensor([1.0 + difference]), torch.tensor([1.0])).sum().backward()
    assert scores.grad is not None
    after = (scores.detach() - 0.1 * scores.grad).softmax(1)
    return float(scores.detach().softmax(1).max()), float(after[0, int(key)])


@pytest.mark.parametrize("start", [(0.5, 0.1, 0.3), (30.0, 0.0, 1.0)], ids=["open", "saturated"])
def test_a_falling_reward_lowers_the_key_frame(start: tuple[float, ...]) -> None:
    scores = torch.tensor([start], requires_grad=True)
    mask, key = torch.ones(1, 3, dtype=torch.bool), torch.tensor([0])
    loss = refocusing_loss(scores, mask, key, torch.tensor([0.5]), torch.tensor([1.0]))
    alpha = float(scores.detach().softmax(1)[0, 0])
    if alpha < 1:  # the sign is not that of eq. 21 as printed
        assert float(loss.detach()) == pytest.approx(-0.5 * np.log(1 - alpha), rel=1e-4)
    loss.sum().backward()
    assert scores.grad is not None
    # at α = 1 as well, which is what eq. 21 was made for
    assert float(scores.grad[0, 0]) == pytest.approx(0.5 * alpha, rel=1e-4)


def test_a_growing_reward_raises_the_key_frame_and_no_change_does_nothing() -> None:
    before, after = alpha_after(0.5, (0.5, 0.1, 0.3))
    assert after > before
    before, after = alpha_after(-0.5, (0.5, 0.1, 0.3))
    assert after < before
    before, after = alpha_after(0.0, (0.5, 0.1, 0.3))
    assert after == before


def test_without_a_last_epoch_or_a_choice_there_is_no_loss() -> None:
    scores = torch.randn(3, 4, requires_grad=True)
    mask = torch.tensor([[True, True, True, False], [True, False, False, False], [True, True, True, True]])
    key, reward = torch.tensor([1, 0, 2]), torch.tensor([0.3, -0.4, 0.2])
    loss = refocusing_loss(scores, mask, key, reward, torch.tensor([torch.nan, 0.1, 0.1]))
    loss.sum().backward()
    assert loss[:2].tolist() == [0, 0]
    assert loss[2] > 0
    assert scores.grad is not None
    assert not scores.grad[:2].any()
    assert scores.grad.isfinite().all()


def combine_losses(captioner: Refocus, memory: RefocusMemory, targets: Tensor, last: Tensor) -> PhaseLoss:
    """Eq. 22 with true words."""
    return captioner.combined_loss(PhaseBatch(memory, targets, lambda _, word: word, last))


def test_combined_loss_adds_both_steps_and_the_refocusing() -> None:
    captioner = tiny_refocus(CONFIGS["vre"]).train()
    memory, targets = captioner.encode(clips()), pad_captions([[4, 5, 6], [7, 8]] * 3, 8)
    last = torch.tensor([torch.nan, torch.nan, 0.0, torch.nan, -50.0, -70.0])
    found = combine_losses(captioner, memory, targets, last)
    reward, refocusing = found.remembered, found.parts["refocusing"]
    assert reward is not None
    for ours, of in ((found.parts["step_1"], memory.first_step()), (found.parts["loss"], memory)):
        torch.testing.assert_close(ours, caption_loss(captioner, of, targets).cross_entropy)
    log_p = [teacher_force(captioner, m, targets).log_p.sum(1) for m in (memory.first_step(), memory)]
    torch.testing.assert_close(reward, (log_p[1] - log_p[0]).detach())
    seen = refocusing_loss(  # of the second video one caption was seen before, of the third both
        memory.encoding.scores,
        memory.frame_mask,
        memory.encoding.key,
        torch.stack([reward[0], reward[2], (reward[4] + reward[5]) / 2]),
        torch.tensor([torch.nan, 0.0, -60.0]),
    )
    assert seen[0] == 0
    assert seen[2] != 0
    torch.testing.assert_close(refocusing, seen.mean())
    captions_a_word = 6 / int((targets >= 0).sum())
    wanted = found.parts["step_1"] + found.parts["loss"] + 0.03 * captions_a_word * refocusing
    torch.testing.assert_close(found.total, wanted)


def test_gradient_reaches_every_parameter_within_ten_batches() -> None:
    """The refocusing attention learns from rewards alone: the key frame is an arg max."""
    torch.manual_seed(0)
    config = refocus_config(audio=SOUND, embedded=7, dropout=0.3)
    captioner = Refocus(config, Vocabulary(WORDS)).train()
    last = [torch.full((6,), torch.nan)]

    def loss(batch: int) -> Tensor:
        captions = torch.randint(3, 20, (6, 4), generator=torch.Generator().manual_seed(batch)).tolist()
        memory, targets = captioner.encode(clips()), pad_captions(captions, 6)
        found = combine_losses(captioner, memory, targets, last[0])
        assert found.remembered is not None
        last[0] = found.remembered
        return found.total

    assert never_reached(captioner, loss) == []


def test_rewards_teach_the_key_frame() -> None:
    """A reward that grows while the key is the marked frame and falls otherwise finds the marked frame."""
    torch.manual_seed(0)
    captioner = Refocus(refocus_config(audio=None, hidden=16, attention=12), Vocabulary(WORDS)).train()
    optimizer = torch.optim.Adam(captioner.watcher.parameters(), 1e-2)

    def marked(seed: int) -> tuple[list[Features], Tensor]:
        place = torch.randint(5, (16,), generator=torch.Generator().manual_seed(seed))
        features: list[Features] = []
        for i, t in enumerate(place.tolist()):
            video = stream(5, 4, 6, 1000 * seed + i)
            video.values[:, :, 0] = 0
            video.values[t, :, 0] = -2
            features.append({"grid": video})
        return features, place

    def share(seed: int) -> float:
        features, place = marked(seed)
        with torch.no_grad():
            return float((captioner.encode(features).encoding.key == place).float().mean())

    before = share(500)
    for step in range(60):
        features, place = marked(step)
        watched = captioner.encode(features).encoding
        reward = torch.where(watched.key == place, 1.0, -1.0)
        mask = torch.ones_like(watched.scores, dtype=torch.bool)
        loss = refocusing_loss(watched.scores, mask, watched.key, reward, torch.zeros(16)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert before < 0.5
    assert share(500) > 0.9


def test_with_frozen_key_frames_both_captions_are_learned() -> None:
    captioner = tiny_refocus(CONFIGS["vre"]).eval()
    memory, targets = captioner.encode(clips()), pad_captions([[4, 5, 6], [7, 8]] * 3, 8)
    found = captioner.both_losses(PhaseBatch(memory, targets, lambda _, word: word, targets.float()))
    both = [caption_loss(captioner, each, targets).cross_entropy for each in (memory.first_step(), memory)]
    torch.testing.assert_close(found.total, both[0] + both[1])
    torch.testing.assert_close(found.parts["loss"], both[1])


def test_frozen_key_frames_stay_whatever_is_learned(tmp_path: Path) -> None:
    first = tiny_refocus(CONFIGS["vre"], seed=2)
    features = clips()
    frozen = first.with_frozen_key_frames()
    key = first.encode(features).encoding.key
    assert torch.equal(frozen.encode(features).encoding.key, key)
    with torch.no_grad():
        for parameter in frozen.parameters():
            if parameter.requires_grad:
                parameter.normal_()
    assert torch.equal(frozen.train().encode(features).encoding.key, key)
    save_checkpoint(tmp_path / "frozen.safetensors", frozen, Card("refocus", {"grid": SPEC}, {}, {}))
    loaded = load_checkpoint(tmp_path / "frozen.safetensors").captioner
    assert isinstance(loaded, Refocus)
    assert torch.equal(loaded.encode(features).encoding.key, key)


def test_both_captions_are_decoded() -> None:
    captioner = tiny_refocus(CONFIGS["vre"], seed=2)
    memory = captioner.encode(clips())
    options = DecodingOptions(beam_size=3, max_length=6)
    first, second = (decode(captioner, m, options) for m in (memory.first_step(), memory))
    for (one,), (two,) in zip(first, second, strict=True):
        assert one.score != two.score
        assert one.attention is not None


def test_paper_widths_and_one_optimiser_step() -> None:
    torch.manual_seed(0)
    captioner = Refocus(RefocusConfig(), Vocabulary([f"w{i}" for i in range(10_000)])).train()
    optimizer = torch.optim.Adam(captioner.parameters(), lr=3e-4)
    features = {"resnet152": stream(4, 49, 2048, 0), "vggish": stream(1, 1, 128, 1)}
    targets = pad_captions([[5, 6, 7], [8, 9]], 15)

    def loss() -> Tensor:
        torch.manual_seed(1)
        return combine_losses(captioner, captioner.encode([features]), targets, torch.zeros(2)).total

    before = loss()
    assert float(before.detach()) == pytest.approx(2 * np.log(10_003), rel=0.15)
    before.backward()
    optimizer.step()
    assert loss() < before
