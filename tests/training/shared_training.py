"""A tiny training, as one of the processes that torch.distributed.run starts, or as one alone.

Arguments: the corpus's folder, the run's folder. The first process leaves there, beside the run's own files,
gradients.pt: of the first batch, by cross-entropy and by refocus' combined loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.captioners.refocus.config import RefocusConfig
from models.captioners.refocus.network import Refocus
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.inputs import InputStream
from tests.training.killed_training import RECIPE, trainer
from training.batches.training_batch import TrainingBatch
from training.optimization import trainer as optimization_trainer
from training.optimization.losses import CaptionValues, supervised_loss
from training.optimization.processes import Processes, join_processes
from training.optimization.trainer import Trainer

STEPS = 4
SHARED = RECIPE.model_copy(update={"steps": STEPS, "validate_every": 2, "forcing_eta": None, "videos": 5})
STATS = STaTSConfig(
    streams=(StreamConfig(name="grid", width=8),),
    embedded=16,
    words=16,
    attention=8,
    hidden=24,
    query=16,
    dropout=0.0,
    tie_words=True,
)
REFOCUS = RefocusConfig(
    grid=InputStream(name="grid", width=8),
    audio=None,
    embedded=8,
    hidden=12,
    attention=6,
    dropout=0.0,
    tie_words=True,
)


def make(folder: Path, out: Path, processes: Processes) -> Trainer:
    return replace(trainer(folder, out, recipe=SHARED), processes=processes)


def gradients(
    tiny: Trainer, network: Any, loss: Callable[[Any, TrainingBatch, int], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Of the whole first batch, by this process's part of it."""
    network.train()
    compute = tiny.processes.wrap(network, loss)
    batch = replace(tiny.batches, part=tiny.processes.part).at(0)
    compute(batch, 0)["total"].backward()
    return {name: each.grad for name, each in network.named_parameters() if each.grad is not None}


def combined(tiny: Trainer) -> dict[str, Tensor]:
    """Refocus' gradients, with rewards of an earlier epoch that all processes know."""
    rewards = CaptionValues(tiny.batches.items, tiny.processes)

    torch.manual_seed(0)
    network = Refocus(REFOCUS, tiny.batches.vocabulary)
    spec = next(each for each in network.phases if each.remembers)

    def loss(network: Refocus, batch: TrainingBatch, _: int) -> dict[str, Tensor]:
        memory = network.encode_batches(batch.inputs_of(network))
        forced = tiny.recipe.model_copy(update={"forcing_eta": None})
        return supervised_loss(network, memory, batch, forced, 1.0, torch.Generator(), spec, rewards)

    rewards.values[:] = torch.linspace(-1, 1, len(rewards.values))
    return gradients(tiny, network, loss) | {"rewards": rewards.values}


def judged(tiny: Trainer, network: Any) -> dict[str, Tensor]:
    """Each held-out item's CIDEr-D, and their captions' loss, by groups of two items."""
    tiny.validation.group = 2
    judgement = tiny.validation.judge(network, torch.float32, processes=tiny.processes)
    loss = torch.tensor(judgement.scores["validation_loss"])
    return {"scores": torch.from_numpy(judgement.ciders), "loss": loss}


def main(folder: Path, out: Path) -> None:
    torch.set_num_threads(1)
    optimization_trainer.REPORT_EVERY = 1
    with join_processes("cpu") as (processes, _):
        with processes.first_alone():  # draws the corpus
            tiny = make(folder, out, processes)
        torch.manual_seed(0)
        network = STaTS(STATS, tiny.batches.vocabulary)
        found = {
            "words": gradients(tiny, network, tiny.make_supervised_loss(network.phases[0])),
            "combined": combined(tiny),
            "judged": judged(tiny, network),
        }
        network.zero_grad()
        tiny.train(network)
        if processes.is_first:
            torch.save(found, out / "gradients.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
