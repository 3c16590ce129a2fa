"""Computes teachers' word probabilities, and keeps them as targets.

A teacher reads each caption word by word over the whole picture, and its most probable words at each place
are kept with their shares (Hinton, Vinyals, Dean 2015, at temperature 1). Read once, they cost a student
nothing: a float16 and an int16 for each of ``KEPT`` words a place. What lies outside is spread over all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from extractors.files import atomic_write
from lab.pictures.pseudo_video import Pictures, sample_whole, stack_samples
from models.captioner import Captioner
from models.inputs import order_inputs
from models.likelihood import walk
from models.memory import Memory
from models.vocabulary import pad_captions
from training.batches.loading import find_device, move_to
from training.batches.training_batch import TeacherTargets
from training.precision import autocast

KEPT = 16
#: Videos in one reading of the teacher.
GROUP = 16


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """All captions of a corpus one after another; ``first``: (item id, caption) → its first row."""

    words: NDArray[np.int16]
    shares: NDArray[np.float16]
    first: dict[tuple[str, int], tuple[int, int]]

    def take(self, captions: Sequence[tuple[str, int]], length: int) -> TeacherTargets:
        """Returns the targets of captions by (item id, index), padded to ``length`` words."""
        kept = self.words.shape[1]
        words = np.zeros((len(captions), length, kept), np.int64)
        shares = np.zeros((len(captions), length, kept), np.float32)
        for row, caption in enumerate(captions):
            begin, count = self.first[caption]
            words[row, :count] = self.words[begin : begin + count]
            shares[row, :count] = self.shares[begin : begin + count]
        return TeacherTargets(torch.from_numpy(words), torch.from_numpy(shares))


def average_teachers(teachers: Sequence[SoftTargets]) -> SoftTargets:
    """Averages several teachers of the same captions: each one's kept words stand beside the others'."""
    words = np.concatenate([teacher.words for teacher in teachers], 1)
    shares = np.concatenate([teacher.shares / np.float16(len(teachers)) for teacher in teachers], 1)
    return SoftTargets(words, shares, teachers[0].first)


@dataclass(frozen=True, eq=False)
class TeacherReading:
    """The captions a teacher reads. ``items``: (id, pictures, captions as word ids)."""

    items: Sequence[tuple[str, Pictures, Sequence[Sequence[int]]]]
    max_length: int

    def index_rows(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Returns where each caption's rows lie, its end counted as a word."""
        rows, begin = {}, 0
        for name, _, captions in self.items:
            for i, caption in enumerate(captions):
                count = min(len(caption) + 1, self.max_length)
                rows[name, i] = (begin, count)
                begin += count
        return rows


def load_soft_targets(
    teacher: Captioner, sha256: str, reading: TeacherReading, folder: Path, precision: torch.dtype
) -> SoftTargets:
    """Loads a teacher's targets, which it computes first where they are not there yet.

    Args:
        teacher: is put into evaluation mode.
        sha256: of its file.
        reading: the captions that it reads.
        folder: where targets are kept.
        precision: what it computes in.
    """
    first = reading.index_rows()
    key = json.dumps([sha256, KEPT, reading.max_length, sorted(map(str, first.items()))])
    path = folder / f"soft-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    if not path.exists():
        total = sum(count for _, count in first.values())
        _write(path, *_read(teacher, reading, total, precision))
    kept = np.load(path)
    return SoftTargets(kept["words"], kept["shares"], first)


def _read(
    teacher: Captioner, reading: TeacherReading, total: int, precision: torch.dtype
) -> tuple[NDArray[np.int16], NDArray[np.float16]]:
    kept = min(KEPT, len(teacher.vocabulary))
    words, shares = np.empty((total, kept), np.int16), np.empty((total, kept), np.float16)
    at = 0
    teacher.eval()
    for top_words, top_shares in _compute_distributions(teacher, reading, precision):
        words[at : at + len(top_words)] = top_words
        shares[at : at + len(top_words)] = top_shares
        at += len(top_words)
    return words, shares


def _compute_distributions(
    teacher: Captioner, reading: TeacherReading, precision: torch.dtype
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yields the kept words and shares of groups of items, in the order of ``TeacherReading.index_rows``."""
    device = find_device(teacher)
    for items in tqdm(_group_items(reading), desc="soft targets", unit="group"):
        most = max(len(captions) for _, _, captions in items)
        padded = [[*captions, *[captions[0]] * (most - len(captions))] for _, _, captions in items]
        targets = pad_captions([list(c) for captions in padded for c in captions], reading.max_length)
        samples = [sample_whole(pictures) for _, pictures, _ in items]
        batches = move_to(stack_samples(samples, precision), device)
        with torch.inference_mode(), autocast(precision, device):
            memory = teacher.encode_batches(order_inputs(teacher.inputs, batches))
            top = _predict_top_words(
                teacher, memory, move_to(targets, device), min(KEPT, len(teacher.vocabulary))
            )
        is_caption = torch.tensor([i < len(captions) for _, _, captions in items for i in range(most)])
        valid = (targets >= 0) & is_caption.unsqueeze(1)
        yield top.indices.cpu()[valid].numpy(), top.values.float().cpu()[valid].numpy()


@torch.no_grad()
def _predict_top_words(
    captioner: Captioner, memory: Memory, targets: Tensor, kept: int
) -> torch.return_types.topk:
    """Finds the most probable words at every place of given captions.

    Args:
        captioner: Predicts the words, and is given the true ones.
        memory: B videos, as that captioner encoded them.
        targets: (R, L) word ids, ended by <eos> and padded by -1; the captions of a video side by side.
        kept: How many words a place.

    Returns:
        Probabilities and ids, both (R, L, ``kept``), the most probable first.
    """
    tops = [log_probs.exp().topk(kept, dim=1) for log_probs, _, _ in walk(captioner, memory, targets)]
    values, indices = zip(*tops, strict=True)
    return torch.return_types.topk((torch.stack(values, 1), torch.stack(indices, 1)))


def _group_items(reading: TeacherReading) -> list[list[tuple[str, Pictures, Sequence[Sequence[int]]]]]:
    """Groups neighbours of as many frames, ``GROUP`` at most, so that no sample has to be padded."""
    groups: list[list[tuple[str, Pictures, Sequence[Sequence[int]]]]] = []
    for item in reading.items:
        if not groups or len(groups[-1]) == GROUP or len(groups[-1][0][1].rows) != len(item[1].rows):
            groups.append([])
        groups[-1].append(item)
    return groups


def _write(path: Path, words: NDArray[np.int16], shares: NDArray[np.float16]) -> None:
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, words=words, shares=shares)
