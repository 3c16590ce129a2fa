"""Curves of logs: what was taken twice counts once, phases follow each other, lines are where they belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from app.cli.main import cli as app
from training.evaluation.plot import Curves, NoCurves, draw, read_curves
from training.optimization.run_folder import TrainingRun


def log(folder: Path) -> Path:
    run = TrainingRun(folder)
    for step, loss in ((20, 5.0), (40, 4.0), (60, 3.9)):
        run.log({"phase": "cross_entropy", "step": step, "loss": loss})
    run.log({"phase": "cross_entropy", "step": 60, "cider": 30.0})
    run.log({"phase": "cross_entropy", "step": 60, "loss": 3.5})  # taken again after a stop
    run.log({"phase": "self_critical", "step": 20, "loss": 3.6, "reward": 1.0})
    run.log({"phase": "self_critical", "step": 20, "cider": 33.0})
    return folder


def test_phases_follow_each_other_and_repeated_steps_count_once(tmp_path: Path) -> None:
    found = read_curves(log(tmp_path / "one"))
    assert found == Curves("one", ((20, 5.0), (40, 4.0), (60, 3.5), (80, 3.6)), ((60, 30.0), (80, 33.0)))


def test_an_older_log_with_fewer_columns_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("phase,step,loss,cider\ncross_entropy,20,5,\n")
    TrainingRun(tmp_path).log({"phase": "cross_entropy", "step": 40, "loss": 4.0, "recall": 1.0})
    assert read_curves(tmp_path).loss == ((20, 5.0), (40, 4.0))


def test_each_run_has_its_line_in_both_panels() -> None:
    falling = Curves("a", tuple((step, 5 - step / 100) for step in range(0, 400, 5)), ((300, 40.0),))
    rising = Curves("b", tuple((step, 1 + step / 100) for step in range(0, 400, 5)), ())
    loss, cider = draw([falling, rising]).axes
    assert [line.get_label() for line in loss.get_lines()] == ["a", "b"]
    for line, run in zip(loss.get_lines(), (falling, rising), strict=True):
        assert np.asarray(line.get_xydata()).tolist() == [list(point) for point in run.loss]
    assert [len(np.asarray(line.get_xdata())) for line in cider.get_lines()] == [
        1,
        0,
    ]  # no validation yet is drawn too
    with pytest.raises(ValueError, match="no run"):
        draw([])


def test_the_command_writes_one_picture_of_several_runs(tmp_path: Path) -> None:
    runs = [str(log(tmp_path / name)) for name in ("one", "two")]
    out = tmp_path / "curves.png"
    done = CliRunner().invoke(app, ["plot", *runs, "--out", str(out)])
    assert done.exit_code == 0, done.output
    with Image.open(out) as image:
        assert image.format == "PNG"
    refused = CliRunner().invoke(app, ["plot", str(tmp_path)])
    assert refused.exit_code == 2
    with pytest.raises(NoCurves, match=r"has no log\.csv"):
        read_curves(tmp_path)
    (tmp_path / "log.csv").write_text("phase,step,loss,cider\n")
    with pytest.raises(NoCurves, match="no numbers yet"):
        read_curves(tmp_path)
