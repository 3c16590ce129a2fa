"""STaTS against the slow reference, and the properties its equations promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
import torch

from extractors.features import Features, Stream
from models.captioners.stats.config import Pooling, STaTSConfig, StreamConfig
from models.captioners.stats.network import RankedAttention, STaTS
from models.memory import StepAttention
from models.video_category import add_category
from models.vocabulary import BOS, Vocabulary, pad_captions
from tests.models.tiny import BOXES, GRID, stats_config, stream, tiny_stats, videos
from tests.reference.stats import Array, StatsReference, StepReference
from training.optimization.losses import caption_loss

CONFIGS: dict[str, STaTSConfig] = {
    "grid": stats_config(),
    "boxes": stats_config(BOXES),
    "two streams, tied words": stats_config(GRID, BOXES, tie_words=True),
    "boxes first": stats_config(BOXES, GRID),
    "classes": stats_config(classes=4, class_width=3, class_dropout=0.0),
    "spatio-temporal alone": stats_config(branches="st"),
    "temporo-spatial alone": stats_config(BOXES, branches="ts"),
    "table 2, ranked": stats_config(pooling="ranked"),
    "table 2, mean": stats_config(BOXES, pooling="mean"),
    "table 2, frames": stats_config(GRID, BOXES, pooling="frames", branches="st"),
    "table 2, everything": stats_config(GRID, BOXES, pooling="everything"),
}
CAPTIONS = ([BOS, 4, 9, 4], [BOS, 12, 3, 7])  # two rows a video
LABELS = [2, 0, 4]


def reference(captioner: STaTS, features: Features, words: Sequence[int], label: int) -> list[StepReference]:
    weights: dict[str, Array] = {
        name: value.double().numpy() for name, value in captioner.state_dict().items()
    }
    streams = [features[s.name] for s in captioner.config.streams]
    masks = [np.ones(tuple(s.values.shape[:2]), bool) if s.mask is None else s.mask.numpy() for s in streams]
    values = [s.values.double().numpy() for s in streams]
    return StatsReference(weights, captioner.config, captioner.training).caption(values, masks, words, label)


def labelled(features: Sequence[Features], labels: Sequence[int] | None) -> list[Features]:
    """The videos with their categories, of which label 0 is none and label 1 the first."""
    given = [0] * len(features) if labels is None else labels
    return [
        add_category(video, label - 1 if label else None)
        for video, label in zip(features, given, strict=True)
    ]


def forced(captioner: STaTS, features: list[Features], labels: list[int] | None) -> list[StepAttention]:
    """All captions through the captioner, the log-probabilities among the extras."""
    memory = captioner.encode(labelled(features, labels))
    state, steps = captioner.start(memory, len(CAPTIONS)), []
    for i in range(len(CAPTIONS[0])):
        word = torch.tensor([caption[i] for caption in CAPTIONS]).repeat(len(features))
        log_probs, state, attention = captioner.step(state, word, memory)
        assert attention is not None
        extras = {**attention.extras, "log_probs": log_probs}
        steps.append(StepAttention(attention.temporal, attention.spatial, extras, attention.loss))
    return steps


def close(ours: torch.Tensor, wanted: Array) -> None:
    np.testing.assert_allclose(ours.numpy(), wanted, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("training", [False, True], ids=["argmax", "soft"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_step_agrees_with_the_reference(name: str, training: bool) -> None:
    captioner = tiny_stats(CONFIGS[name], seed=len(name)).train(training)
    features = videos()
    with torch.no_grad():
        steps = forced(captioner, features, LABELS if captioner.config.classes else None)
    for row in range(len(features) * len(CAPTIONS)):
        video, caption = divmod(row, len(CAPTIONS))
        expected = reference(captioner, features[video], CAPTIONS[caption], LABELS[video])
        frames = len(features[video]["grid"])
        for step, wanted in zip(steps, expected, strict=True):
            assert step.spatial is not None
            close(step.extras["log_probs"][row], wanted.log_probs)
            close(step.temporal[row, :frames], wanted.temporal)
            close(step.spatial[row, :frames], wanted.spatial)
            close(step.extras["st_spatial"][row], wanted.st_spatial)
            close(step.extras["branch"][row], wanted.branch)
            ranked = captioner.config.pooling in ("mean_ranked", "ranked")
            if training and ranked and captioner.config.branches != "ts":
                assert step.loss is not None
                assert float(step.loss[row]) == pytest.approx(wanted.ranking, abs=2e-4)
            else:
                assert step.loss is None


def test_the_cases_tell_frames_and_modes_apart() -> None:
    """Neither uniform nor saturated everywhere, or agreement with the reference would say little."""
    features = videos()[2:]
    with torch.no_grad():
        soft = forced(tiny_stats().train(), features, None)
        hard = forced(tiny_stats(), features, None)
    most = torch.stack([step.temporal.max(1).values for step in soft])
    assert ((most > 0.3) & (most < 0.999)).any()
    assert (soft[-1].extras["log_probs"] - hard[-1].extras["log_probs"]).abs().max() > 1e-2


def test_no_step_sees_a_later_word() -> None:
    captioner = tiny_stats()
    memory = captioner.encode(videos()[:1])
    seen = []
    for last in (5, 6):
        state, log_probs = captioner.start(memory, 1), []
        for word in (BOS, 8, last):
            probs, state, _ = captioner.step(state, torch.tensor([word]), memory)
            log_probs.append(probs)
        seen.append(log_probs)
    assert torch.equal(seen[0][1], seen[1][1])
    assert not torch.allclose(seen[0][2], seen[1][2])


def test_a_video_without_any_box_is_captioned_from_language_alone() -> None:
    nothing = stream(2, 3, 5, seed=0, mask=torch.zeros(2, 3, dtype=torch.bool), boxes=True)
    captioner = tiny_stats(stats_config(BOXES))
    for step in forced(captioner, [{"boxes": nothing}, videos()[0]], None):
        assert step.extras["log_probs"].isfinite().all()
        assert step.temporal.isfinite().all()


def test_boxes_that_videos_pad_to_different_counts_share_a_batch() -> None:
    few, many = stream(2, 2, 5, seed=1, boxes=True), stream(3, 4, 5, seed=2, boxes=True)
    captioner = tiny_stats(stats_config(BOXES))
    together = forced(captioner, [{"boxes": few}, {"boxes": many}], None)
    alone = forced(captioner, [{"boxes": few}], None)
    for ours, own in zip(together, alone, strict=True):
        torch.testing.assert_close(ours.extras["log_probs"][:2], own.extras["log_probs"])


def test_unknown_is_a_label_of_its_own_and_the_default() -> None:
    captioner = tiny_stats(CONFIGS["classes"])
    features = videos()[:1]
    absent, unknown, known = (
        forced(captioner, features, labels)[0].extras["log_probs"] for labels in (None, [0], [3])
    )
    assert torch.equal(absent, unknown)
    assert not torch.allclose(absent, known)


def test_ranking_loss_is_zero_for_one_frame() -> None:
    ranked = RankedAttention(6, margin=1.0).train()
    x = torch.randn(2, 4, 6)
    mask = torch.tensor([[True, False, False, False], [True, True, False, False]])
    _, loss = ranked(x, mask)
    assert loss is not None
    assert loss[0] == 0
    assert loss[1] > 0


def test_ranking_loss_ignores_what_padding_holds() -> None:
    ranked = RankedAttention(6, margin=1.0).train()
    x = torch.randn(1, 5, 6)
    mask = torch.tensor([[True, True, True, False, False]])
    other = x.clone()
    other[:, 3:] = 100
    for ours, theirs in zip(ranked(x, mask), ranked(other, mask), strict=True):
        assert torch.equal(ours, theirs)


def test_descending_the_ranking_loss_orders_the_frames() -> None:
    """Frames drift slowly along one direction under noise; w learns to rank unseen videos by their time."""
    torch.manual_seed(3)
    drift = torch.nn.functional.normalize(torch.randn(8), dim=0)

    def draw(count: int) -> torch.Tensor:
        return torch.linspace(-1, 1, 6)[None, :, None] * drift + 0.1 * torch.randn(count, 6, 8)

    def ordered(x: torch.Tensor) -> float:
        projected = torch.einsum("rd,rtd->rt", ranked._last_output(x, mask[: len(x)]), x)
        return float((projected.diff(dim=1) > 0).float().mean())

    ranked = RankedAttention(8, margin=1.0).train()
    mask = torch.ones(64, 6, dtype=torch.bool)
    unseen = draw(64)
    before, first = ordered(unseen), ranked(unseen, mask)[1].mean()
    optimizer = torch.optim.Adam(ranked.parameters(), 1e-2)
    for _ in range(100):
        loss = ranked(draw(64), mask)[1].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert ranked(unseen, mask)[1].mean() < 0.7 * first
    assert ordered(unseen) > max(0.95, before)


@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_gradient_reaches_every_parameter_within_ten_batches(pooling: Pooling) -> None:
    config = stats_config(GRID, BOXES, classes=4, class_width=3, dropout=0.3, pooling=pooling)
    torch.manual_seed(0)
    captioner = STaTS(config, Vocabulary([f"w{i}" for i in range(17)])).train()
    largest = {name: 0.0 for name, _ in captioner.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    for batch in range(10):
        memory = captioner.encode(labelled(videos(), [batch % 5, 0, 2]))
        captions = torch.randint(3, 20, (6, 4), generator=generator).tolist()
        loss = caption_loss(captioner, memory, pad_captions(captions, 6))
        captioner.zero_grad()
        (loss.cross_entropy + 0.1 * loss.auxiliary).backward()
        for name, parameter in captioner.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            largest[name] = max(largest[name], float(parameter.grad.abs().max()))
    assert not [name for name, size in largest.items() if size < 1e-9]


def test_a_config_of_a_checkpoint_from_before_table_2_is_the_models_own() -> None:
    old = stats_config().model_dump(exclude={"pooling"})
    assert STaTSConfig.model_validate(old) == stats_config()


def test_tied_words_are_one_tensor() -> None:
    tied, free = tiny_stats(stats_config(tie_words=True)), tiny_stats()
    assert tied.output.weight is tied.word_embedding.weight
    assert free.output.weight is not free.word_embedding.weight


def test_paper_widths_and_one_optimiser_step() -> None:
    """MSVD's I3D recipe: 7 × 7 × 2048 a chunk, 512 embedded, 13,010 words, RMSprop at 1e-4."""
    torch.manual_seed(0)
    config = STaTSConfig(streams=(StreamConfig(name="i3d_rgb", width=2048),))
    captioner = STaTS(config, Vocabulary([f"w{i}" for i in range(13007)])).train()
    optimizer = torch.optim.RMSprop(captioner.parameters(), lr=1e-4)
    start = np.arange(2, dtype=np.float64)
    spec = stream(1, 1, 1, 0).spec
    clip = Stream(torch.rand(2, 49, 2048), start, start + 1, spec)
    targets = pad_captions([[5, 6, 7], [8, 9]], 20)

    def loss() -> torch.Tensor:
        memory = captioner.encode([{"i3d_rgb": clip}])
        found = caption_loss(captioner, memory, targets)
        return found.cross_entropy + 0.1 * found.auxiliary

    before = loss()
    assert float(before.detach()) == pytest.approx(np.log(13010), rel=0.15)
    before.backward()
    optimizer.step()
    assert loss() < before


