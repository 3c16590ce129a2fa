"""The engines on a tiny network: converted once, kept safely, and torch where there is no OpenVINO."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from extractors.engines import Engine, EngineName, TorchEngine, choose_engine

EXAMPLE = torch.arange(2 * 4 * 4 * 3, dtype=torch.uint8).reshape(2, 4, 4, 3)


class Tiny(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.float().mean((1, 2)) * 2


def open_engine(cache: Path, engine: EngineName = "auto", device: str = "cpu") -> Engine:
    return choose_engine(
        Tiny(),
        EXAMPLE,
        "tiny",
        device=torch.device(device),
        engine=engine,
        precision="fp32",
        threads=1,
        cache=cache,
    )


def check(engine: Engine, rows: int = 2) -> None:
    pixels = EXAMPLE[:1].repeat(rows, 1, 1, 1)
    torch.testing.assert_close(engine(pixels), Tiny()(pixels))


def no_conversion(*args: object) -> None:
    raise AssertionError("converted again")


def test_a_cpu_takes_openvino_with_any_number_of_rows(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    assert engine.name == "openvino"
    for rows in (1, 5, 2):
        check(engine, rows)


def test_converts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_engine(tmp_path)
    monkeypatch.setattr("extractors.openvino_engine._convert", no_conversion)
    check(open_engine(tmp_path))


def test_a_damaged_model_is_converted_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_engine(tmp_path)
    (model,) = tmp_path.glob("*/model.xml")
    model.write_bytes(model.read_bytes()[:100])
    check(open_engine(tmp_path))
    assert "is damaged" in caplog.text
    caplog.clear()
    check(open_engine(tmp_path))
    assert not caplog.text


def test_a_folder_that_cannot_be_written_costs_only_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    check(open_engine(blocker / "cache"))
    assert "cannot be kept" in caplog.text


OPEN_IN_A_PROCESS = """
import sys
from pathlib import Path
from tests.extractors.test_engines import check, open_engine
sys.stdin.readline()
check(open_engine(Path(sys.argv[1])))
"""


def test_two_processes_may_convert_at_once_and_report_to_nobody(tmp_path: Path, root: Path) -> None:
    """OpenVINO's statistics would leave an id in the home folder, and wait for the network."""
    home, cache = tmp_path / "home", tmp_path / "cache"
    home.mkdir()
    command = [sys.executable, "-c", OPEN_IN_A_PROCESS, str(cache)]
    environment = {**os.environ, "HOME": str(home), "OMP_NUM_THREADS": "1"}
    racers = [subprocess.Popen(command, cwd=root, env=environment, stdin=subprocess.PIPE) for _ in range(2)]
    for racer in racers:  # both wait until both have been started
        assert racer.stdin is not None
        racer.stdin.write(b"\n")
        racer.stdin.close()
    assert [racer.wait(300) for racer in racers] == [0, 0]
    (kept,) = cache.iterdir()
    assert {file.name for file in kept.iterdir()} == {"model.xml", "model.bin"}
    assert not list(home.rglob("*openvino*"))


@pytest.fixture
def without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "extractors.openvino_engine", raising=False)


@pytest.mark.usefixtures("without_openvino")
def test_without_openvino_torch_runs_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        engine = open_engine(tmp_path)
    assert engine.name == "torch"
    assert "OpenVINO cannot be imported" in caplog.text
    check(engine)


@pytest.mark.usefixtures("without_openvino")
def test_openvino_asked_for_by_name_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ImportError):
        open_engine(tmp_path, engine="openvino")


def test_openvino_refuses_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose torch"):
        open_engine(tmp_path, engine="openvino", device="cuda")


def test_torch_computes_in_the_precision_asked_for() -> None:
    """257 has no bf16: a product rounds it to 256."""
    linear = nn.Linear(1, 1, bias=False).requires_grad_(False)
    linear.weight.fill_(257.0)
    one = torch.ones(1, 1)
    cpu = torch.device("cpu")
    assert float(TorchEngine(linear, cpu, "fp32")(one)) == 257
    assert float(TorchEngine(linear, cpu, "bf16")(one)) == 256
