"""A step never asks its device for a value, which on a GPU would wait for all that was asked before.

Tensors on ``meta`` have no values: ``item``, ``tolist``, ``cpu``, ``nonzero``, ``int(tensor)`` and a branch
on a tensor fail there, and what is brought there from the CPU is noted. A step that goes through could be
captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from models.captioner import Captioner
from models.inputs import collate_inputs
from models.vocabulary import pad_captions
from tests.models.tiny import (
    dual_afr_config,
    tiny_dual_afr,
    tiny_g2l,
    tiny_refocus,
    tiny_spatial,
    tiny_stats,
    tiny_temporal,
    tiny_transformer,
    tiny_vanilla,
    transformer_config,
    videos,
)
from training.batches.forcing_plan import plan_forcing
from training.batches.loading import move_to
from training.batches.training_batch import TrainingBatch
from training.optimization.losses import supervised_loss
from training.precision import CPU
from training.recipes.demo_recipes import DEMO

META = torch.device("meta")
RECIPE = DEMO.model_copy(update={"soft_weight": 0.0})


def tiny_hard_dual_afr() -> Captioner:
    return tiny_dual_afr(dual_afr_config(kind="hard", samples=3))


def tiny_encoding_transformer() -> Captioner:
    return tiny_transformer(transformer_config(encoder_layers=1))


CAPTIONERS: list[Callable[[], Any]] = [
    tiny_stats,
    tiny_g2l,
    tiny_refocus,
    tiny_dual_afr,
    tiny_hard_dual_afr,
    tiny_vanilla,
    tiny_temporal,
    tiny_spatial,
    tiny_encoding_transformer,
]


def make_batch(captioner: Captioner, lengths: tuple[int, ...] = (2, 4, 1), seed: int = 0) -> TrainingBatch:
    """Three videos with a caption each, of so many words, some of which are to be the captioner's own."""
    streams = collate_inputs(videos(), captioner.inputs, CPU, captioner.optional_streams)
    batches = {each.name: batch for each, batch in zip(captioner.inputs, streams, strict=True)}
    targets = pad_captions([[*range(3, 3 + length)] for length in (*lengths, 7)], 8)[:3]
    plan = plan_forcing(targets, 3, 0.5, torch.Generator().manual_seed(seed), fixed=True)
    return TrainingBatch(("a", "b", "c"), batches, targets, None, plan=plan)


def step(captioner: Captioner, batch: TrainingBatch) -> None:
    memory = captioner.encode_batches(batch.inputs_of(captioner))
    losses = supervised_loss(captioner, memory, batch, RECIPE, 1.0, None)  # type: ignore[arg-type]
    losses["total"].backward()


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("make", CAPTIONERS)
def test_a_step_needs_no_value_of_its_device(make: Callable[[], Any], fixed: bool) -> None:
    captioner = make().train()
    batch = make_batch(captioner)
    if not fixed:
        plan = plan_forcing(batch.targets, 3, 0.5, torch.Generator().manual_seed(1))
        batch = TrainingBatch(batch.ids, batch.batches, batch.targets, None, plan=plan)
    captioner, moved = captioner.to(META), move_to(batch, META)
    with Copies() as copies:
        step(captioner, moved)
    assert copies.calls == []


class Copies(TorchDispatchMode):
    """Notes what is brought to ``meta`` from the CPU, which waits for a GPU too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        if isinstance(result, torch.Tensor) and result.is_meta and any(each.is_cpu for each in tensors):
            self.calls.append(str(func))
        return result


class Shapes(TorchDispatchMode):
    """Notes what is computed, and of tensors of which shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[tuple[int, ...], ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((str(func), tuple(_list_shapes(args))))
        return func(*args, **(kwargs or {}))


def _list_shapes(value: Any) -> Iterator[tuple[int, ...]]:
    if isinstance(value, torch.Tensor):
        yield tuple(value.shape)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _list_shapes(each)


@pytest.mark.parametrize("make", CAPTIONERS)
def test_steps_of_fixed_shapes_are_the_same_calls(make: Callable[[], Any]) -> None:
    captioner = make().train()
    taken = []
    for lengths, seed in (((2, 4, 1), 0), ((5, 1, 3), 9)):
        captioner.zero_grad()
        with Shapes() as shapes:
            step(captioner, make_batch(captioner, lengths, seed))
        taken.append([call for call in shapes.calls if "plan" not in call])
    assert taken[0] == taken[1]