def test_a_category_that_is_not_told_or_not_known_is_unknown() -> None:
    """And in training some that are told are dropped, so that the row of the unknown is learned."""
    captioner = tiny_stats(stats_config(classes=4, class_width=3, class_dropout=0.5))
    told = [add_category(video, number) for video, number in zip(videos(), (3, None, 4), strict=True)]
    assert captioner.encode(told).label.tolist() == [4, 0, 0]
    torch.manual_seed(0)
    drawn = [captioner.train().encode(told).label[0].item() for _ in range(20)]
    assert set(drawn) == {0, 4}
    assert captioner.optional_streams == {"category"}
    assert [each.name for each in captioner.inputs] == ["grid", "category"]


def test_frames_without_regions_leave_the_ranked_state_alone() -> None:
    """By an LSTM cell, frame by frame: also where masked frames lie between others, or no frame is left."""
    torch.manual_seed(0)
    ranked = RankedAttention(6, margin=1.0)
    x = torch.randn(4, 5, 6)
    rows = ["11111", "10110", "00101", "00000"]
    mask = torch.tensor([[sign == "1" for sign in row] for row in rows])
    found = ranked._last_output(x, mask)
    for row in range(4):
        h = c = torch.zeros(1, 6)
        for frame in range(5):
            if mask[row, frame]:
                h, c = ranked.lstm(x[row : row + 1, frame], (h, c))
        torch.testing.assert_close(found[row], h[0])


