"""The laboratory opens: its modules can be imported, its commands explain themselves, rows are listed."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from typer.testing import CliRunner

import lab as package
from lab.__main__ import lab


@pytest.mark.parametrize("name", [each.name for each in pkgutil.walk_packages(package.__path__, "lab.")])
def test_each_module_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize(
    "command", ["ablate", "average", "compare", "confidence", "evidence", "extend", "judge", "labelled"]
)
def test_each_command_explains_itself(command: str) -> None:
    shown = CliRunner().invoke(lab, [command, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "--" in shown.output


def test_the_rows_of_the_ablations_are_listed() -> None:
    listed = CliRunner().invoke(lab, ["ablate", "--list"])
    assert listed.exit_code == 0, listed.output
    names = {line.split()[0] for line in listed.output.splitlines()}
    assert {"stats-2020", "g2l-2020", "refocus-2020"} <= names
