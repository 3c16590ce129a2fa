"""A run's folder knows whose it is, every number can be changed by its name, and a stopped run goes on."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from app.cli.main import cli
from lab.__main__ import lab
from models.checkpoint import load_checkpoint
from tests.training.laid_out import write_json
from tests.training.saved_features.formats import plain, write_map
from training.optimization.run_folder import TrainingRun

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
    """One's own set of four videos and four that judge, with features, as options."""
    data, features = tmp_path_factory.mktemp("set"), tmp_path_factory.mktemp("features")
    words = ("red", "grey", "black", "white")
    videos = [
        {"file": f"{i}.mp4", "captions": [f"a {words[i % 4]} square", f"one {words[i % 4]}"], "split": split}
        for i, split in enumerate(["train"] * 4 + ["val"] * 4)
    ]
    write_json(data / "captions.json", videos)
    plain(features, [str(video["file"]) for video in videos])
    return ("--data", str(data), "--data-set", "folder", "--features", str(features), "--threads", "1")


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.scores.java._list_installed", list)


def call(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], env={"COLUMNS": "1000"})


def sweep(*words: object) -> Result:
    return CliRunner().invoke(lab, ["sweep", *map(str, words)], env={"COLUMNS": "1000"})


def words(places: tuple[str, ...], out: Path, steps: int) -> list[str]:
    changes = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    return ["train", "stats", *places, "--out", str(out), "--steps", str(steps), *changes]


