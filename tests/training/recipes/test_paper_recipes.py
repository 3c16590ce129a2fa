"""The papers' schedules at chosen steps, what is for whom, and a step of every captioner at full width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from app.cli.main import cli as app
from extractors.features import Features
from models.captioners.dual_afr.config import DualAFRConfig
from models.captioners.registry import captioner_class, find_stream_set
from models.stream_set import StreamSet
from models.vocabulary import Vocabulary, pad_captions
from tests.models.tiny import stream
from training.batches.training_batch import TrainingBatch
from training.batches.video_batches import VideoInputs
from training.datasets.errors import DataSetError
from training.optimization.learner import build_learner, build_optimizer
from training.optimization.losses import caption_loss, supervised_loss
from training.optimization.rewards import NoReward
from training.optimization.run_folder import RunSettings
from training.recipes.demo_recipes import UnknownRecipe, read_recipes
from training.recipes.paper_recipes import find_paper_run, list_paper_runs
from training.sessions.videos import train_as_paper

EPOCH = 100


def rates(recipe: str, captioner: str, epochs: tuple[float, ...]) -> list[float]:
    plan = find_paper_run(recipe, captioner).recipe.in_steps(32 * EPOCH)
    steps = [round(epoch * EPOCH) for epoch in epochs]
    return [plan.rate(step, 30 * EPOCH, step / EPOCH) for step in steps]


def test_g2l_warms_up_over_three_epochs_holds_and_drops_for_the_last_seven() -> None:
    plan = find_paper_run("paper-msrvtt", "g2l").recipe.in_steps(32 * EPOCH)
    assert plan.steps == 30 * EPOCH
    found = rates("paper-msrvtt", "g2l", (0, 1.5, 3, 22.99, 23, 29.99))
    assert found == pytest.approx([1e-7, (1e-7 + 1e-4) / 2, 1e-4, 1e-4, 1e-6, 1e-6])


def test_other_rates_are_held_or_decay() -> None:
    assert rates("paper-msvd", "stats", (0, 5, 9.9)) == [1e-4] * 3
    assert rates("paper-msvd", "refocus", (0, 20)) == [3e-4] * 2
    assert rates("paper-msvd", "dual_afr", (0, 20)) == [2e-4] * 2
    fusion = rates("paper-vatex", "spatial", (0, 2.99, 3, 6))
    assert fusion == pytest.approx([5e-4, 5e-4, 4e-4, 3.2e-4])


def test_optimisers_are_the_papers() -> None:
    network = torch.nn.Linear(2, 2)
    kinds = {who: build_optimizer(run.recipe, network) for (_, who), run in list_paper_runs().items()}
    assert {who: type(optimizer).__name__ for who, optimizer in kinds.items()} == {
        "stats": "RMSprop",
        "g2l": "AdamW",
        **dict.fromkeys(("refocus", "dual_afr", "vanilla", "temporal", "spatial"), "Adam"),
    }
    assert kinds["g2l"].param_groups[0]["weight_decay"] == 2e-5
    assert find_paper_run("paper-msvd", "dual_afr").recipe.clip == 5


def test_words_are_sampled_as_the_papers_say() -> None:
    """STaTS by its sigmoid of the epoch, refocus a quarter, the others never."""
    stats, refocus, g2l = (find_paper_run("paper-msrvtt", who).recipe for who in ("stats", "refocus", "g2l"))
    assert [stats.teacher_forcing(epoch) for epoch in (0, 20)] == pytest.approx([0.96, 0.9125], abs=1e-3)
    assert refocus.teacher_forcing(0) == refocus.teacher_forcing(9) == 0.75
    assert g2l.teacher_forcing(9) == 1


def test_phases_are_as_long_as_their_epochs() -> None:
    plan = find_paper_run("paper-msrvtt", "refocus").recipe.in_steps(32 * EPOCH - 5)
    assert (plan.steps, plan.phases["first_step"]) == (0, 5 * EPOCH)
    assert plan.phases["combined"] > 0
    assert plan.phases["frozen_key_frames"] > 0
    assert (plan.epoch_steps, plan.validate_every) == (EPOCH, EPOCH)
    stats = find_paper_run("paper-msvd", "stats")
    assert stats.recipe.in_steps(32 * EPOCH).self_critical_steps == 10 * EPOCH
    assert stats.recipe.without_rewards().in_steps(32 * EPOCH).self_critical_steps == 0
    assert stats.recipe.rewards.model_dump() == {"cider": 0, "bleu": 1, "meteor": 1, "rouge_l": 0}


def test_rows_of_the_papers_tables_differ_in_what_they_say() -> None:
    """Each trained by itself, as the papers did it."""
    rows = {recipe: run for (recipe, _), run in list_paper_runs().items() if run.row}
    configs: dict[str, Any] = {name: run.config(find_stream_set(run.streams)) for name, run in rows.items()}
    assert configs["paper-msvd-ts"].branches == "ts"
    lstm, ranked = rows["paper-msrvtt-lstm"].recipe, rows["paper-msrvtt-ranked"].recipe
    assert (lstm.auxiliary_weight, ranked.auxiliary_weight) == (0, 0.1)
    assert configs["paper-msrvtt-lstm"] == configs["paper-msrvtt-ranked"]
    assert configs["paper-msrvtt-1-frame"].key_frames == 1
    assert [layer.name for layer in configs["paper-mvad-pool4"].layers] == ["c3d_pool4"]
    plain = rows["paper-msrvtt-plain"].recipe.in_steps(32 * EPOCH)
    assert (plain.steps, plain.phases, plain.self_critical_steps) == (60 * EPOCH, {}, 10 * EPOCH)
    assert configs["paper-msrvtt-plain"].audio is None


def test_captions_that_are_cut_are_ended_and_an_epoch_has_each_once() -> None:
    """The demo's recipes stay as its checkpoints were trained."""
    for run in list_paper_runs().values():
        assert run.recipe.keep_end
        assert run.recipe.every_caption
    demo = {name: each for name, each in read_recipes().recipes.items() if name.startswith("demo")}
    assert not any(each.every_caption or each.keep_end for each in demo.values())


