"""G2L against the slow reference; its sampler, its clocks and its ablations."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Features, Stream
from models.captioners.g2l.config import G2LConfig
from models.captioners.g2l.network import G2L, GumbelTopK, drop_smallest
from models.inputs import InputStream
from models.vocabulary import BOS, Vocabulary, pad_captions
from tests.models.forced import close, forced, never_reached, weights_of
from tests.models.tiny import SPEC, WORDS, g2l_config, stream, tiny_g2l, videos
from tests.reference.g2l import G2LReference
from training.optimization.losses import caption_loss

CLIPS = InputStream(name="clips", width=4)
CAPTIONS = ([BOS, 4, 9, 4], [BOS, 12, 3, 7])  # two rows a video


def paper_like(frames: int, seed: int) -> Features:
    """A clip a frame, and three regions for every three frames, at the middle one's time."""
    rows = -(-frames // 3)
    mask = torch.ones(rows, 3, dtype=torch.bool)
    mask[0, 1] = False
    boxes = stream(rows, 3, 5, seed + 2, mask=mask, boxes=True)
    start = np.minimum(3.0 * np.arange(rows) + 1, frames - 1)
    regions = Stream(boxes.values, start, start + 1, SPEC, boxes.boxes, mask)
    return {"grid": stream(frames, 4, 6, seed), "clips": stream(frames, 1, 4, seed + 1), "boxes": regions}


def three_videos() -> list[Features]:
    return [paper_like(frames, 40 + 3 * i) for i, frames in enumerate((7, 1, 9))]


def draws(noise: Tensor) -> object:
    """Stands in for the sampler's draws: those of each step in turn."""
    step = count()
    return lambda _: noise[:, next(step)]


@pytest.mark.parametrize("training", [False, True], ids=["exact", "sampled"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_step_agrees_with_the_reference(
    k: int, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    captioner = tiny_g2l(g2l_config(clips=CLIPS, key_frames=k), seed=k).train(training)
    noise = -torch.empty(6, 4, k, 3).exponential_(generator=torch.Generator().manual_seed(5)).log()
    monkeypatch.setattr(captioner.sampler, "draw_noise", draws(noise))
    features = three_videos()
    with torch.no_grad():
        steps = forced(captioner, captioner.encode(features), CAPTIONS)
    slow = G2LReference(weights_of(captioner), captioner.config, stride=3)
    for row in range(6):
        video, boxes = features[row // 2], features[row // 2]["boxes"]
        frames, clips = video["grid"].values.mean(1).double(), video["clips"].values[:, 0].double()
        assert boxes.mask is not None
        expected = slow.caption(
            frames.numpy(),
            clips.numpy(),
            boxes.values.double().numpy(),
            boxes.mask.numpy(),
            CAPTIONS[row % 2],
            noise[row].double().numpy() if training else None,
        )
        for (log_probs, attention), wanted in zip(steps, expected, strict=True):
            assert attention is not None
            assert attention.spatial is not None
            close(log_probs[row], wanted.log_probs)
            close(attention.temporal[row, : len(boxes)], wanted.temporal)
            close(attention.spatial[row, : len(boxes)], wanted.spatial)
            close(attention.extras["selected"][row, : len(boxes)], wanted.selected)


def test_noise_changes_the_choice_in_training_alone() -> None:
    captioner = tiny_g2l()
    memory = captioner.encode(videos())

    def selected() -> Tensor:
        attention = forced(captioner, memory, CAPTIONS)[1][1]
        assert attention is not None
        return attention.extras["selected"].detach()

    torch.manual_seed(0)
    assert torch.equal(selected(), selected())
    captioner.train()
    assert len({tuple(selected().round().flatten().tolist()) for _ in range(20)}) > 1


def test_a_video_of_fewer_frames_gives_all_it_has() -> None:
    sampler = GumbelTopK(g2l_config(key_frames=3))
    pi = torch.tensor([[0.2, 0.5, 0.3, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.25, 0.15]])
    mask = pi > 0
    exact = sampler.eval()(pi, mask)
    assert exact.tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0]]
    for _ in range(20):
        drawn = sampler.train()(pi, mask)
        torch.testing.assert_close(drawn.sum(1), torch.tensor([3.0, 2.0, 3.0]))
        torch.testing.assert_close(drawn[:2], exact[:2])


def test_the_first_choice_follows_the_probabilities() -> None:
    """Gumbel's trick: the arg max of log π + g is a draw from π."""
    torch.manual_seed(0)
    pi = torch.tensor([[0.1, 0.2, 0.7]]).repeat(20_000, 1)
    drawn = GumbelTopK(g2l_config(key_frames=1)).train()(pi, torch.ones_like(pi, dtype=torch.bool))
    torch.testing.assert_close(drawn.mean(0), pi[0], atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("tau", "tau_backward", "least", "most"),
    [(1e-4, None, 0.0, 0.03), (0.1, None, 0.95, 1.0), (1e-4, 0.5, 1.0, 1.0)],
    ids=["as printed", "warm", "ours"],
)
def test_share_of_draws_with_a_gradient(
    tau: float, tau_backward: float | None, least: float, most: float
) -> None:
    """The printed temperature leaves 99 % of the draws without any; ours none."""
    torch.manual_seed(0)
    sampler = GumbelTopK(g2l_config(tau=tau, tau_backward=tau_backward)).train()
    scores = torch.randn(2000, 6, requires_grad=True)
    value = torch.randn(2000, 6)
    (sampler(scores.softmax(1), torch.ones(2000, 6, dtype=torch.bool)) * value).sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    share = float((scores.grad.abs().amax(1) > 0).float().mean())
    assert least <= share <= most


def test_the_forward_pass_is_hard_whatever_the_backward_temperature() -> None:
    torch.manual_seed(1)
    pi, mask = torch.randn(200, 6).softmax(1), torch.ones(200, 6, dtype=torch.bool)
    drawn = GumbelTopK(g2l_config(tau_backward=0.5)).train()(pi, mask)
    assert (((drawn - drawn.round()).abs() < 1e-5).all(1).float().mean()) > 0.98


def test_each_frame_takes_the_clip_nearest_in_time() -> None:
    """Clips of two seconds beside frames of one second equal clips repeated for each frame."""
    captioner = tiny_g2l(g2l_config(clips=CLIPS))
    features = dict(paper_like(6, 3))
    slow = stream(3, 1, 4, 9)
    start = 2 * np.arange(3.0)
    features["clips"] = Stream(slow.values, start, start + 2, SPEC)
    repeated = dict(features)
    every = np.arange(6.0)
    repeated["clips"] = Stream(slow.values.repeat_interleave(2, 0), every, every + 1, SPEC)
    ours, theirs = (forced(captioner, captioner.encode([f]), CAPTIONS)[-1][0] for f in (features, repeated))
    torch.testing.assert_close(ours, theirs)


def test_a_video_without_any_region_is_captioned_from_its_frames() -> None:
    features = dict(videos()[0])
    features["boxes"] = stream(3, 3, 5, 0, mask=torch.zeros(3, 3, dtype=torch.bool), boxes=True)
    captioner = tiny_g2l()
    for mode in (False, True):
        captioner.train(mode)
        log_probs, attention = forced(captioner, captioner.encode([features, videos()[2]]), CAPTIONS)[-1]
        assert attention is not None
        assert log_probs.isfinite().all()
        assert not attention.extras["selected"][:2].any()


@pytest.mark.parametrize(
    "changes",
    [{"alignment": False, "key_frames": 0}, {"key_frames": 0}, {"key_frames": 1}, {"gumbel": False}],
    ids=["global", "aligned", "one key frame", "without Gumbel"],
)
def test_ablations_write_and_learn(changes: dict[str, object]) -> None:
    captioner = tiny_g2l(g2l_config(**changes)).train()
    found = caption_loss(captioner, captioner.encode(videos()), pad_captions([[3, 4, 5]] * 6, 6))
    found.cross_entropy.backward()
    assert all(p.grad is not None for n, p in captioner.named_parameters() if n != "attention_al.w.weight")


def test_dropping_the_smallest_weights() -> None:
    weights = torch.tensor([[0.1, 0.4, 0.2, 0.3, 0.0]])
    mask = torch.tensor([[True, True, True, True, False]])
    torch.testing.assert_close(drop_smallest(weights, mask, 0.5), torch.tensor([[0, 4 / 7, 0, 3 / 7, 0.0]]))
    torch.testing.assert_close(drop_smallest(weights, mask, 0.24), weights)
    assert not drop_smallest(weights, mask, 1.0).any()
    plain, masked = tiny_g2l(), tiny_g2l(g2l_config(masked={"l": 0.5, "2d": 1.0}))
    hidden = []
    for captioner in (plain, masked):
        _, attention = forced(captioner, captioner.encode(videos()), CAPTIONS)[-1]
        assert attention is not None
        assert attention.spatial is not None
        hidden.append(int(torch.count_nonzero(attention.spatial)))
    assert hidden[1] < hidden[0]


def test_gradient_reaches_every_parameter_within_ten_batches() -> None:
    torch.manual_seed(0)
    captioner = G2L(g2l_config(clips=CLIPS, dropout=0.3, tie_words=True), Vocabulary(WORDS)).train()

    def loss(batch: int) -> Tensor:
        captions = torch.randint(3, 20, (6, 4), generator=torch.Generator().manual_seed(batch)).tolist()
        memory = captioner.encode(three_videos())
        return caption_loss(captioner, memory, pad_captions(captions, 6)).cross_entropy

    assert never_reached(captioner, loss) == []


def test_the_sampler_trains_the_frame_attention_by_its_surrogate_alone() -> None:
    """Without the aligned branch eq. 3's third attention learns only through the choice of frames."""
    sizes = {}
    for tau_backward in (0.5, None):
        captioner = tiny_g2l(g2l_config(alignment=False, tau_backward=tau_backward)).train()
        torch.manual_seed(2)
        captioner.zero_grad()
        found = caption_loss(captioner, captioner.encode(videos()), pad_captions([[3, 4, 5]] * 6, 6))
        found.cross_entropy.backward()
        gradient = captioner.attention_al.W_h.weight.grad
        assert gradient is not None
        sizes[tau_backward] = float(gradient.abs().max())
    assert sizes[0.5] > 1e-4
    assert sizes[None] == 0


def test_paper_widths_and_one_optimiser_step() -> None:
    """MSR-VTT: 13,491 words, AdamW with weight decay 2e-5 at 1e-4."""
    torch.manual_seed(0)
    captioner = G2L(G2LConfig(), Vocabulary([f"w{i}" for i in range(13488)])).train()
    optimizer = torch.optim.AdamW(captioner.parameters(), lr=1e-4, weight_decay=2e-5)
    config = captioner.config
    features = {
        config.frames.name: stream(6, 1, config.frames.width, 0),
        config.clips.name: stream(6, 1, config.clips.width, 1),
        config.regions.name: stream(2, 16, config.regions.width, 2, boxes=True),
    }
    targets = pad_captions([[5, 6, 7], [8, 9]], 20)

    def loss() -> Tensor:
        torch.manual_seed(1)
        return caption_loss(captioner, captioner.encode([features]), targets).cross_entropy

    before = loss()
    assert float(before.detach()) == pytest.approx(np.log(13491), rel=0.15)
    before.backward()
    optimizer.step()
    assert loss() < before
