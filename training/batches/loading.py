"""Makes batches ahead of the steps that take them, and brings them to the device that computes."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from training.batches.training_batch import CaptionedItem, TrainingBatch, TrainingBatches
from training.precision import CPU

ValueT = TypeVar("ValueT")


def find_device(network: nn.Module) -> torch.device:
    """Returns the device on which a network's parameters lie, the CPU for one without any."""
    parameter = next(network.parameters(), None)
    return CPU if parameter is None else parameter.device


def map_tensors(value: ValueT, function: Callable[[Tensor], Tensor]) -> ValueT:
    """Applies a function to every tensor in a value.

    value: a tensor, a dataclass or a mapping; what else it holds stays as it is.
    """
    changed: Any = value
    if isinstance(value, Tensor):
        changed = function(value)
    elif isinstance(value, Mapping):
        changed = {name: map_tensors(each, function) for name, each in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        changed = replace(
            value, **{each.name: map_tensors(getattr(value, each.name), function) for each in fields(value)}
        )
    return changed  # type: ignore[no-any-return]


def move_to(value: ValueT, device: torch.device) -> ValueT:
    """Moves every tensor in a value to the device; returns the value itself where that is the CPU."""
    if device.type == "cpu":
        return value
    return map_tensors(value, lambda tensor: tensor.to(device, non_blocking=True))


class BatchLoader:
    """Makes batches in threads of their own, so that none is waited for, and hands them over in order.

    For a GPU a thread makes a batch in pinned memory and copies it to the device, on a stream beside the one
    that computes; a batch is handed over once its copy is ordered before what will read it.

    Args:
        batches: makes the batch of a step, from several threads at a time.
        device: where the batches are to lie.
        ahead: how many are made before they are asked for; by default as suits the device.
        prepare: from a batch and its step to what is handed over, on the CPU.
    """

    def __init__(
        self,
        batches: TrainingBatches[CaptionedItem],
        device: torch.device = CPU,
        ahead: int | None = None,
        prepare: Callable[[TrainingBatch, int], TrainingBatch] = lambda batch, _: batch,
    ) -> None:
        self._batches, self._device, self._prepare = batches, device, prepare
        # a GPU takes a batch in less time than a thread needs for one; a CPU needs its cores itself
        self._ahead = ahead or (3 if device.type == "cuda" else 1)
        self._stream = (
            torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        )

    def load(self, first: int, last: int) -> Iterator[tuple[int, TrainingBatch]]:
        """Yields the steps from ``first`` to before ``last``, each with its batch on the device."""
        with ThreadPoolExecutor(self._ahead) as threads:
            coming = {
                step: threads.submit(self._make, step)
                for step in range(first, min(first + self._ahead, last))
            }
            for step in range(first, last):
                batch, copied = coming.pop(step).result()
                if (following := step + self._ahead) < last:
                    coming[following] = threads.submit(self._make, following)
                yield step, self._hand_over(batch, copied)

    def _make(self, step: int) -> tuple[TrainingBatch, torch.cuda.Event | None]:
        batch = self._prepare(self._batches.at(step), step)
        if self._stream is None:
            return batch, None
        pinned = map_tensors(batch, lambda tensor: tensor if tensor.is_pinned() else tensor.pin_memory())
        with torch.cuda.stream(self._stream):
            moved = move_to(pinned, self._device)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        return moved, copied

    def _hand_over(self, batch: TrainingBatch, copied: torch.cuda.Event | None) -> TrainingBatch:
        """Orders the copy before what the current stream does next, and keeps its memory until then."""
        if copied is None:
            return batch
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copied)

        def keep(tensor: Tensor) -> Tensor:
            tensor.record_stream(current)
            return tensor

        return map_tensors(batch, keep)
