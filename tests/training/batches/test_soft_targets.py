"""What a teacher would have written: the loss by hand, its limit, rows that keep to their captions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lab.pictures.picture_batches import PictureBatches, TrainingItem
from lab.pictures.pseudo_video import Shots, sample_whole, stack_samples
from lab.pictures.teacher_targets import (
    KEPT,
    SoftTargets,
    TeacherReading,
    average_teachers,
    load_soft_targets,
)
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.vocabulary import Vocabulary, pad_captions
from tests.models.toy_captioners import RandomToy, videos
from tests.training.tiny_corpus import captioned
from training.batches.training_batch import TeacherTargets
from training.optimization.losses import caption_loss

MAX_LENGTH = 5  # "<colour> <shape> on grey" has five words and loses its end
TEACHER = "0" * 64
CAPTIONS = [[3], [4, 5, 3, 4], [], [5, 5], [3, 4, 5], [4]]


def drawn_soft(rows: int, length: int, size: int, kept: int = 2) -> TeacherTargets:
    rng = np.random.default_rng(3)
    words = np.stack([rng.permutation(size)[:kept] for _ in range(rows * length)])
    shares = rng.dirichlet(np.ones(kept + 1), rows * length)[:, :kept]
    shape = (rows, length, kept)
    return TeacherTargets(torch.from_numpy(words).view(shape), torch.from_numpy(shares).view(shape))


def test_the_loss_of_a_place_by_hand() -> None:
    """Kept words by their shares, the rest of the probability evenly over the whole vocabulary."""
    soft = drawn_soft(4, 3, 7)
    log_probs = torch.randn(4, 7, generator=torch.Generator().manual_seed(1)).double().log_softmax(1)
    for place in range(3):
        for row, found in enumerate(soft.loss(log_probs, place).tolist()):
            expected, rest = 0.0, 1.0
            for word, share in zip(soft.words[row, place], soft.shares[row, place], strict=True):
                expected -= float(share * log_probs[row, word])
                rest -= float(share)
            expected -= sum(rest / 7 * float(value) for value in log_probs[row])
            assert found == pytest.approx(expected)


def one_hot(targets: torch.Tensor) -> TeacherTargets:
    """A teacher that is sure of every true word."""
    known = targets.clamp(min=0).unsqueeze(2)
    return TeacherTargets(known, (targets >= 0).double().unsqueeze(2))


def test_a_sure_teacher_alone_is_cross_entropy() -> None:
    toy, memory, targets = RandomToy(["a", "b", "c"], seed=3), videos(2, 5), pad_captions(CAPTIONS, 9)
    plain = caption_loss(toy, memory, targets)
    taught = caption_loss(toy, memory, targets, smoothing=0.1, soft=one_hot(targets), soft_weight=1.0)
    torch.testing.assert_close(taught.cross_entropy, plain.cross_entropy)


def test_the_weight_mixes_the_teacher_with_the_captions() -> None:
    """Rows move within their video as captions end; each keeps its own teacher."""
    toy, memory, targets = RandomToy(["a", "b", "c"], seed=3), videos(2, 5), pad_captions(CAPTIONS, 9)
    soft = drawn_soft(targets.shape[0], targets.shape[1], size=6)
    hard, taught, mixed = (
        caption_loss(toy, memory, targets, soft=soft, soft_weight=weight).cross_entropy
        for weight in (0.0, 1.0, 0.3)
    )
    torch.testing.assert_close(mixed, 0.7 * hard + 0.3 * taught)
    torch.testing.assert_close(hard, caption_loss(toy, memory, targets).cross_entropy)
    assert float(taught) == pytest.approx(by_hand(toy, targets, soft), rel=1e-6)


def by_hand(toy: RandomToy, targets: torch.Tensor, soft: TeacherTargets) -> float:
    total, words = 0.0, 0
    for row, target in enumerate(targets.tolist()):
        before = last = 1  # <bos>
        for place, word in enumerate(w for w in target if w >= 0):
            log_probs = toy.table[(2, 5)[row // 3], before, last].unsqueeze(0)
            total += float(soft.select(torch.tensor([row])).loss(log_probs, place))
            before, last, words = last, word, words + 1
    return total / words


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[TrainingItem]:
    """One of them of two frames and of more captions than the others."""
    found = captioned(tmp_path_factory.mktemp("shapes"), 10)
    first, second, *others = found
    pictures = type(first.pictures)(first.pictures.cache, (*first.pictures.rows, *second.pictures.rows))
    return [TrainingItem("shapes/both", pictures, (*first.captions, *second.captions)), second, *others]


@pytest.fixture(scope="module")
def vocabulary(items: list[TrainingItem]) -> Vocabulary:
    return Vocabulary.from_captions(caption for item in items for caption in item.captions)


@pytest.fixture(scope="module")
def teacher(vocabulary: Vocabulary) -> STaTS:
    torch.manual_seed(0)
    config = STaTSConfig(
        streams=(StreamConfig(name="grid", width=8),), embedded=8, words=8, attention=4, hidden=8, query=8
    )
    return STaTS(config, vocabulary).eval()


def reading(items: list[TrainingItem], vocabulary: Vocabulary) -> TeacherReading:
    encoded = [(item.id, item.pictures, [vocabulary.encode(c) for c in item.captions]) for item in items]
    return TeacherReading(encoded, MAX_LENGTH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "cache"


@pytest.fixture(scope="module")
def targets(items: list[TrainingItem], vocabulary: Vocabulary, teacher: STaTS, folder: Path) -> SoftTargets:
    return load_soft_targets(teacher, TEACHER, reading(items, vocabulary), folder, torch.float32)


def test_rows_are_what_the_teacher_says_of_each_caption_alone(
    items: list[TrainingItem], vocabulary: Vocabulary, teacher: Any, targets: SoftTargets
) -> None:
    for item in (items[0], items[1], items[-1]):
        memory = teacher.encode_batches(list(stack_samples([sample_whole(item.pictures)]).values()))
        for i, caption in enumerate(item.captions):
            rows = targets.take([(item.id, i)], MAX_LENGTH)
            state, word = teacher.start(memory, 1), teacher.first_word(memory, 1)
            ids = pad_captions([vocabulary.encode(caption)], MAX_LENGTH)[0].tolist()
            for place, following in enumerate(ids):
                log_probs, state, _ = teacher.step(state, word, memory)
                top = log_probs[0].exp().topk(min(KEPT, len(vocabulary)))
                torch.testing.assert_close(rows.shares[0, place], top.values.detach(), atol=1e-3, rtol=1e-3)
                said = log_probs[0, rows.words[0, place]].exp()  # equal shares may stand in either order
                torch.testing.assert_close(said.detach(), top.values.detach(), atol=1e-5, rtol=1e-4)
                word = torch.tensor([following])
            assert not rows.shares[0, len(ids) :].any()


def test_a_cut_caption_has_no_row_for_its_end(items: list[TrainingItem], targets: SoftTargets) -> None:
    counts = {len(item.captions[i]): targets.first[item.id, i][1] for item in items for i in range(3)}
    assert counts == {3: 4, 5: 5}


def test_a_batchs_soft_rows_are_those_of_its_targets(
    items: list[TrainingItem], vocabulary: Vocabulary, targets: SoftTargets
) -> None:
    by_ids = {
        (item.id, tuple(pad_captions([vocabulary.encode(c)], MAX_LENGTH)[0].tolist())): (item.id, i)
        for item in items
        for i, c in enumerate(item.captions)
    }
    batches = PictureBatches(items, vocabulary, 4, 2, MAX_LENGTH, 1, Shots((1.0,)), torch.float32, targets)
    batch = batches.at(1)
    assert batch.soft is not None
    assert batch.soft.words.shape[:2] == batch.targets.shape
    for row, target in enumerate(batch.targets.tolist()):
        caption = by_ids[batch.ids[row // 2], tuple(word for word in target if word >= 0)]
        own = targets.take([caption], len(target))
        assert torch.equal(batch.soft.words[row], own.words[0])
        assert torch.equal(batch.soft.shares[row], own.shares[0])


def test_several_teachers_are_averaged(targets: SoftTargets) -> None:
    """A teacher that agrees with itself changes nothing of the loss; one sure of another word takes half."""
    caption = next(iter(targets.first))
    count = targets.first[caption][1]
    sure = SoftTargets(np.full_like(targets.words, 3), np.zeros_like(targets.shares), targets.first)
    sure.shares[:, 0] = 1
    log_probs = torch.randn(1, 20, generator=torch.Generator().manual_seed(2)).log_softmax(1)
    for place in range(count):
        one, other, both, twice = (
            float(given.take([caption], count).loss(log_probs, place))
            for given in (
                targets,
                sure,
                average_teachers([targets, sure]),
                average_teachers([targets, targets]),
            )
        )
        assert both == pytest.approx((one + other) / 2, rel=1e-3)
        assert twice == pytest.approx(one, rel=1e-3)


def test_a_teacher_reads_once(
    items: list[TrainingItem], vocabulary: Vocabulary, targets: SoftTargets, folder: Path, monkeypatch: Any
) -> None:
    """Whoever asks again gets what is kept; another teacher's is another file."""
    read = reading(items, vocabulary)
    again = load_soft_targets(None, TEACHER, read, folder, torch.float32)  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.words, targets.words)
    np.testing.assert_array_equal(again.shares, targets.shares)
    assert again.first == targets.first
    assert [path.suffix for path in folder.iterdir()] == [".npz"]
    with pytest.raises(AttributeError):
        load_soft_targets(None, "1" * 64, read, folder, torch.float32)  # type: ignore[arg-type]
