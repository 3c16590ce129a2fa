"""Several processes train as one with the whole batch does, and the first one alone writes."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from extractors.engines.engine_choice import DeviceUnavailable
from lab.pictures.embedding import train_embedding
from tests.training.shared_training import STEPS
from training.batches.training_batch import BatchPart
from training.optimization.processes import NotShared, Processes, join_processes, share_mean

pytestmark = pytest.mark.slow

TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]


@pytest.fixture(scope="module")
def runs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of one process's run and of two processes' run."""
    folder = tmp_path_factory.mktemp("shared")
    one, two = folder / "one", folder / "two"
    script = [*TWO, "tests.training.shared_training", str(folder), str(two)]
    done = subprocess.run([sys.executable, *script], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    alone = ["-m", "tests.training.shared_training", str(folder), str(one)]
    done = subprocess.run([sys.executable, *alone], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return one, two


def saved(run: Path, name: str) -> Any:
    return torch.load(run / name, weights_only=True)


def test_two_processes_share_the_held_out_items_and_score_them_as_one(runs: tuple[Path, Path]) -> None:
    one, two = (saved(run, "gradients.pt")["judged"] for run in runs)
    assert len(one["scores"]) == 4
    assert torch.equal(one["scores"], two["scores"])
    assert torch.equal(one["loss"], two["loss"])


@pytest.mark.parametrize("loss", ["words", "combined"])
def test_two_processes_have_the_gradient_of_the_whole_batch(runs: tuple[Path, Path], loss: str) -> None:
    """Five videos, so that one has two and the other three, with captions of other lengths."""
    one, two = (saved(run, "gradients.pt")[loss] for run in runs)
    assert one.keys() == two.keys()
    for name, expected in one.items():
        torch.testing.assert_close(two[name], expected, rtol=1e-4, atol=1e-6, equal_nan=True, msg=name)


def test_two_processes_take_the_steps_of_one(runs: tuple[Path, Path]) -> None:
    one, two = (saved(run, "last.pt") for run in runs)
    assert one["step"] == two["step"] == STEPS
    for name, expected in one["captioner"].items():
        torch.testing.assert_close(two["captioner"][name], expected, rtol=0, atol=2e-3, msg=name)


def test_the_first_process_alone_logs(runs: tuple[Path, Path]) -> None:
    for run in runs:
        with (run / "log.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["step"]) for row in rows if row["loss"]] == [1, 2, 3, 4]
        assert [int(row["step"]) for row in rows if row["cider"]] == [2, 4]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_parts_are_the_whole_batch_and_nearly_equal(count: int) -> None:
    videos, captions = list("abcde"), [f"{video}{i}" for video in "abcde" for i in range(2)]
    parts = [BatchPart(number, count) for number in range(count)]
    assert [video for part in parts for video in part.of(videos)] == videos
    for part in parts:
        of, own = part.of(videos), part.of(captions, 2)
        assert [f"{video}{i}" for video in of for i in range(2)] == own
        assert len(of) in (5 // count, -(-5 // count))


def test_too_few_videos_are_not_shared() -> None:
    Processes(0, 4).check_videos(4)
    with pytest.raises(NotShared, match="A batch of 3 videos cannot be shared among 4 processes"):
        Processes(0, 4).check_videos(3)


def test_the_embedding_is_trained_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shared:
        processes = Processes(0, 2)

    with pytest.raises(NotShared, match="compare all videos of a batch"):
        train_embedding(Shared(), None)  # type: ignore[arg-type]


def test_several_processes_do_not_share_one_named_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with (
        pytest.raises(DeviceUnavailable, match="2 processes cannot share cuda:1"),
        join_processes("cuda:1"),
    ):
        pass


def test_draws_of_processes_differ_and_the_firsts_are_those_of_one() -> None:
    assert Processes(0, 3).shift(7) == Processes().shift(7) == 7
    assert len({Processes(rank, 3).shift(7) for rank in range(3)}) == 3


def test_a_mean_of_one_process_stays_as_it_is() -> None:
    mean = torch.tensor(3.0)
    assert share_mean(mean, torch.tensor(5)) is mean
    assert Processes().gather("a") == ["a"]