def train(places: tuple[str, ...], out: Path, *more: object, steps: int = 2) -> Result:
    return call(*words(places, out, steps), *more)


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
    assert (record["run"]["data"]["train"], record["run"]["data"]["held_out"]) == (4, 4)
    assert len(record["run"]["features_sha256"]) == 64
    assert list(record["run"]["streams"]) == ["clip"]
    [session] = record["sessions"]
    assert session["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
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
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[config]\nhiden = 3\n")
    for more, said in (
        (("--set", "hiden=3"), "no field is called 'hiden'; near it are: hidden"),
        (
            ("--set", "decoding.beam_sise=3"),
            "no field is called 'decoding.beam_sise'; near it are: beam_size",
        ),
        (("--set", "schedule.factr=3"), "no field is called 'schedule.factr'"),
        (("--set", "epochs.joint=3"), "stats has no phase 'joint': cross_entropy, self_critical"),
        (("--set", "videos=many"), "--set: videos: Input should be a valid integer"),
        (("--set", "videos"), "'videos' is no field=value"),
        (("--recipe", mine), "--recipe: "),
        (("--recipe", wrong), "wrong.toml: no field is called 'config.hiden'; near it are: hidden"),
    ):
        refused = train(places, tmp_path / "other", *more)
        assert refused.exit_code == 2, refused.output
        assert said in refused.output
    assert not (tmp_path / "other").exists()


def test_a_recipe_in_epochs_is_tried_in_a_few_steps(places: tuple[str, ...], tmp_path: Path) -> None:
    trained = train(places, tmp_path / "run", "--epochs", 2, "--set", "validate_every=0", steps=6)
    assert trained.exit_code == 0, trained.output
    recipe = read_record(tmp_path / "run")["run"]["recipe"]
    assert recipe["epochs"] == {"cross_entropy": 2}
    assert recipe["epoch_steps"] == 4  # eight captions, two a step
    assert (recipe["steps"], recipe["validate_every"]) == (6, 4)


def test_a_signal_saves_the_state_and_the_same_command_goes_on(
    places: tuple[str, ...], tmp_path: Path, root: Path
) -> None:
    """Ended at a step and within a validation, a run comes to the weights of one that was not."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert train(places, whole, steps=5).exit_code == 0
    for number, method, call in (
        (signal.SIGTERM, "training.batches.video_batches:VideoBatches.at", 3),
        (signal.SIGINT, "training.optimization.validation:VideoValidation.load_group", 1),
    ):
        signalled = [
            sys.executable,
            "-m",
            "tests.training.signalled_training",
            str(int(number)),
            method,
            str(call),
        ]
        done = subprocess.run(
            [*signalled, *words(places, stopped, 5)], cwd=root, capture_output=True, text=True
        )
        assert done.returncode == 128 + number, done.stderr
        assert f"Stopped by {number.name}; the run's state is saved. The same command goes on" in done.stderr
        assert torch.load(stopped / "last.pt", weights_only=True)["step"] >= 1
    assert train(places, stopped, steps=5).exit_code == 0
    assert_same_weights(stopped, whole)
    assert len(read_record(stopped)["sessions"]) == 3
    validated = [row["step"] for row in read_log(stopped) if row["cider"]]
    assert validated == [row["step"] for row in read_log(whole) if row["cider"]] == ["0", "2", "4", "5"]


def read_log(out: Path) -> list[dict[str, str]]:
    with (out / "log.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def assert_same_weights(one: Path, other: Path) -> None:
    """Byte by byte: equal runs give equal files."""
    assert (one / "best.safetensors").read_bytes() == (other / "best.safetensors").read_bytes()
    states = [torch.load(run / "last.pt", weights_only=True)["captioner"] for run in (one, other)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_state_is_saved_between_validations(places: tuple[str, ...], tmp_path: Path) -> None:
    steps: list[int] = []
    save = TrainingRun.save

    def remember(run: TrainingRun, state: Any) -> None:
        steps.append(state["step"])
        save(run, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "save", remember)
        often = train(places, tmp_path / "often", "--save-every", 0, steps=4)
        assert often.exit_code == 0, often.output
        assert steps == [0, 1, 2, 3, 4]
        steps.clear()
        assert train(places, tmp_path / "seldom", steps=4).exit_code == 0
    assert steps == [0, 2, 4]


def test_what_is_logged_and_kept(places: tuple[str, ...], tmp_path: Path) -> None:
    """Means of steps, scores, loss and captions of held-out videos, and the best checkpoints."""
    one, out = tmp_path / "each", tmp_path / "run"
    assert train(places, one, "--log-every", 1, steps=4).exit_code == 0
    done = train(places, out, "--log-every", 2, "--keep", 2, "--set", "validate_every=1", steps=4)
    assert done.exit_code == 0, done.output
    each, means = ([row for row in read_log(run) if row["loss"]] for run in (one, out))
    assert [row["step"] for row in means] == ["2", "4"]
    for name in ("loss", "gradient_norm"):
        wanted = (float(each[0][name]) + float(each[1][name])) / 2
        assert float(means[0][name]) == pytest.approx(wanted, rel=1e-3)
    judged = [row for row in read_log(out) if row["cider"]]
    assert len(judged) == 5
    assert all(float(row["validation_loss"]) > 0 and row["bleu4"] and row["rouge_l"] for row in judged)
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 5 * 4
    assert samples[0].keys() == {"phase", "step", "id", "caption", "people"}
    assert len({sample["id"] for sample in samples}) == 4
    assert len(list((out / "top").glob("*.safetensors"))) == 2
    scores = load_checkpoint(out / "best.safetensors").card.scores["the 4 of the validation split"]
    assert {"cider", "bleu4", "rouge_l", "validation_loss", "n"} <= scores.keys()


def test_weights_are_chosen_by_any_metric_and_a_phase_ends_early(
    places: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--set", "select=loss", "--set", "patience=2", "--lr", 50, "--set", "validate_every=1")
    done = train(places, out, *options, steps=40)
    assert done.exit_code == 0, done.output
    losses = {int(row["step"]): float(row["validation_loss"]) for row in read_log(out) if row["bleu4"]}
    best = min(losses, key=losses.__getitem__)
    assert max(losses) == best + 2 < 40
    assert (
        load_checkpoint(out / "best.safetensors").card.training["chosen_at"] == f"cross_entropy step {best}"
    )
    assert train(places, out, *options, steps=40).exit_code == 0  # which is over, and takes no step
    assert max(int(row["step"]) for row in read_log(out)) == best + 2


def test_a_batch_in_parts_has_the_gradient_of_the_whole(places: tuple[str, ...], tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    still = (
        "--set",
        "dropout=0",
        "--set",
        "forcing_eta=null",
        "--set",
        "auxiliary_weight=0",
        "--log-every",
        1,
    )
    assert train(places, whole, *still, steps=1).exit_code == 0
    done = train(places, parts, *still, "--set", "accumulate=2", steps=1)
    assert done.exit_code == 0, done.output
    for name in ("loss", "gradient_norm"):
        values = [next(float(row[name]) for row in read_log(run) if row[name]) for run in (whole, parts)]
        assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_a_sweep_trains_all_and_makes_one_table(places: tuple[str, ...], tmp_path: Path) -> None:
    changes = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    options = (
        "--over",
        "learning_rate=1e-3,2e-3",
        "--over",
        "optimizer=adam",
        "--seeds",
        "1,2",
        "--steps",
        2,
    )
    done = sweep("stats", *places, *changes, *options, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    folders = sorted(str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("run.json"))
    assert folders == [
        f"learning_rate={rate}+optimizer=adam/seed{seed}" for rate in ("0.001", "0.002") for seed in (1, 2)
    ]
    rates = [read_record(tmp_path / folder)["run"]["recipe"]["learning_rate"] for folder in folders]
    assert rates == [0.001, 0.001, 0.002, 0.002]
    head, _, *rows = (tmp_path / "table.md").read_text().splitlines()
    assert head == "| values | runs | BLEU-4 | ROUGE-L | CIDEr-D | loss |"
    assert [row.split(" | ")[1] for row in rows] == ["2", "2"]
    assert all(" ± " in row for row in rows)
    assert head in done.output
    scores = [
        next(iter(load_checkpoint(tmp_path / each / "best.safetensors").card.scores.values()))
        for each in folders
    ]
    with (tmp_path / "table.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    losses = [score["validation_loss"] for score in scores[:2]]
    assert float(first["validation_loss_mean"]) == pytest.approx(np.mean(losses), abs=1e-3)
    assert float(first["validation_loss_sd"]) == pytest.approx(np.std(losses, ddof=1), abs=1e-3)
    refused = sweep("stats", *places, "--over", "hidden", "--out", tmp_path / "no")
    assert "--set: 'hidden' is no field=value" in refused.output


def test_the_log_is_shown_where_it_is_asked_for(
    places: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in for the package; without it the option is refused."""
    shown: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str, **_: object) -> None:
            assert folder == str(tmp_path / "run" / "tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            shown.append((name, value, step))

        def flush(self) -> None: ...

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=SummaryWriter))
        done = train(places, tmp_path / "run", "--track", "tensorboard", "--log-every", 1)
    assert done.exit_code == 0, done.output
    names = {name for name, _, _ in shown}
    assert {
        f"cross_entropy/{each}" for each in ("loss", "gradient_norm", "cider", "validation_loss")
    } <= names
    monkeypatch.setitem(sys.modules, "wandb", None)
    refused = train(places, tmp_path / "other", "--track", "wandb")
    assert refused.exit_code == 2
    assert "--track: wandb is not installed" in refused.output


def test_features_that_none_of_the_videos_has_are_blamed(places: tuple[str, ...], tmp_path: Path) -> None:
    write_map(tmp_path, {"clip": {"file": "{stem}.npy", "width": 6, "axes": "CT", "fps": 0.5}})
    refused = train((*places[:4], "--features", str(tmp_path)), tmp_path / "run")
    assert refused.exit_code == 2
    assert (
        "--features: None of the 8 videos of folder has features: its features are missing" in refused.output
    )
