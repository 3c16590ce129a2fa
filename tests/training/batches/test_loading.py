"""Batches come in their order, made ahead, with every tensor on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from models.inputs import Batch
from models.vocabulary import Vocabulary
from training.batches.loading import BatchLoader, find_device, map_tensors, move_to
from training.batches.training_batch import CaptionedItem, TeacherTargets, TrainingBatch, TrainingBatches
from training.precision import CPU, autocast, set_precision, training_precision

META = torch.device("meta")


def batch(step: int = 0) -> TrainingBatch:
    mask = torch.ones(2, 3, 1, dtype=torch.bool)
    stream = Batch(torch.zeros(2, 3, 2), torch.full((2, 3, 1, 4), float(step)), mask[..., 0], mask)
    soft = TeacherTargets(torch.zeros(2, 5, 1, dtype=torch.long), torch.ones(2, 5, 1))
    return TrainingBatch(("a", "b"), {"grid": stream}, torch.zeros(2, 5, dtype=torch.long), None, soft)


@dataclass(frozen=True, eq=False)
class Counted(TrainingBatches[CaptionedItem]):
    def at(self, step: int) -> TrainingBatch:
        if step > 6:
            raise ValueError(f"nobody needs batch {step}")
        return batch(step)


def counted() -> Counted:
    return Counted([], Vocabulary(["a"]), 2, 1, 5, 0)


@pytest.mark.parametrize("ahead", [1, 3, 20])
def test_batches_come_in_order_and_none_behind_the_last_is_made(ahead: int) -> None:
    found = [
        (step, float(each.batches["grid"].values[0, 0, 0, 0]))
        for step, each in BatchLoader(counted(), ahead=ahead).load(2, 7)
    ]
    assert found == [(step, float(step)) for step in range(2, 7)]
    assert list(BatchLoader(counted(), ahead=ahead).load(4, 4)) == []


def test_what_is_prepared_is_handed_over() -> None:
    def name(each: TrainingBatch, step: int) -> TrainingBatch:
        return replace(each, ids=(str(step),))

    assert [each.ids for _, each in BatchLoader(counted(), prepare=name).load(2, 4)] == [("2",), ("3",)]


def test_what_fails_is_raised_where_the_batch_is_asked_for() -> None:
    loading = BatchLoader(counted()).load(6, 8)
    assert next(loading)[0] == 6
    with pytest.raises(ValueError, match="nobody needs batch 7"):
        next(loading)


def test_every_tensor_of_a_batch_is_moved() -> None:
    moved = move_to(batch(), META)
    assert moved.ids == ("a", "b")
    assert moved.true_steps is None
    assert moved.soft is not None
    stream = moved.batches["grid"]
    tensors = [stream.times, stream.values, stream.frame_mask, stream.region_mask, moved.targets]
    assert {each.device for each in (*tensors, moved.soft.words, moved.soft.shares)} == {META}


def test_nothing_is_copied_on_a_cpu() -> None:
    one = batch()
    assert move_to(one, CPU) is one
    assert map_tensors("a word", torch.Tensor.clone) == "a word"


def test_a_network_computes_where_its_parameters_lie() -> None:
    assert find_device(nn.Linear(2, 2, device="meta")) == META
    assert find_device(nn.Identity()) == CPU


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), torch.bfloat16), ((7, 5), torch.float16)])
def test_a_gpu_computes_in_bf16_where_it_can_and_else_in_fp16(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], precision: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert training_precision(torch.device("cuda:1")) is precision


@pytest.mark.parametrize(
    ("name", "precision", "products"),
    [("fp32", torch.float32, "ieee"), ("tf32", torch.float32, "tf32"), ("bf16", torch.bfloat16, "tf32")],
)
def test_a_precision_is_set_by_its_name(name: Any, precision: torch.dtype, products: str) -> None:
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [each.fp32_precision for each in backends]
    try:
        assert set_precision(name) is precision
        assert [each.fp32_precision for each in backends] == [products, products]
        assert set_precision("auto") is training_precision()
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value


def test_a_cpu_casts_nothing_in_fp32() -> None:
    with autocast(torch.float32):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
    with autocast(torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gets_the_same_batches() -> None:
    device = torch.device("cuda:0")
    for step, each in BatchLoader(counted(), device).load(0, 7):
        assert each.targets.device == device
        assert torch.equal(each.batches["grid"].values.cpu(), batch(step).batches["grid"].values)