def test_a_set_that_a_paper_does_not_have_is_told() -> None:
    with pytest.raises(
        UnknownRecipe, match="g2l has no paper-vatex, which is for: vanilla, temporal, spatial"
    ):
        find_paper_run("paper-vatex", "g2l")
    refused = CliRunner().invoke(app, ["train", "g2l", "--data", "x", "--recipe", "paper-vatex"])
    assert refused.exit_code == 2
    assert not {name for name, _ in list_paper_runs()} & read_recipes().recipes.keys()


def test_without_java_what_is_paid_for_by_meteor_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.scores.java._list_installed", list)
    run, place = (
        find_paper_run("paper-msvd", "stats"),
        RunSettings(tmp_path / "run", tmp_path / "cache", print),
    )
    with pytest.raises(NoReward, match="METEOR as a reward needs Java"):
        train_as_paper("stats", run, tmp_path, place)
    with pytest.raises(DataSetError):
        train_as_paper("stats", replace(run, recipe=run.recipe.without_rewards()), tmp_path, place)


def test_a_set_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["train", "g2l", "--data", str(tmp_path), "--recipe", "paper-msvd"])
    assert refused.exit_code == 2
    assert "--data" in refused.output


@pytest.mark.parametrize(("recipe", "captioner"), list_paper_runs(), ids=lambda name: name)
def test_each_captioner_eats_what_its_stream_set_makes(recipe: str, captioner: str) -> None:
    run = find_paper_run(recipe, captioner)
    wanted = find_stream_set(run.streams)
    config: Any = run.config(wanted)
    inputs = {each.stream: each.width for each in wanted.inputs}
    assert {each.name: each.width for each in config.streams}.items() <= inputs.items()


def random_features(config: Any, wanted: StreamSet) -> Features:
    """Two rows of every stream, as wide and as many as the extractors make them."""
    inputs = {each.stream: each for each in wanted.inputs}
    return {
        each.name: stream(2, inputs[each.name].count or 1, each.width, seed)
        for seed, each in enumerate(config.streams)
    }


def light(config: Any) -> Any:
    """dualAFR without its first two layers, whose convolutions of 7 × 7 × 7 take a minute."""
    if isinstance(config, DualAFRConfig):
        return config.model_copy(update={"layers": config.layers[2:], "samples": 2})
    return config


STEPPED: Mapping[str, str] = {
    "stats": "paper-msvd",
    "g2l": "paper-msrvtt",
    "refocus": "paper-msrvtt",
    "dual_afr": "paper-msvd-hard",
    "vanilla": "paper-vatex",
    "temporal": "paper-vatex",
    "spatial": "paper-vatex",
}


@pytest.mark.slow
@pytest.mark.parametrize("captioner", STEPPED)
def test_a_step_at_full_width_learns(captioner: str) -> None:
    """The paper's optimiser, rate and clip; what is compared is the loss without dropout."""
    run = find_paper_run(STEPPED[captioner], captioner)
    wanted = find_stream_set(run.streams)
    torch.manual_seed(0)
    config = light(run.config(wanted))
    network = captioner_class(captioner)(config, Vocabulary([f"w{i}" for i in range(400)]))
    plan = run.recipe.in_steps(32 * EPOCH)
    learner, inputs = build_learner(plan, network), VideoInputs.for_captioner(network)
    batches = inputs.collate([random_features(config, wanted)])
    batch = TrainingBatch(("a",), batches, pad_captions([[5, 6, 7, 8]], plan.max_length), None)

    def loss() -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        memory = network.phases[0].choose(network.encode_batches(batch.inputs_of(network)), generator)
        return supervised_loss(network, memory, batch, plan, 1.0, generator)["total"]

    before = [parameter.detach().clone() for parameter in network.parameters()]
    with torch.no_grad():
        first = float(loss_of(network, batch))
    learner.add_gradient(loss())
    learner.descend(plan.rate(5 * EPOCH, 30 * EPOCH, 5.0), plan.clip)
    moved = [not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True)]
    assert sum(moved) > 0.6 * len(moved)
    with torch.no_grad():
        assert float(loss_of(network, batch)) < first


def loss_of(network: Any, batch: TrainingBatch) -> torch.Tensor:
    """Cross-entropy as in use."""
    network.eval()
    found = caption_loss(
        network, network.encode_batches(batch.inputs_of(network)), batch.targets
    ).cross_entropy
    network.train()
    return found
