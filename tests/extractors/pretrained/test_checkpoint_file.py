"""Checkpoints of every kind to tensors by name; what would run code, or is damaged, says so."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from extractors.pretrained import checkpoint_file
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WeightsDamaged

WEIGHT = torch.arange(6.0).reshape(2, 3)
STATE = {"fc.weight": WEIGHT, "fc.bias": torch.ones(2, dtype=torch.float16)}
ARRAYS = {name: tensor.numpy() for name, tensor in STATE.items()}


def zipped(file: Path) -> None:
    torch.save(STATE, file)


def before_zip(file: Path) -> None:
    torch.save(STATE, file, _use_new_zipfile_serialization=False)


class Python2Pickler(pickle._Pickler):
    """Writes text as Python 2 did, whose strings were bytes: piergiaj's files are of that time."""

    write: Callable[[bytes], int]
    memoize: Callable[[str], None]

    def save_str(self, text: str) -> None:
        self.write(pickle.SHORT_BINSTRING + bytes([len(text)]) + text.encode())
        self.memoize(text)

    dispatch: ClassVar[dict[type, Any]] = {**pickle._Pickler.dispatch, str: save_str}


class Python2:
    Pickler = Python2Pickler

    @staticmethod
    def dump(value: object, file: IO[bytes], protocol: int) -> None:
        Python2Pickler(file, protocol).dump(value)


def python_2(file: Path) -> None:
    torch.save(STATE, file, pickle_module=Python2, _use_new_zipfile_serialization=False)


def tensors_alone(file: Path) -> None:
    save_file(STATE, file)


def arrays(file: Path) -> None:
    file.write_bytes(pickle.dumps(ARRAYS))


def arrays_for_python_2(file: Path) -> None:
    file.write_bytes(pickle.dumps(ARRAYS, protocol=2))


def hara(file: Path) -> None:
    beside = {"arch": "resnext-101", "epoch": 3, "optimizer": {"state": {0: {"step": torch.ones(1)}}}}
    torch.save({"state_dict": OrderedDict(STATE), **beside}, file, _use_new_zipfile_serialization=False)


def pytorchvideo(file: Path) -> None:
    torch.save({"model_state": STATE, "cfg": "TRAIN: {}", "epoch": np.float64(0.5)}, file)


def detectron2(file: Path) -> None:
    author = {"__author__": "Detectron2 Model Zoo", "matching_heuristics": True}
    file.write_bytes(pickle.dumps({"model": ARRAYS, **author}, protocol=4))


def caffe2(file: Path) -> None:
    blobs = {**ARRAYS, "lr": np.float32(0.1), "model_iter": 7, "names": np.array(["a"]), "none": None}
    file.write_bytes(pickle.dumps({"blobs": blobs}, protocol=2))


@pytest.mark.parametrize(
    "write",
    [
        zipped,
        before_zip,
        python_2,
        tensors_alone,
        arrays,
        arrays_for_python_2,
        hara,
        pytorchvideo,
        detectron2,
        caffe2,
    ],
)
def test_each_kind_is_read(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "net")
    state = read_checkpoint(tmp_path / "net")
    assert state.keys() - {"lr"} == STATE.keys()
    for name, wanted in STATE.items():
        torch.testing.assert_close(state[name], wanted, rtol=0, atol=0)


