"""A step of the optimiser in each precision, and a state that goes from one to another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from models.captioners.stats.network import STaTS
from tests.models.tiny import tiny_stats, videos
from training.optimization.learner import Learner, build_learner
from training.optimization.run_folder import TrainingRun
from training.recipes.demo_recipes import DEMO

RECIPE = DEMO.model_copy(update={"average_decay": 0.5})


def make(precision: torch.dtype = torch.float32) -> Learner[STaTS]:
    return build_learner(RECIPE, tiny_stats().train(), precision)


def loss_of(learner: Learner[STaTS]) -> Tensor:
    memory = learner.network.encode(videos())
    words = learner.network.first_word(memory, 1)
    found, _, _ = learner.network.step(learner.network.start(memory, 1), words, memory)
    return -found[:, 3].mean()


def weights(learner: Learner[STaTS]) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in learner.network.named_parameters()}


def test_float16_takes_the_step_of_float32() -> None:
    """The loss is scaled for the backward pass alone: what is clipped and descended is not."""
    found = []
    for precision in (torch.float32, torch.float16):
        learner = make(precision)
        learner.add_gradient(loss_of(learner))
        learner.descend(1e-2, 1.0)
        found.append(weights(learner))
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_a_step_that_overflows_is_left_out_and_the_next_is_scaled_less() -> None:
    learner = make(torch.float16)
    before, scale = weights(learner), learner.scaler.get_scale()
    learner.add_gradient(loss_of(learner) * torch.inf)
    learner.descend(1e-2, 1.0)
    assert all(torch.equal(value, before[name]) for name, value in weights(learner).items())
    assert learner.scaler.get_scale() < scale


@pytest.mark.parametrize("saved_in", [torch.float32, torch.float16])
@pytest.mark.parametrize("resumed_in", [torch.float32, torch.float16])
def test_a_state_is_resumed_in_another_precision(
    saved_in: torch.dtype, resumed_in: torch.dtype, tmp_path: Any
) -> None:
    learner, run = make(saved_in), TrainingRun(tmp_path)
    learner.add_gradient(loss_of(learner))
    learner.descend(1e-2, 1.0)
    run.save({"step": 1, **learner.state()})
    other, state = make(resumed_in), run.load()
    assert state is not None
    other.restore(state)
    for one, two in zip(learner.averaged.parameters(), other.averaged.parameters(), strict=True):
        assert torch.equal(one, two)
    assert all(torch.equal(value, weights(learner)[name]) for name, value in weights(other).items())
    other.add_gradient(loss_of(other))
    other.descend(1e-2, 1.0)


def test_a_state_of_before_there_were_scalers_is_resumed() -> None:
    learner = make()
    state = learner.state()
    del state["scaler"]
    make(torch.float16).restore(state)


def test_the_average_moves_by_the_warm_share() -> None:
    """Its first is a copy; of the second (1 + 1) / (10 + 1) stays."""
    learner = make()
    learner.add_gradient(loss_of(learner))
    learner.descend(1e-2, 1.0)
    first = weights(learner)
    learner.add_gradient(loss_of(learner))
    learner.descend(1e-2, 1.0)
    averaged, second = dict(learner.averaged.named_parameters()), weights(learner)
    for name, value in first.items():
        torch.testing.assert_close(averaged[name], value * 2 / 11 + second[name] * 9 / 11, msg=name)


def test_a_state_is_loaded_on_the_cpu_wherever_it_was_saved(tmp_path: Any, monkeypatch: Any) -> None:
    asked: list[Any] = []
    load = torch.load

    def spying(*given: Any, **named: Any) -> Any:
        asked.append(named["map_location"])
        return load(*given, **named)

    run = TrainingRun(tmp_path)
    run.save({"step": 3})
    monkeypatch.setattr(torch, "load", spying)
    assert run.load() == {"step": 3}
    assert asked == ["cpu"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_state_goes_from_a_gpu_to_the_cpu_and_back(tmp_path: Any) -> None:
    gpu = build_learner(RECIPE, tiny_stats().to("cuda").train())
    memory = gpu.network.encode(videos())
    words = gpu.network.first_word(memory, 1)
    gpu.add_gradient(-gpu.network.step(gpu.network.start(memory, 1), words, memory)[0][:, 3].mean())
    gpu.descend(1e-2, 1.0)
    run = TrainingRun(tmp_path)
    run.save(gpu.state())
    state = run.load()
    assert state is not None
    cpu = make()
    cpu.restore(state)
    cpu.add_gradient(loss_of(cpu))
    cpu.descend(1e-2, 1.0)
    gpu.restore(cpu.state())
    for one, two in zip(gpu.network.parameters(), cpu.network.parameters(), strict=True):
        assert torch.equal(one.cpu(), two)
