"""The command line names the captioners that there are, and refuses a device that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from app.cli.main import cli as app


def test_another_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["train", "lstm", "--data", str(tmp_path)], env={"COLUMNS": "300"})
    assert refused.exit_code == 2
    output = " ".join(refused.output.replace("│", " ").split())
    assert "no captioner is called 'lstm'; there are: dual_afr, g2l, labelled_stats, refocus" in output
    assert "semantic_embedding" in output


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_a_device_that_is_not_there_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    places = ["--data", str(tmp_path), *(["--out", str(tmp_path / "runs")] if command != "evaluate" else [])]
    refused = CliRunner().invoke(
        app, [command, "stats", *places, "--device", "cuda:7"], env={"COLUMNS": "300"}
    )
    assert refused.exit_code == 2, refused.output
    output = " ".join(refused.output.replace("│", " ").split())
    assert "--device: cuda:7 asks for a GPU, and torch finds none on this machine." in output
    assert "Choose cpu, or auto" in output
    assert not (tmp_path / "runs").exists()
