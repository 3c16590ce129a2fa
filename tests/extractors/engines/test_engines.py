"""The engines on tiny networks: every one agrees with eager float32, a conversion is kept safely, and torch
runs what OpenVINO is not there for."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from extractors.engines.engine import (
    EngineName,
    NetworkEngine,
    Precision,
    TorchEngine,
    UnbuiltModule,
    fastest_precision,
    fill_up,
)
from extractors.engines.engine_choice import DeviceUnavailable, choose_engine, open_device
from extractors.extractor import ExtractorOptions

pytestmark = pytest.mark.slow

EXAMPLE = torch.arange(2 * 4 * 4 * 3, dtype=torch.uint8).reshape(2, 4, 4, 3)


class Tiny(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.float().mean((1, 2)) * 2


def open_engine(cache: Path, engine: EngineName = "auto", device: str = "cpu") -> NetworkEngine:
    return choose_engine(
        Tiny(),
        EXAMPLE,
        "tiny",
        ExtractorOptions(torch.device(device), engine, "fp32", 1, cache),
    )


def check(engine: NetworkEngine, rows: int = 2) -> None:
    pixels = EXAMPLE[:1].repeat(rows, 1, 1, 1)
    torch.testing.assert_close(engine(pixels), Tiny()(pixels))


class Clips(nn.Module):
    """Of stacks of bytes (N, S, h, w, 3) a map, its mean, and classes."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.conv, self.norm = nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8)
            self.classes = nn.Linear(8, 5)

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grid = self.norm(self.conv(stacks.permute(0, 4, 1, 2, 3).float() / 255)).relu()
        pooled = grid.mean((2, 3, 4))
        return grid, pooled, self.classes(pooled)