def test_nested_dictionaries_become_paths(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(pickle.dumps({"params": {"Conv_0": {"kernel": WEIGHT.numpy()}}}))
    assert read_checkpoint(tmp_path / "net").keys() == {"params/Conv_0/kernel"}


def test_python_2_wrote_names_as_bytes(tmp_path: Path) -> None:
    # what Python 2 wrote for {'caf\xe9': None}
    (tmp_path / "net").write_bytes(b"\x80\x02}q\x00U\x04caf\xe9q\x01Ns.")
    assert checkpoint_file.read_pickle(tmp_path / "net") == {"café": None}


def test_arrays_of_the_other_byte_order(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(pickle.dumps({"a": WEIGHT.numpy().astype(">f4")}))
    torch.testing.assert_close(read_checkpoint(tmp_path / "net")["a"], WEIGHT)


def test_a_pickle_of_arrays_is_kept_as_safetensors(tmp_path: Path) -> None:
    file, kept = tmp_path / "net.pkl", tmp_path / "kept" / "net.safetensors"
    arrays(file)
    first = read_checkpoint(file, kept)
    assert read_checkpoint(kept).keys() == first.keys()
    save_file({"from": torch.zeros(1)}, kept)
    assert read_checkpoint(file, kept).keys() == {"from"}  # the pickle is not opened again
    kept.write_bytes(b"damaged")
    assert read_checkpoint(file, kept).keys() == first.keys()
    assert read_checkpoint(kept).keys() == first.keys()


def test_where_nothing_can_be_kept_it_is_read_all_the_same(tmp_path: Path) -> None:
    arrays(tmp_path / "net.pkl")
    (tmp_path / "kept").write_text("in the way")
    assert read_checkpoint(tmp_path / "net.pkl", tmp_path / "kept" / "net.safetensors").keys() == STATE.keys()


class Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize("zipfile", [True, False, None], ids=["zip", "before zip", "pickle"])
def test_no_code_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipfile: bool | None) -> None:
    file = tmp_path / "net"
    if zipfile is None:
        file.write_bytes(pickle.dumps({"state_dict": Attack()}))
    else:
        torch.save({"state_dict": Attack()}, file, _use_new_zipfile_serialization=zipfile)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsDamaged, match=r"cannot be read as (arrays|tensors) alone"):
        read_checkpoint(file)
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize("call", ["builtins.eval", "os.system", "numpy.load", "builtins.getattr"])
def test_a_pickle_calls_nothing_that_is_not_admitted(tmp_path: Path, call: str) -> None:
    module, _, name = call.rpartition(".")
    (tmp_path / "net").write_bytes(f"c{module}\n{name}\n(S'1'\ntR.".encode())
    with pytest.raises(WeightsDamaged, match=rf"wants to call {call}"):
        checkpoint_file.read_pickle(tmp_path / "net")


def test_only_bytes_are_encoded_again(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(b"c_codecs\nencode\n(V1\nVrot13\ntR.")
    with pytest.raises(WeightsDamaged, match="rot13"):
        checkpoint_file.read_pickle(tmp_path / "net")


def test_a_whole_module_is_not_a_checkpoint(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "net")
    with pytest.raises(WeightsDamaged, match="code would have to be run"):
        read_checkpoint(tmp_path / "net")


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("write", [zipped, before_zip, tensors_alone, arrays])
def test_half_a_file_is_damaged(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "net")
    halved(tmp_path / "net")
    with pytest.raises(WeightsDamaged):
        read_checkpoint(tmp_path / "net")


def tar(file: Path) -> None:
    with tarfile.open(file, "w") as archive:
        archive.add(__file__)


def empty(file: Path) -> None:
    file.touch()


def page(file: Path) -> None:
    file.write_text("<html>Sign in</html>")


def nothing(file: Path) -> None:
    torch.save({"epoch": 3}, file)


def lone(file: Path) -> None:
    torch.save("hello", file)


@pytest.mark.parametrize("write", [tar, empty, page, nothing, lone])
def test_what_is_no_checkpoint_says_so(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "net")
    with pytest.raises(WeightsDamaged, match=str(tmp_path / "net")):
        read_checkpoint(tmp_path / "net")


def test_tensors_come_without_gradients(tmp_path: Path) -> None:
    state: dict[str, Tensor] = {"fc.weight": nn.Parameter(WEIGHT)}
    torch.save(state, tmp_path / "net")
    assert not read_checkpoint(tmp_path / "net")["fc.weight"].requires_grad
