"""Shares one training among several processes, one a GPU, as ``torch.distributed.run`` starts them.

Every process has the whole network and takes its part of each batch; torch's DistributedDataParallel averages
the gradients while the backward pass goes on. Losses are means over words or samples, of which each process
has another number: ``Processes.share`` weighs them, so that the average is the mean over the whole batch.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from extractors.engines.engine_choice import DeviceUnavailable, open_device
from extractors.errors import ReelwordError
from training.batches.training_batch import BatchPart, TrainingBatch

#: Of processes that wait for the first one, which alone makes features of all videos.
PATIENCE = timedelta(hours=12)
#: Of one process's draws and another's.
SEEDS_APART = 2**40
NetworkT = TypeVar("NetworkT", bound=nn.Module)


class NotShared(ReelwordError, ValueError, code="not_shared"):
    """This training cannot be shared among processes; the message says why."""

    hint = "Start it as one process: without torch.distributed.run."


@dataclass(frozen=True)
class Processes:
    """The processes that train one network together, seen from one of them."""

    rank: int = 0  #: its number, from 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that logs and saves."""
        return self.rank == 0

    @property
    def part(self) -> BatchPart:
        """The part of every batch that this process takes."""
        return BatchPart(self.rank, self.count)

    def check_videos(self, videos: int) -> None:
        """Checks that a batch has a video for each process. Raises NotShared."""
        if videos < self.count:
            raise NotShared(f"A batch of {videos} videos cannot be shared among {self.count} processes.")

    def shift(self, seed: int) -> int:
        """Returns the seed of this process's own draws, which is ``seed`` in the first."""
        return seed + SEEDS_APART * self.rank

    def wait(self) -> None:
        """Waits until all processes have come as far."""
        if self.count > 1:
            dist.barrier()

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Lets the first process through before the others: what it makes, they find made."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def gather(self, value: Any) -> list[Any]:
        """Returns what all processes have given, in the order of their ranks."""
        if self.count == 1:
            return [value]
        gathered = [None] * self.count
        dist.all_gather_object(gathered, value)
        return list(gathered)

    def wrap(
        self, network: NetworkT, loss: Callable[[NetworkT, TrainingBatch, int], Mapping[str, Tensor]]
    ) -> Callable[[TrainingBatch, int], Mapping[str, Tensor]]:
        """Makes a function from a batch and a step to losses, whose gradients the processes average.

        loss: from the network, a batch and the step's number to losses, of which "total" is descended.
        """
        if self.count == 1:
            return lambda batch, step: loss(network, batch, step)
        # static: which weights a phase has no gradient of is noted in its first step, not looked for in each
        return DistributedDataParallel(_LossModule(network, loss), static_graph=True, broadcast_buffers=False)


#: The one process of a training that is not shared.
ALONE = Processes()


class _LossModule(nn.Module):
    """Computes losses as the forward pass of a module, since only such are averaged."""

    def __init__(
        self, network: NetworkT, loss: Callable[[NetworkT, TrainingBatch, int], Mapping[str, Tensor]]
    ) -> None:
        super().__init__()
        self.network, self._loss = network, loss

    def forward(self, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
        losses = self._loss(self.network, batch, step)
        # only what is descended has gradients to wait for
        return {name: each if name == "total" else each.detach() for name, each in losses.items()}


def share_mean(mean: Tensor, count: Tensor) -> Tensor:
    """Weighs a mean over ``count`` things so that averaged over the processes it is the mean over all.

    mean: () with gradient. count: (), how many things this process has: words, or samples' words.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return mean
    weight = count.detach().to(mean.device, torch.float32)
    total = weight.clone()
    dist.all_reduce(total)
    return mean * (weight * dist.get_world_size() / total.clamp(min=1))


@contextmanager
def join_processes(wanted: str) -> Iterator[tuple[Processes, torch.device]]:
    """Joins the processes that torch.distributed.run has started, or trains alone where it has not.

    wanted: "auto", "cpu", "cuda" or "cuda:N"; of several processes each takes its own GPU. Yields the
    processes and this one's device. Raises DeviceUnavailable: it is not there, or several ask for one GPU.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    device = open_device(wanted)
    if count == 1:
        yield Processes(), device
        return
    if device.type == "cuda":
        if ":" in wanted:
            raise DeviceUnavailable(f"{count} processes cannot share {wanted}: ask for cuda, one GPU each.")
        device = open_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), count), device
    finally:
        dist.destroy_process_group()
