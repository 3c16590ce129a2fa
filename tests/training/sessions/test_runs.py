"""A run's folder knows whose it is, every number can be changed by its name, and a stopped run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from app.cli.main import cli
from models.checkpoint import load_checkpoint
from tests.training.saved_features.formats import FORMATS, lay_captions

TINY = {
    "embedded": 7,
    "words": 8,
    "attention": 5,
    "hidden": 9,
    "query": 10,
    "videos": 2,
    "captions": 1,
    "max_length": 6,
    "warmup": 1,
    "validate_every": 2,
    "self_critical_steps": 0,
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """One's own set of five videos with features, as options."""
    data, features = tmp_path_factory.mktemp("set") / "data", tmp_path_factory.mktemp("features")
    form = FORMATS["npy of one's own"]
    form.write(features, lay_captions(data, form.lay))
    return ("--data", str(data), "--data-set", "folder", "--features", str(features), "--threads", "1")


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.scores.java._list_installed", list)


def call(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], env={"COLUMNS": "1000"})


def train(places: tuple[str, ...], out: Path, *more: object, steps: int = 2) -> Result:
    changes = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    return call("train", "stats", *places, "--out", out, "--steps", steps, *changes, *more)


def read_record(out: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((out / "run.json").read_text())
    return record


def test_a_run_is_recorded_and_goes_on_by_the_same_command_alone(
    places: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    first = train(places, out)
    assert first.exit_code == 0, first.output
    record = read_record(out)
    assert (record["run"]["captioner"], record["run"]["recipe"]["videos"]) == ("stats", 2)
    assert (record["run"]["config"]["hidden"], record["run"]["recipe"]["seed"]) == (9, 2020)
    assert record["run"]["data"]["train"] == 5
    assert len(record["run"]["features_sha256"]) == 64
    assert list(record["run"]["streams"]) == ["clip"]
    [session] = record["sessions"]
    assert session["packages"]["torch"] == torch.__version__.split("+")[0] or session["packages"]["torch"]
    assert {"command", "started", "host", "commit"} <= session.keys()
    again = train(places, out)
    assert again.exit_code == 0, again.output
    assert len(read_record(out)["sessions"]) == 2
    card = load_checkpoint(out / "best.safetensors").card
    for more, difference in (
        (("--seed", 9), "recipe.seed is 2020 there, and 9 here"),
        (("--set", "dropout=0.25"), "config.dropout is 0.3 there, and 0.25 here"),
        (("--lr", "0.5"), "recipe.learning_rate is 0.0015 there, and 0.5 here"),
    ):
        refused = train(places, out, *more)
        assert refused.exit_code == 2, refused.output
        assert f"--out: {out} holds another run: {difference}" in refused.output
        assert "Give another folder (--out)" in refused.output
    assert load_checkpoint(out / "best.safetensors").card == card
    assert len(read_record(out)["sessions"]) == 2
    (out / "run.json").unlink()
    assert "holds a run without run.json" in train(places, out).output


def test_every_field_is_changed_by_its_name_and_checked(places: tuple[str, ...], tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'extends = "demo"\nsmoothing = 0.2\nlearning_rate = 0.1\ndecoding = { beam_size = 2 }\n'
        "[schedule]\nkind = 'decay'\nfactor = 0.5\n[config]\nmargin = 0.75\n"
    )
    options = ("--recipe", mine, "--lr", "0.002", "--batch-size", 3, "--set", "decoding.max_length=7")
    trained = train(places, tmp_path / "run", *options)
    assert trained.exit_code == 0, trained.output
    run = read_record(tmp_path / "run")["run"]
    assert run["recipe"]["smoothing"] == 0.2
    assert (run["recipe"]["learning_rate"], run["recipe"]["videos"]) == (0.002, TINY["videos"])
    assert (run["recipe"]["decoding"]["beam_size"], run["recipe"]["decoding"]["max_length"]) == (2, 7)
    assert run["recipe"]["schedule"] == {"kind": "decay", "factor": 0.5, "epochs": 1.0}
    assert run["config"]["margin"] == 0.75
    assert load_checkpoint(tmp_path / "run/best.safetensors").card.training["recipe"] == run["recipe"]
    mine.write_text("smoothing = [")
    for more, said in (
        (("--set", "hiden=3"), "no field is called 'hiden'; near it are: hidden"),
        (
            ("--set", "decoding.beam_sise=3"),
            "no field is called 'decoding.beam_sise'; near it are: beam_size",
        ),
        (("--set", "schedule.factr=3"), "no field is called 'schedule.factr'"),
        (("--set", "videos=many"), "--set: videos: Input should be a valid integer"),
        (("--set", "videos"), "'videos' is no field=value"),
        (("--recipe", mine), "--recipe: "),
    ):
        refused = train(places, tmp_path / "other", *more)
        assert refused.exit_code == 2, refused.output
        assert said in refused.output
    assert not (tmp_path / "other").exists()


def test_a_recipe_in_epochs_is_tried_in_a_few_steps(places: tuple[str, ...], tmp_path: Path) -> None:
    trained = train(places, tmp_path / "run", "--epochs", 2, "--set", "validate_every=0", steps=4)
    assert trained.exit_code == 0, trained.output
    recipe = read_record(tmp_path / "run")["run"]["recipe"]
    assert recipe["epochs"] == {"cross_entropy": 2}
    assert recipe["epoch_steps"] == 5  # ten captions, two a step
    assert (recipe["steps"], recipe["validate_every"]) == (4, 5)