class Maps(nn.Module):
    """Of pictures (N, 3, H, W) of any size a map of as many cells, and its largest values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = Clips().conv

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        grid = self.conv(x[:, :, None])[:, :, 0]
        return grid, grid.amax((2, 3))


STACKS = torch.randint(
    0, 256, (3, 4, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
)
#: Of the largest value: float32 differs in its last digits, bf16 in its third.
TOLERANCES: dict[Precision, float] = {"fp32": 1e-5, "bf16": 2e-2}


def agree(found: tuple[Tensor, ...], module: nn.Module, x: Tensor, tolerance: float) -> None:
    with torch.no_grad():
        wanted = module.eval()(x)
    assert len(found) == len(wanted)
    for ours, exact in zip(found, wanted, strict=True):
        assert ours.dtype == torch.float32
        assert ours.shape == exact.shape
        assert float((ours - exact).abs().max()) <= tolerance * float(exact.abs().max())


def of_clips(
    cache: Path, engine: EngineName, precision: Precision, example: Tensor = STACKS
) -> NetworkEngine:
    cpu = torch.device("cpu")
    return choose_engine(Clips(), example, "clips", ExtractorOptions(cpu, engine, precision, 1, cache))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["torch", "openvino"])
def test_all_outputs_of_stacks_agree_with_eager_float32(
    name: EngineName, precision: Precision, tmp_path: Path
) -> None:
    if (name, precision) == ("openvino", "bf16") and fastest_precision(torch.device("cpu")) != "bf16":
        pytest.skip("no bf16 on this processor")
    engine = of_clips(tmp_path, name, precision)
    assert (engine.name, engine.precision) == (name, precision)
    for rows in (3, 1):
        agree(engine.outputs(STACKS[:rows]), Clips(), STACKS[:rows], TOLERANCES[precision])
    assert torch.equal(engine(STACKS), engine.outputs(STACKS)[0])


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_compiled_module_agrees_and_rows_that_fill_it_up_are_left_out(tmp_path: Path) -> None:
    engine = of_clips(tmp_path, "compile", "fp32")
    assert engine.name == "compile"
    for rows in (3, 4):  # the same compiled shape
        x = STACKS[torch.arange(rows) % 3]
        agree(engine.outputs(x), Clips(), x, TOLERANCES["fp32"])


def test_rows_are_filled_up_to_a_power_of_two_with_the_last() -> None:
    assert [len(fill_up(torch.arange(n))) for n in range(1, 10)] == [1, 2, 4, 4, 8, 8, 8, 8, 16]
    assert fill_up(torch.tensor([4, 5, 6])).tolist() == [4, 5, 6, 6]


@pytest.mark.parametrize("name", ["torch", "openvino"])
def test_pictures_of_any_size_where_those_axes_are_free(name: EngineName, tmp_path: Path) -> None:
    engine = choose_engine(
        Maps(),
        torch.zeros(2, 3, 16, 24),
        "maps",
        ExtractorOptions(torch.device("cpu"), name, "fp32", 1, tmp_path),
        free=(0, 2, 3),
    )
    for shape in ((2, 3, 16, 24), (1, 3, 9, 30), (3, 3, 20, 7)):
        x = torch.linspace(-1, 1, math.prod(shape)).reshape(shape)
        agree(engine.outputs(x), Maps(), x, 1e-5)


def test_windows_of_another_length_are_another_conversion_of_one_key(tmp_path: Path) -> None:
    for length in (4, 2):
        stacks = STACKS[:, :length]
        agree(of_clips(tmp_path, "openvino", "fp32", stacks).outputs(stacks), Clips(), stacks, 1e-5)
    assert sum(kept.is_dir() for kept in tmp_path.iterdir()) == 2


def test_the_module_that_was_given_stays_as_it_is() -> None:
    module = Clips()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    TorchEngine(module, torch.device("cpu"), "bf16").outputs(STACKS)
    assert module.training
    for name, value in module.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])


def test_an_unknown_engine_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no engine 'onnx'.*openvino, compile, torch"):
        open_engine(tmp_path, engine="onnx")  # type: ignore[arg-type]


def no_conversion(*args: object) -> None:
    raise AssertionError("converted again")


def test_a_cpu_takes_openvino_with_any_number_of_rows(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    assert engine.name == "openvino"
    for rows in (1, 5, 2):
        check(engine, rows)


def test_converts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_engine(tmp_path)
    monkeypatch.setattr("extractors.engines.openvino._convert", no_conversion)
    check(open_engine(tmp_path))


@pytest.mark.parametrize("part", ["model.xml", "model.bin"])
def test_a_damaged_model_is_converted_again(
    part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_clips(tmp_path, "openvino", "fp32")
    (file,) = tmp_path.glob(f"*/{part}")
    file.write_bytes(file.read_bytes()[:100])
    agree(of_clips(tmp_path, "openvino", "fp32").outputs(STACKS), Clips(), STACKS, 1e-5)
    assert "is damaged" in caplog.text
    caplog.clear()
    agree(of_clips(tmp_path, "openvino", "fp32").outputs(STACKS), Clips(), STACKS, 1e-5)
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
from tests.extractors.engines.test_engines import check, open_engine
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
    (kept,) = (found for found in cache.iterdir() if found.is_dir())
    assert {file.name for file in kept.iterdir()} == {"model.xml", "model.bin"}
    assert not list(home.rglob("*openvino*"))


READ_A_NETWORK = """
import sys
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.load import find_weights
assert len(read_checkpoint(find_weights("efficientnet-lite3").file)) > 100
assert sys.modules["openvino_telemetry"] is None
"""


def test_reading_a_network_of_tensorflow_lite_reports_to_nobody_either(tmp_path: Path, root: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", READ_A_NETWORK], cwd=root, env=environment, check=True)
    assert not list(tmp_path.rglob("*openvino*"))


def test_openvino_is_imported_where_its_reporter_is_hidden_from_it(root: Path) -> None:
    """And nowhere else: whoever came first would have reported."""
    packages = ("app", "extractors", "models", "training", "benchmarks", "docker")
    files = [file for package in packages for file in (root / package).rglob("*.py")]
    importing = re.compile(r"^\s*(import openvino\b|from openvino\b)", re.MULTILINE)
    assert [file.name for file in files if importing.search(file.read_text())] == ["openvino.py"]


WITHOUT_OPENVINO = """
import sys
sys.modules["openvino"] = None
from pathlib import Path
import torch
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.catalog.efficientnet_lite2 import EfficientNetLite2
torch.save({"weight": torch.ones(1)}, sys.argv[1])
assert read_checkpoint(Path(sys.argv[1])).keys() == {"weight"}
assert EfficientNetLite2().spec.engine == "torch"
"""


def test_weights_are_read_where_openvino_is_not_installed(tmp_path: Path, root: Path) -> None:
    """But for those of TensorFlow Lite, which it reads; torch runs the rest."""
    command = [sys.executable, "-c", WITHOUT_OPENVINO, str(tmp_path / "net.pth")]
    subprocess.run(command, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


@pytest.fixture
def without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    for importing in ("extractors.engines.openvino", "extractors.engines.openvino"):
        monkeypatch.delitem(sys.modules, importing, raising=False)


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


def test_a_network_whose_converted_model_is_kept_is_not_built(tmp_path: Path) -> None:
    options = ExtractorOptions(torch.device("cpu"), "openvino", "fp32", 1, tmp_path)

    def refuse() -> nn.Module:
        raise AssertionError("its weights were read")

    choose_engine(UnbuiltModule(Clips), STACKS, "clips", options).outputs(STACKS)
    engine = choose_engine(UnbuiltModule(refuse), STACKS, "clips", options)
    agree(engine.outputs(STACKS), Clips(), STACKS, TOLERANCES["fp32"])
    other = choose_engine(UnbuiltModule(refuse), STACKS, "clips of other weights", options)
    with pytest.raises(AssertionError, match="its weights were read"):
        other.outputs(STACKS)  # and not before: of several networks most jobs need one


@pytest.mark.parametrize("harm", ["source", "note", "model"])
def test_what_is_kept_is_made_anew_where_it_does_not_fit(harm: str, tmp_path: Path) -> None:
    options = ExtractorOptions(torch.device("cpu"), "openvino", "fp32", 1, tmp_path)
    choose_engine(Clips(), STACKS, "clips", options)
    (note,) = tmp_path.glob("*.json")
    if harm == "source":  # the network is written differently now
        kept = json.loads(note.read_bytes())
        note.write_text(json.dumps({**kept, "sources": dict.fromkeys(kept["sources"], "0" * 64)}))
    elif harm == "note":
        note.write_text("{")
    else:
        next(tmp_path.glob("*/model.xml")).write_text("<")
    count = 0

    def build() -> nn.Module:
        nonlocal count
        count += 1
        return Clips()

    for _ in range(2):
        engine = choose_engine(UnbuiltModule(build), STACKS, "clips", options)
        agree(engine.outputs(STACKS), Clips(), STACKS, TOLERANCES["fp32"])
    assert count == 1


def test_a_device_that_is_there_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert open_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [open_device(name) for name in ("auto", "cuda:1")] == [
        torch.device("cuda"),
        torch.device("cuda:1"),
    ]


@pytest.mark.parametrize(
    ("wanted", "gpus", "said"),
    [
        ("cuda", 0, "cuda asks for a GPU, and torch finds none on this machine"),
        ("cuda:0", 0, "cuda:0 asks for a GPU"),
        ("cuda:7", 2, "There is no cuda:7: the last GPU of this machine is cuda:1"),
        ("gpu", 2, "There is no device 'gpu': devices are auto, cpu, cuda and cuda:N"),
        ("meta", 2, "There is no device 'meta'"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_is(
    monkeypatch: pytest.MonkeyPatch, wanted: str, gpus: int, said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(DeviceUnavailable, match=re.escape(said)) as refused:
        open_device(wanted)
    assert refused.value.advice.endswith("Choose cpu, or auto, which takes a GPU where there is one.")


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_shared_out_among_threads_come_back_in_their_order(
    tmp_path: Path, threads: int, rows: int
) -> None:
    pytest.importorskip("openvino")
    options = ExtractorOptions(torch.device("cpu"), "openvino", "fp32", threads, tmp_path)
    engine, network = choose_engine(Clips(), STACKS, "clips", options), Clips().eval()
    generator = torch.Generator().manual_seed(rows)
    for _ in range(2):  # what a call returned is not overwritten by the next
        stacks = torch.randint(0, 255, (rows, *STACKS.shape[1:]), dtype=torch.uint8, generator=generator)
        found, wanted = engine.outputs(stacks), network(stacks)
        engine.outputs(torch.flip(stacks, (1,)))
        for ours, exact in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-5)


def test_a_share_that_fails_leaves_the_engine_whole(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    engine = choose_engine(
        Clips(), STACKS, "clips", ExtractorOptions(engine="openvino", threads=2, cache=tmp_path)
    )
    with pytest.raises(Exception, match=r"shape|dimension|input"):
        engine.outputs(STACKS[..., :2].contiguous())
    assert len(engine.outputs(STACKS)[0]) == len(STACKS)