def ranking_gradients(precision: torch.dtype) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of captions and of the ranking, and the gradients of the weights that rank."""
    wide = STaTSConfig(streams=(GRID,), embedded=96, words=64, attention=48, hidden=96, query=96, dropout=0.0)
    torch.manual_seed(0)
    captioner = STaTS(wide, Vocabulary([f"w{i}" for i in range(40)])).train()
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        memory = captioner.encode(videos((9, 12, 7)))
        loss = caption_loss(captioner, memory, pad_captions([[4, 9, 4], [12, 3], [5, 6, 7]], 9))
        total = loss.cross_entropy + loss.auxiliary
    total.backward()
    named = captioner.named_parameters()
    ranked = {name: each.grad for name, each in named if "lstm" in name and each.grad is not None}
    return float(total.detach()), ranked


def test_in_bf16_it_learns_to_rank_as_in_fp32() -> None:
    """The loss is within a hundredth, and every gradient of the LSTM within a twentieth of its length."""
    exact, gradients = ranking_gradients(torch.float32)
    rounded, others = ranking_gradients(torch.bfloat16)
    assert rounded == pytest.approx(exact, rel=0.01)
    assert len(gradients) == 4
    for name, gradient in gradients.items():
        assert others[name].dtype == torch.float32
        assert float((others[name] - gradient).norm() / gradient.norm()) < 0.05, name
