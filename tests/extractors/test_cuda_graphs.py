"""Which shapes are recorded as CUDA graphs, and what is not; the graphs themselves where there is a GPU."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

from extractors.cuda_graphs import Recorder, Run
from extractors.engines import TorchEngine


def doubled(x: Tensor) -> tuple[Tensor, ...]:
    return (2 * x, x.sum()[None])


class Log:
    """Stands for the GPU: keeps the shapes that are recorded."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def record(self, run: Run, example: Tensor) -> Run:
        self.shapes.append(tuple(example.shape))
        return lambda x: (*run(x), x)


def test_a_shape_is_recorded_when_it_comes_again() -> None:
    log = Log()
    recorder = Recorder(doubled, log.record)
    assert [len(recorder(torch.ones(n))) for n in (3, 4, 3, 3, 4)] == [2, 2, 3, 3, 3]
    assert log.shapes == [(3,), (4,)]
    assert recorder(torch.tensor([1.0, 2.0, 3.0]))[0].tolist() == [2, 4, 6]


def test_the_recording_unused_for_longest_makes_room() -> None:
    log = Log()
    recorder = Recorder(doubled, log.record, most=2)
    for n in (1, 1, 2, 2, 1, 3, 3, 1, 2, 2):
        recorder(torch.ones(n))
    assert log.shapes == [(1,), (2,), (3,), (2,)]


def test_what_cannot_be_recorded_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(run: Run, example: Tensor) -> Run:
        raise RuntimeError("operation not permitted when stream is capturing")

    recorder = Recorder(doubled, refuse)
    with caplog.at_level(logging.WARNING):
        answers = [recorder(torch.ones(2))[0].tolist() for _ in range(4)]
    assert answers == [[2, 2]] * 4
    assert caplog.text.count("no CUDA graph") == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_recorded_network_gives_its_own_numbers_and_leaves_earlier_answers_alone() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    engine = TorchEngine(network, torch.device("cuda"), "fp32")
    pictures = torch.randn(5, 3, 16, 16)
    with torch.no_grad():
        wanted = network(pictures)
    first = [engine(pictures) for _ in range(3)][-1]
    engine(pictures + 1)
    torch.testing.assert_close(first.cpu(), wanted, rtol=1e-4, atol=1e-4)
