"""The parts of `make docker-test` that need no Docker: what builds are served, what a failure becomes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.request import urlopen

import pytest

from app import __version__
from benchmarks.deployment import __main__ as command
from benchmarks.deployment import packages, trials
from benchmarks.deployment.engine import CommandFailed, Engine
from benchmarks.deployment.packages import PackageServer, pin_torch
from benchmarks.deployment.trials import Deployment, Outcome

WHEEL = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / WHEEL).write_bytes(b"a wheel")
    return tmp_path / "wheels"


def test_builds_find_what_pip_reads_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheels: Path
) -> None:
    (tmp_path / "more/simple").mkdir(parents=True)
    (tmp_path / "more/file").write_text("a file")
    read = {"extra-index-url": f"file://{tmp_path}/more/simple", "find-links": str(wheels), "user": "yes"}
    monkeypatch.setattr(packages, "read_pip_settings", lambda: read)
    server = PackageServer(tmp_path / "served", wheels)
    with server.serve("127.0.0.1"):
        settings = dict(line.split(" = ") for line in server.pip_settings)
        assert set(settings) == {"extra-index-url", "find-links", "trusted-host"}
        index = settings["extra-index-url"]
        assert index.endswith("/more/simple")
        assert urlopen(f"{index}/../file").read() == b"a file"
        page = urlopen(f"{server.torch_index}/torch/").read().decode()
        assert WHEEL.replace("+", "%2B") in page
        assert urlopen(f"{server.torch_index}/torch/{WHEEL}").read() == b"a wheel"


def test_torch_is_pinned_to_the_wheel_that_is_there(tmp_path: Path, wheels: Path) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("a==1\ntorch==2.14.1\ntorchcodec==0.17.0\ntorchvision==0.29.1\n")
    pin_torch(constraints, wheels)
    assert constraints.read_text() == "a==1\ntorch==2.13.0\ntorchcodec==0.17.0\ntorchvision==0.29.1\n"


def test_a_trial_that_cannot_go_on_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def half(deployment: Deployment) -> Iterator[Outcome]:
        yield Outcome("one", "seen")
        raise CommandFailed("docker: gone | away")

    outcomes = command.hold(half, cast(Deployment, None))
    assert [outcome.is_right for outcome in outcomes] == [True, False]
    rows = [("half", outcome) for outcome in outcomes]
    command.show(rows, 1.0)
    assert command.conclude(rows) == 1
    table = capsys.readouterr().out
    assert "| half | one | seen |  |" in table
    assert "|  | given up | CommandFailed: docker: gone \\| away | WRONG |" in table
    assert "1 of them wrong" in table


def test_what_git_knows_is_copied_and_nothing_else(tmp_path: Path, root: Path) -> None:
    copy = command.copy_checkout(tmp_path / "copy")
    assert (copy / "docker-compose.yml").read_bytes() == (root / "docker-compose.yml").read_bytes()
    assert not (copy / ".venv").exists()
    assert (copy / trials.CLIP).stat().st_size > 0
    assert trials.read_version(copy) == __version__


def test_a_command_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    assert engine.run("sh", "-c", "echo here") == "here"
    with pytest.raises(CommandFailed, match="no such thing"):
        engine.run("sh", "-c", "echo no such thing >&2; exit 3")
