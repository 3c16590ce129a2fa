"""Refocus's phases: each goes on from the one before, remembers rewards, and survives a kill between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.captioners.refocus.config import RefocusConfig
from models.captioners.refocus.network import Refocus
from models.checkpoint import Card, save_checkpoint
from models.inputs import InputStream
from models.training_phase import PhaseBatch
from tests.models.tiny import SPEC
from tests.training.killed_training import RECIPE, trainer
from training.batches.training_batch import TrainingBatch
from training.optimization import trainer as optimization_trainer
from training.optimization.learner import TrainedNetwork
from training.optimization.losses import CaptionValues
from training.optimization.phases import train_later_phases
from training.optimization.progress import BestScore
from training.optimization.run_folder import TrainingRun
from training.optimization.trainer import Trainer

CONFIG = RefocusConfig(
    grid=InputStream(name="grid", width=8),
    audio=None,
    embedded=8,
    hidden=12,
    attention=6,
    dropout=0.1,
    tie_words=True,
)
SHOTS = RECIPE.model_copy(
    update={
        "steps": 0,
        "phases": {"first_step": 2, "combined": 8, "frozen_key_frames": 2},
        "self_critical_steps": 0,
        "validate_every": 4,
        "soft_weight": 0.0,
        "distractors": 0.8,
        "lengths": (0.0, 0.0, 1.0, 1.0),
    }
)


pytestmark = pytest.mark.usefixtures("every_step_is_logged")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


def saving(tiny: Trainer, out: Path) -> Trainer:
    """Keeps checkpoints as a session does."""
    run = TrainingRun(out)

    def save(network: TrainedNetwork, best: BestScore) -> None:
        card = Card("refocus", {"grid": SPEC}, {"": best.value}, {"at": best.where})
        save_checkpoint(run.best, network, card)

    return replace(tiny, run=run, save_best=save)


def train(corpus: Path, out: Path, last: int = -1) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tiny = saving(trainer(corpus, out, last, recipe=SHOTS), out)
    torch.manual_seed(0)
    captioner = Refocus(CONFIG, tiny.batches.vocabulary)
    tiny.train(captioner)
    train_later_phases(captioner, tiny, tiny.run.best_after)


def state(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(out / "last.pt", weights_only=True)
    return found


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimization_trainer, "REPORT_EVERY", 1)
        torch.set_num_threads(1)
        train(corpus, out)
        assert state(out)["phase"] == "frozen_key_frames"
    return out


def test_the_phases_follow_each_other(whole: Path) -> None:
    lines = [line.split(",") for line in (whole / "log.csv").read_text().splitlines()]
    header, rows = lines[0], lines[1:]
    trained = [(row[0], int(row[1])) for row in rows if row[header.index("loss")]]
    assert trained == [
        *(("first_step", step) for step in (1, 2)),
        *(("combined", step) for step in range(1, 9)),
        *(("frozen_key_frames", step) for step in (1, 2)),
    ]
    judged = [(row[0], int(row[1])) for row in rows if row[header.index("shots_cider")]]
    assert judged == [
        *(("combined", step) for step in (0, 4, 8)),
        *(("frozen_key_frames", step) for step in (2,)),
    ]
    steps = {row[0] for row in rows if row[header.index("step_1")]}
    assert steps == {"combined", "frozen_key_frames"}


class Interrupted(Exception):
    """In the place of a kill, whose process another test pays for."""


def test_a_stopped_run_goes_on_with_the_rewards_it_had(
    corpus: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the sixth combined step: the state is the fourth's, its rewards included."""
    combined = Refocus.combined_loss
    taken: list[int] = []

    def mortal(self: Refocus, *args: Any) -> Any:
        taken.append(1)
        if len(taken) == 7:
            raise Interrupted
        return combined(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Refocus, "combined_loss", mortal)
        with pytest.raises(Interrupted):
            train(corpus, tmp_path / "run")
    stopped = state(tmp_path / "run")
    assert (stopped["phase"], stopped["step"], stopped["metric"]) == ("combined", 4, "shots_cider")
    known = ~stopped["rewards"].isnan()
    assert (
        0 < known.sum() < len(known)
    )  # three steps of six videos are an epoch of twenty; the fourth begins another
    train(corpus, tmp_path / "run")
    ours, theirs = (state(out)["captioner"] for out in (tmp_path / "run", whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_key_frames_stay_frozen_while_the_captioner_learns(corpus: Path, whole: Path, tmp_path: Path) -> None:
    last = state(whole)["captioner"]
    predictor = {name: value for name, value in last.items() if name.startswith("predictor.")}
    assert predictor
    kept = TrainingRun(whole).best_after("combined").state_dict()
    for name, value in predictor.items():
        torch.testing.assert_close(value, kept[name.replace("predictor.", "watcher.", 1)])
    moved = [name for name in kept if name.startswith("watcher.") and not torch.equal(last[name], kept[name])]
    assert moved


@dataclass(frozen=True)
class Said:
    """An item of a corpus as far as rewards are concerned."""

    id: str
    captions: tuple[tuple[str, ...], ...]


def drawn(ids: tuple[str, ...], places: tuple[int, ...]) -> TrainingBatch:
    return TrainingBatch(ids, {}, torch.zeros(len(places), 1), None, places=places)


def test_a_reward_is_compared_with_that_of_the_same_caption() -> None:
    rewards = CaptionValues(
        [Said("a", (("x",),)), Said("b", (("x",), ("y",), ("z",))), Said("c", (("x",),) * 2)]
    )
    assert len(rewards.values) == 6
    assert rewards.get(drawn(("c", "a"), (0, 0))).isnan().all()
    rewards.remember(drawn(("b", "c"), (2, 0, 1, 0)), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert rewards.get(drawn(("c", "b"), (1, 0, 0, 2))).tolist() == [3, 4, 2, 1]
    assert rewards.get(drawn(("b",), (1,))).isnan().all(), "another caption of a video that was seen"
    assert rewards.get(drawn(("a",), (0,))).isnan().all()


def test_batches_say_which_captions_they_drew(corpus: Path, tmp_path: Path) -> None:
    batches = trainer(corpus, tmp_path, recipe=SHOTS).batches
    by_id = {item.id: item for item in batches.items}
    batch = batches.at(3)
    each = len(batch.targets) // len(batch.ids)
    for row, place in enumerate(batch.places):
        said = by_id[batch.ids[row // each]].captions[place]
        known = list(batches.vocabulary.encode(said))
        assert (
            batch.targets[row, : min(len(known), batch.targets.shape[1] - 1)].tolist()
            == known[: batch.targets.shape[1] - 1]
        )


def test_a_second_epoch_moves_the_refocusing_attention(corpus: Path, tmp_path: Path) -> None:
    """In the first there is no reward to compare with, and its weights get no gradient."""
    tiny = trainer(corpus, tmp_path, recipe=SHOTS)
    captioner = Refocus(CONFIG, tiny.batches.vocabulary).train()
    rewards, gradients = CaptionValues(tiny.batches.items), []
    for step in (0, tiny.batches.steps_per_epoch * 2):
        batch: TrainingBatch = tiny.batches.at(step)
        memory = captioner.encode_batches(batch.inputs_of(captioner))
        given = PhaseBatch(memory, batch.targets, lambda _, word: word, rewards.get(batch))
        found = captioner.combined_loss(given)
        captioner.zero_grad()
        found.total.backward()
        refocusing = captioner.watcher.vre
        assert refocusing is not None
        gradients.append([p.grad for p in refocusing.refocusing.parameters()])
        rewards.values.zero_()
    assert not any(g is not None and g.any() for g in gradients[0])
    assert all(g is not None and g.any() for g in gradients[1])
