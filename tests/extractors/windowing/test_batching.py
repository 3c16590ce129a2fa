"""Windows out of frames that come in chunks: the right ones, in batches, nothing held for long."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.windowing.batching import Batcher, PendingRows, WindowCutter
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows
from tests.extractors.plain_extractors import Means, Numbers
from tests.media import numbered

RATE = 10


def frames_of(first: int, last: int) -> Tensor:
    return torch.from_numpy(np.stack([numbered(number, 8, 8) for number in range(first, last)]))


def windows_of(extractor: Numbers, count: int, chunk: int) -> list[list[int]]:
    """The numbers in every window of ``count`` frames that come ``chunk`` at a time."""
    stacker = WindowCutter(extractor, extractor.windows.cut(count / RATE, RATE))
    given: list[Tensor] = []
    for first in range(0, count, chunk):
        last = min(first + chunk, count)
        until = last / RATE if last < count else math.inf
        given.extend(stacker.push(frames_of(first, last), np.arange(first, last) / RATE, until))
    numbers: list[list[int]] = extractor.extract_windows(torch.stack(given))["numbers"].values.int().tolist()
    return numbers


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
@pytest.mark.parametrize("step", [2, 4, 6])
def test_windows_are_the_same_however_the_frames_come(chunk: int, step: int) -> None:
    extractor = Numbers(Windows(stack_size=4, step_size=step))
    cut = extractor.windows.cut(1.7, RATE)
    instants = (cut.instants * RATE).astype(int)
    assert windows_of(extractor, 17, chunk) == instants[cut.index].tolist()


def test_a_frame_is_prepared_once_however_many_windows_share_it() -> None:
    extractor = Numbers(Windows(stack_size=8, step_size=1))
    assert len(windows_of(extractor, 50, 5)) == 43
    assert extractor.prepared == 50


def test_frames_that_no_window_looks_at_are_not_prepared() -> None:
    extractor = Numbers(Windows(stack_size=2, step_size=2, most=3))
    assert len(windows_of(extractor, 100, 10)) == 3
    assert extractor.prepared == 6


def test_a_frame_that_stays_is_shared_by_its_instants() -> None:
    extractor = Numbers(Windows(stack_size=3, step_size=3, extraction_fps=30))
    stacker = WindowCutter(extractor, extractor.windows.cut(0.4, RATE))
    stacks = list(stacker.push(frames_of(0, 4), np.arange(4) / RATE, math.inf))
    numbers = extractor.extract_windows(torch.stack(stacks))["numbers"].values.int().tolist()
    assert numbers == [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]]
    assert extractor.prepared == 4


def test_instants_before_the_first_frame_show_it() -> None:
    extractor = Numbers(Windows(stack_size=3, step_size=3, extraction_fps=30))
    stacker = WindowCutter(extractor, extractor.windows.cut(0.4, RATE))
    pts = np.arange(4) / RATE + 0.05  # of a film's pictures, each from the middle of its part
    stacks = list(stacker.push(frames_of(0, 4), pts, math.inf))
    numbers = extractor.extract_windows(torch.stack(stacks))["numbers"].values.int().tolist()
    assert numbers == [[0, 0, 0], [0, 0, 1], [1, 1, 2], [2, 2, 3]]


def batcher_and_tickets(batch: int, *lengths: int) -> tuple[Batcher, list[PendingRows]]:
    extractor = Means(batch=batch)
    return Batcher(extractor), [PendingRows(extractor, Windows().cut(n / RATE, RATE)) for n in lengths]


def grey(value: int, side: int = 4) -> Tensor:
    return torch.full((1, side, side, 3), value, dtype=torch.uint8)


def rows(ticket: PendingRows) -> list[float]:
    return ticket.streams()["numbers"].values[:, 0].tolist()


def test_windows_of_several_videos_share_a_batch_and_come_back_to_their_own() -> None:
    batcher, (first, second) = batcher_and_tickets(4, 3, 2)
    for value in (1, 2, 3):
        batcher.add(grey(value), first)
    assert [first.complete, second.complete] == [False, False]
    for value in (4, 5):
        batcher.add(grey(value), second)
    assert [first.complete, second.complete] == [True, False]
    batcher.flush()
    assert batcher.extractor.batches == [4, 1]  # type: ignore[attr-defined]
    assert (rows(first), rows(second)) == ([1, 2, 3], [4, 5])


def test_frames_of_another_size_begin_a_batch_of_their_own() -> None:
    batcher, (first, second) = batcher_and_tickets(8, 2, 1)
    for window, ticket in ((grey(1), first), (grey(2), first), (grey(3, side=6), second)):
        batcher.add(window, ticket)
    batcher.flush()
    assert batcher.extractor.batches == [2, 1]  # type: ignore[attr-defined]
    assert (rows(first), rows(second)) == ([1, 2], [3])


def test_what_is_forgotten_is_not_described() -> None:
    batcher, (first, second) = batcher_and_tickets(8, 2, 1)
    batcher.add(grey(1), first)
    batcher.add(grey(2), second)
    batcher.forget(first)
    batcher.flush()
    assert not first.complete
    assert rows(second) == [2]


class AfraidOfWhite(Means):
    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        if (stacks == 255).all(dim=(1, 2, 3, 4)).any():
            raise RuntimeError("too bright")
        return super().extract_windows(stacks)


def test_a_failing_video_does_not_take_its_neighbours_along() -> None:
    extractor = AfraidOfWhite(batch=4)
    batcher = Batcher(extractor)
    tickets = [PendingRows(extractor, Windows().cut(1 / RATE, RATE)) for _ in range(4)]
    for value, ticket in zip((1, 255, 3, 4), tickets, strict=True):
        batcher.add(grey(value), ticket)
    assert all(ticket.complete for ticket in tickets)
    assert [rows(ticket) for ticket in (tickets[0], tickets[2], tickets[3])] == [[1], [3], [4]]
    with pytest.raises(RuntimeError, match="too bright"):
        tickets[1].streams()


def test_padded_windows_are_masked() -> None:
    extractor = Means(Windows(stack_size=2, step_size=2))
    ticket = PendingRows(extractor, extractor.windows.cut(0.3, RATE))
    batcher = Batcher(extractor)
    for value in (1, 2):
        batcher.add(grey(value).expand(2, -1, -1, -1), ticket)
    batcher.flush()
    stream = ticket.streams()["numbers"]
    assert stream.mask is not None
    assert stream.mask.tolist() == [True, False]
    assert stream.start == pytest.approx([0.0, 0.2])
    assert stream.end == pytest.approx([0.2, 0.3])


class SmallMemory(Means):
    """Stands for a GPU that holds so many windows."""

    most = 3

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        if len(stacks) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().extract_windows(stacks)


def test_a_full_gpu_gets_smaller_batches_from_then_on() -> None:
    extractor = SmallMemory(batch=8)
    batcher = Batcher(extractor)
    ticket = PendingRows(extractor, Windows().cut(11 / RATE, RATE))
    for value in range(1, 12):
        batcher.add(grey(value), ticket)
    batcher.flush()
    assert rows(ticket) == list(range(1, 12))
    assert extractor.batches == [2, 2, 2, 2, 2, 1]


def test_a_window_that_no_gpu_holds_fails_by_its_own_error() -> None:
    extractor = SmallMemory(batch=2)
    extractor.most = 0
    batcher = Batcher(extractor)
    ticket = PendingRows(extractor, Windows().cut(1 / RATE, RATE))
    batcher.add(grey(1), ticket)
    batcher.flush()
    with pytest.raises(torch.OutOfMemoryError):
        ticket.streams()
