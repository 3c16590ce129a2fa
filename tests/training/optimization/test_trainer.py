"""Training goes on after a kill as if nothing had been, learns, and hands over between its phases."""

from __future__ import annotations

import csv
import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.pictures.picture_batches import TrainingItem
from lab.pictures.validation import PictureValidation
from tests.training.killed_training import RECIPE, SAVED_EVERY, STEPS, captioner, refine, trainer
from training.optimization import trainer as optimization_trainer
from training.optimization.losses import supervised_loss
from training.optimization.progress import BestScore, NotFinite
from training.optimization.trainer import Trainer
from training.optimization.validation import HeldOutScores

pytestmark = pytest.mark.usefixtures("every_step_is_logged")


def train(folder: Path, out: Path) -> Trainer:
    tiny = trainer(folder, out)
    tiny.train(captioner(tiny))
    return tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus")


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimization_trainer, "REPORT_EVERY", 1)
        torch.set_num_threads(1)
        train(corpus, out)
    return out


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "log.csv").open() as file:
        return list(csv.DictReader(file))


def losses(run: Path) -> dict[int, list[tuple[str, str]]]:
    """Step → (loss, ranking loss) as often as it was taken."""
    found: dict[int, list[tuple[str, str]]] = {}
    for row in rows(run):
        if row["loss"]:
            found.setdefault(int(row["step"]), []).append((row["loss"], row["auxiliary"]))
    return found


def flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{name}/{key}").items()}
    if isinstance(value, list):
        return {k: v for i, item in enumerate(value) for k, v in flat(item, f"{name}/{i}").items()}
    return {name: value}


def state(run: Path) -> dict[str, Any]:
    return flat(torch.load(run / "last.pt", weights_only=True))


