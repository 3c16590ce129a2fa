"""PictureBatches are a function of the seed and the step; every item comes once an epoch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from lab.pictures.picture_batches import (
    CachedNetwork,
    PictureBatches,
    TrainingItem,
    hold_out,
    load_training_sets,
)
from lab.pictures.picture_features import VIEWS
from lab.pictures.pseudo_video import Shots
from models.vocabulary import EOS, Vocabulary
from tests.training.tiny_corpus import Averages, captioned
from training.optimization.run_folder import TrainingRun
from training.recipes.demo_recipes import DEMO


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[TrainingItem]:
    return captioned(tmp_path_factory.mktemp("shapes"), 16)


def batches(items: list[TrainingItem], seed: int = 1, captions: int = 2) -> PictureBatches:
    vocabulary = Vocabulary.from_captions(caption for item in items for caption in item.captions)
    return PictureBatches(items, vocabulary, 4, captions, 9, seed, Shots(DEMO.lengths), torch.float32)


def test_a_batch_is_a_function_of_seed_and_step(items: list[TrainingItem]) -> None:
    one, same, other = (batches(items, seed).at(13) for seed in (1, 1, 2))
    assert one.ids == same.ids
    assert torch.equal(one.batches["grid"].values, same.batches["grid"].values)
    assert torch.equal(one.targets, same.targets)
    assert one.ids != other.ids


def test_every_item_comes_once_an_epoch_in_another_order(items: list[TrainingItem]) -> None:
    order = batches(items)
    assert order.steps_per_epoch == 4
    first, second = ([name for i in range(4) for name in order.at(4 * epoch + i).ids] for epoch in (0, 1))
    assert sorted(first) == sorted(second) == sorted(item.id for item in items)
    assert first != second


def test_targets_are_captions_of_the_batchs_own_items(items: list[TrainingItem]) -> None:
    order, by_id = batches(items), {item.id: item for item in items}
    batch = order.at(3)
    for row, target in enumerate(batch.targets.tolist()):
        words = order.vocabulary.decode(target[: target.index(EOS)])
        assert tuple(words) in by_id[batch.ids[row // 2]].captions


def test_captions_of_an_item_differ_as_long_as_there_are_enough(items: list[TrainingItem]) -> None:
    for row in batches(items, captions=3).at(0).targets.view(4, 3, -1).tolist():
        assert len({tuple(target) for target in row}) == 3
    assert batches(items, captions=5).at(0).targets.shape[0] == 20


def test_all_samples_of_a_batch_have_one_length(items: list[TrainingItem]) -> None:
    order = batches(items)
    lengths = Counter(order.at(step).batches["grid"].values.shape[1] for step in range(60))
    assert set(lengths) <= set(range(1, 9))
    assert len(lengths) > 4
    assert lengths[1] > 20


def test_hold_out_sets_aside_one_sets_items_for_good(items: list[TrainingItem]) -> None:
    foreign = [TrainingItem(f"other/{i}", item.pictures, item.captions) for i, item in enumerate(items)]
    kept, held_out = hold_out(items + foreign, 5, "shapes/", seed=3)
    again, _ = hold_out(items + foreign, 5, "shapes/", seed=3)
    assert len(held_out) == 5
    assert all(item.id.startswith("shapes/") for item in held_out)
    assert not {item.id for item in held_out} & {item.id for item in kept}
    assert len(kept) + len(held_out) == 32
    assert [item.id for item in again] == [item.id for item in kept]


def test_a_folder_without_any_set_names_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"flickr8k_train\.tar.*docs/training\.md"):
        load_training_sets([CachedNetwork(Averages(), VIEWS)], tmp_path, tmp_path / "cache")


def test_a_runs_state_is_replaced_in_one_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TrainingRun(tmp_path / "run")
    assert run.load() is None
    run.save({"step": 1, "weight": torch.ones(2)})

    def half(state: object, path: Path) -> None:
        path.write_bytes(b"PK")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="no space"):
        run.save({"step": 2})
    kept = run.load()
    assert kept is not None
    assert kept["step"] == 1
    assert torch.equal(kept["weight"], torch.ones(2))
