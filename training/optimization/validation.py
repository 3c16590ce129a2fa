"""Computes CIDEr-D, or likelihood, on held-out items, quick enough to choose checkpoints by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic

import torch

from models.captioner import Captioner, MemoryT, StateT
from models.decoding.decode import DecodingOptions, decode
from models.inputs import Batch, order_inputs
from models.likelihood import teacher_force
from models.vocabulary import pad_captions
from training.batches.loading import find_device, move_to
from training.batches.training_batch import ItemT_co, ValueT
from training.batches.video_batches import CaptionedVideo, VideoInputs
from training.optimization.processes import ALONE, Processes
from training.precision import autocast
from training.scores.bootstrap import Floats
from training.scores.cider import CiderD


def keep_memory(memory: MemoryT) -> MemoryT:
    """Returns the memory as it is."""
    return memory


class Validation(ABC, Generic[ItemT_co]):
    """Scores captioners on held-out items; document frequencies are these items' own.

    options: of the search that checkpoints are chosen by, the recipe's ``decoding``.
    """

    #: Items that are captioned together.
    group: int

    def __init__(self, items: Sequence[ItemT_co], options: DecodingOptions) -> None:
        self.items = items
        self.options = options
        self.scorer = CiderD({item.id: item.captions for item in items})

    @abstractmethod
    def load_group(self, start: int) -> Mapping[str, Batch]:
        """Returns a batch for each stream of the group of items that begins at ``start``."""

    def cider(
        self,
        captioner: Captioner[MemoryT, StateT],
        precision: torch.dtype,
        choose_memory: Callable[[MemoryT], MemoryT] = keep_memory,
        processes: Processes = ALONE,
    ) -> float:
        """Returns the mean of ``score`` × 100, as papers print it.

        Args:
            captioner: is put into evaluation mode.
            precision: what it computes in.
            choose_memory: the memory that is written from, where a captioner has several.
            processes: that share the items, and all learn what comes of it.
        """
        return 100 * float(self.score(captioner, precision, choose_memory, processes).mean())

    def log_likelihood(
        self,
        captioner: Captioner[MemoryT, StateT],
        precision: torch.dtype,
        choose_memory: Callable[[MemoryT], MemoryT] = keep_memory,
        processes: Processes = ALONE,
    ) -> float:
        """Returns the mean log-probability (nats) of a word of the items' first captions.

        Weights are chosen by it where CIDEr-D cannot be computed of the items.

        Args:
            captioner: is put into evaluation mode.
            precision: what it computes in.
            choose_memory: the memory that is read from, where a captioner has several.
            processes: that share the items, and all learn what comes of it.
        """
        captioner.eval()
        words = {}
        for start, items, memory in self._encode_groups(captioner, precision, processes):
            captions = [captioner.vocabulary.encode(item.captions[0]) for item in items]
            with torch.inference_mode(), autocast(precision, find_device(captioner)):
                targets = pad_captions(captions).to(find_device(captioner))
                forced = teacher_force(captioner, choose_memory(memory), targets)
            words[start] = forced.log_p[forced.valid].double().cpu()
        return float(torch.cat(_join_groups(processes.gather(words))).mean())

    def score(
        self,
        captioner: Captioner[MemoryT, StateT],
        precision: torch.dtype,
        choose_memory: Callable[[MemoryT], MemoryT] = keep_memory,
        processes: Processes = ALONE,
    ) -> Floats:
        """Captions all items and scores the captions.

        Args:
            captioner: is put into evaluation mode.
            precision: what it computes in.
            choose_memory: the memory that is written from, where a captioner has several.
            processes: that share the items, and all learn what comes of it.

        Returns:
            (items,) CIDEr-D, 0 to 10.
        """
        captioner.eval()
        written = {}
        for start, _, memory in self._encode_groups(captioner, precision, processes):
            with torch.inference_mode(), autocast(precision, find_device(captioner)):
                decoded = decode(captioner, choose_memory(memory), self.options)
            written[start] = [captioner.vocabulary.decode(each[0].tokens) for each in decoded]
        captions = [caption for group in _join_groups(processes.gather(written)) for caption in group]
        return self.scorer.score([item.id for item in self.items], captions)

    def _encode_groups(
        self, captioner: Captioner[MemoryT, StateT], precision: torch.dtype, processes: Processes
    ) -> Iterator[tuple[int, Sequence[ItemT_co], MemoryT]]:
        """Yields where each group of this process begins, its items, and their memory."""
        device, every = find_device(captioner), self.group * processes.count
        for start in range(self.group * processes.rank, len(self.items), every):
            batches = move_to(self.load_group(start), device)
            with torch.inference_mode(), autocast(precision, device):
                memory = captioner.encode_batches(order_inputs(captioner, batches))
            yield start, self.items[start : start + self.group], memory


def _join_groups(gathered: Sequence[Mapping[int, ValueT]]) -> list[ValueT]:
    """Puts what processes have made of their groups into the groups' order."""
    joined = {start: value for groups in gathered for start, value in groups.items()}
    return [joined[start] for start in sorted(joined)]


class VideoValidation(Validation[CaptionedVideo]):
    """On whole videos."""

    group = 16

    def __init__(
        self, items: Sequence[CaptionedVideo], options: DecodingOptions, inputs: VideoInputs
    ) -> None:
        super().__init__(items, options)
        self.inputs = inputs

    def load_group(self, start: int) -> Mapping[str, Batch]:
        """Reads the group's features. Raises FeaturesDamaged."""
        return self.inputs.load(self.items[start : start + self.group])