def assert_same_state(one: Path, other: Path) -> None:
    ours, theirs = state(one), state(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        same = torch.equal(value, theirs[name]) if isinstance(value, torch.Tensor) else value == theirs[name]
        assert same, name


def judged(cider: float, loss: float = 1.0) -> HeldOutScores:
    return HeldOutScores({"cider": cider, "validation_loss": loss})


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_losses_and_weights(
    root: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    out, killed_at = tmp_path / "run", 2 * SAVED_EVERY + 4
    script = [sys.executable, "-m", "tests.training.killed_training", str(corpus), str(out), str(killed_at)]
    done = subprocess.run(script, cwd=root, stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL
    assert state(out)["/step"] == 2 * SAVED_EVERY
    train(corpus, out)
    expected, found = losses(whole), losses(out)
    assert found.keys() == expected.keys() == set(range(1, STEPS + 1))
    for step, taken in found.items():
        assert set(taken) == set(expected[step]), step
    assert len(found[2 * SAVED_EVERY + 1]) == 2  # taken before the kill and again after it
    assert_same_state(out, whole)


def test_another_seed_gives_other_losses(corpus: Path, whole: Path, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"seed": 1, "steps": 2})
    tiny = trainer(corpus, tmp_path / "run", recipe=recipe)
    tiny.train(captioner(tiny))
    assert losses(tmp_path / "run")[1] != losses(whole)[1]


def test_the_loss_falls(whole: Path) -> None:
    taken = [float(found[0][0]) for _, found in sorted(losses(whole).items())]
    assert sum(taken[-10:]) < 0.8 * sum(taken[:10])
    assert all(math.isfinite(value) for value in taken)


def test_validations_are_logged_and_the_best_is_remembered(whole: Path) -> None:
    ciders = [float(row["cider"]) for row in rows(whole) if row["cider"]]
    assert len(ciders) == STEPS // SAVED_EVERY
    assert state(whole)["/best"] == pytest.approx(max(ciders), rel=1e-4)


def test_only_gains_are_kept(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([10.0, 5.0, 12.0])
    monkeypatch.setattr(PictureValidation, "judge", lambda *_, **__: judged(next(scores)))
    tiny = trainer(corpus, tmp_path / "run")
    kept: list[tuple[float, str]] = []
    object.__setattr__(tiny, "save_best", lambda _, best: kept.append((best.value, best.where)))
    tiny.train(captioner(tiny))
    assert kept == [(10.0, "cross_entropy step 10"), (12.0, "cross_entropy step 30")]


def test_between_equal_scores_the_loss_of_held_out_captions_decides(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CIDEr-D of few items stays 0 for long."""
    scores = iter([(0.0, 3.0), (0.0, 2.0), (0.0, 2.5)])
    monkeypatch.setattr(PictureValidation, "judge", lambda *_, **__: judged(*next(scores)))
    tiny = trainer(corpus, tmp_path / "run")
    kept: list[str] = []
    object.__setattr__(tiny, "save_best", lambda _, best: kept.append(best.where))
    tiny.train(captioner(tiny))
    assert kept == ["cross_entropy step 10", "cross_entropy step 20"]
    assert [row["kept_by"] for row in rows(tmp_path / "run") if row["cider"]] == ["score", "loss", ""]
    assert (state(tmp_path / "run")["/held_out_loss"], state(tmp_path / "run")["/stale"]) == (2.0, 1)


def test_where_cider_cannot_be_computed_weights_are_kept_by_likelihood(corpus: Path, tmp_path: Path) -> None:
    """One item was set aside: CIDEr-D of it is 0 whatever is written."""
    tiny = trainer(corpus, tmp_path / "run")
    (item, *_), options = tiny.validation.items, tiny.validation.options
    assert isinstance(item, TrainingItem)
    alone = replace(tiny, validation=PictureValidation([item], options))
    kept: list[BestScore] = []
    object.__setattr__(alone, "save_best", lambda _, best: kept.append(best))
    learned = captioner(alone)
    alone.train(learned)
    logged = [row for row in rows(tmp_path / "run") if row["log_likelihood"]]
    values = [float(row["log_likelihood"]) for row in logged]
    assert [row["cider"] for row in logged] == [""] * (STEPS // SAVED_EVERY)
    assert all(value < 0 for value in values)
    assert len(set(values)) == len(values)
    assert [each.metric for each in kept] == ["log_likelihood"] * len(kept)
    assert kept[-1].value == pytest.approx(max(values), rel=1e-4)
    assert state(tmp_path / "run")["/metric"] == "log_likelihood"
    refine(alone, learned)  # which goes on from that value, and not from none
    assert state(tmp_path / "run")["/best"] >= kept[-1].value - 1e-4


def test_without_supervised_steps_refining_has_the_start_to_surpass(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([10.0, 9.0, 9.5])
    monkeypatch.setattr(PictureValidation, "judge", lambda *_, **__: judged(next(scores)))
    tiny = trainer(corpus, tmp_path / "run", recipe=RECIPE.model_copy(update={"steps": 0}))
    kept: list[tuple[float, str]] = []
    object.__setattr__(tiny, "save_best", lambda _, best: kept.append((best.value, best.where)))
    learned = captioner(tiny)
    before = flat(learned.state_dict())
    tiny.train(learned)
    assert all(torch.equal(value, before[name]) for name, value in flat(learned.state_dict()).items())
    refine(tiny, learned)
    assert kept == [(10.0, "cross_entropy step 0")]


def test_refining_follows_and_a_finished_run_takes_no_step(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    tiny = trainer(corpus, out, recipe=RECIPE.model_copy(update={"steps": 4}))
    learned = captioner(tiny)
    tiny.train(learned)
    refine(tiny, learned)
    logged = rows(out)
    rewards = [row for row in logged if row["reward"]]
    assert [int(row["step"]) for row in rewards] == list(range(1, 11))
    assert {row["phase"] for row in rewards} == {"self_critical"}
    assert state(out)["/phase"] == "self_critical"
    tiny.train(captioner(tiny))
    refine(tiny, captioner(tiny))
    assert rows(out) == logged


def test_the_rate_warms_up_and_falls_to_a_hundredth(corpus: Path, tmp_path: Path) -> None:
    tiny = trainer(corpus, tmp_path / "run")
    rates = [tiny.recipe.rate(step, STEPS, 0.0) for step in range(STEPS)]
    assert rates[0] == pytest.approx(RECIPE.learning_rate / RECIPE.warmup, rel=1e-3)
    assert max(rates) == pytest.approx(RECIPE.learning_rate, rel=0.1)
    assert rates.index(max(rates)) == RECIPE.warmup - 1
    assert rates[RECIPE.warmup :] == sorted(rates[RECIPE.warmup :], reverse=True)
    assert rates[-1] == pytest.approx(RECIPE.learning_rate / 100)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run_before_it_is_saved(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    def spoil(*arguments: Any) -> Any:
        losses = supervised_loss(*arguments)
        return {**losses, "total": losses["total"] * value}

    monkeypatch.setattr("training.optimization.trainer.supervised_loss", spoil)
    with pytest.raises(NotFinite, match="at step 1"):
        train(corpus, tmp_path / "run")
    assert not (tmp_path / "run" / "last.pt").exists()
