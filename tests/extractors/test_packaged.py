"""Weights in packages: found without importing the package, refused unless they are the proven file."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import pytest
import torch

from extractors.packaged import PackagedFile, WeightsDamaged, WeightsMissing

Package = tuple[PackagedFile, Path]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """An installed package whose code must not run."""
    folder = tmp_path / "carries_weights" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise SystemExit('imported')")
    file = folder / "net.pth"
    torch.save({"weight": torch.arange(3.0)}, file)
    monkeypatch.syspath_prepend(tmp_path)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    return PackagedFile("carries-weights==1.0", "carries_weights", "models/net.pth", sha256), file


def test_reads_parameters_without_importing_the_package(package: Package) -> None:
    torch.testing.assert_close(package[0].parameters()["weight"], torch.arange(3.0))


def test_names_the_package_that_is_missing() -> None:
    absent = PackagedFile("no-such-package==1.0", "no_such_package", "net.pth", "0" * 64)
    with pytest.raises(WeightsMissing, match=r"no-such-package==1\.0.*weights/packages\.txt"):
        absent.locate()


def test_names_the_file_that_is_missing(package: Package) -> None:
    package[1].unlink()
    with pytest.raises(WeightsMissing, match=r"models/net\.pth"):
        package[0].locate()


def test_refuses_another_file_than_the_proven(package: Package) -> None:
    with package[1].open("ab") as file:
        file.write(b"\0")
    with pytest.raises(WeightsDamaged, match=r"carries-weights==1\.0"):
        package[0].parameters()


class Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("attacked",)


def test_runs_no_code_from_the_file(
    package: Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, file = package
    torch.save({"weight": Attack()}, file)
    evil = PackagedFile(
        found.requirement, found.module, found.path, hashlib.sha256(file.read_bytes()).hexdigest()
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError):
        evil.parameters()
    assert not (tmp_path / "attacked").exists()
