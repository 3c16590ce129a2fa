"""A checkpoint that is extended writes as before, but for what it reads beside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from typer.testing import CliRunner

from lab.__main__ import lab
from lab.checkpoints.extend_inputs import join_weights
from models.captioners.stats.config import StreamConfig
from models.checkpoint import Card, load_checkpoint, save_checkpoint
from models.inputs import InputStream
from tests.models.tiny import SPEC, tiny_stats, tiny_temporal

CARD = Card("temporal", {"grid": SPEC}, {"somewhere": {"cider": 1.0}}, {"streams": "demo", "ids": ["a"]})


def test_only_columns_of_new_streams_come_from_the_trained_one(tmp_path: Path) -> None:
    start = tiny_temporal(seed=1)
    config = start.config.model_copy(update={"motion": None, "audio": None})
    start = type(start)(config, start.vocabulary)
    trained = type(start)(
        config.model_copy(update={"motion": InputStream(name="moving", width=7)}), start.vocabulary
    )
    files = [tmp_path / "start.safetensors", tmp_path / "trained.safetensors"]
    save_checkpoint(files[0], start, CARD)
    save_checkpoint(files[1], trained, replace(CARD, streams={"grid": SPEC, "moving": SPEC}))
    out = tmp_path / "out.safetensors"
    result = CliRunner().invoke(lab, ["extend", *map(str, files), "--out", str(out)])
    assert result.exit_code == 0, result.output
    made, (first, last) = load_checkpoint(out), [load_checkpoint(file).captioner for file in files]
    assert made.card.streams.keys() == {"grid", "moving"}
    assert made.card.scores == {}
    before, beside = first.state_dict(), last.state_dict()
    for name, value in made.captioner.state_dict().items():
        columns = before[name].shape[1] if value.dim() == 2 else None
        if columns is None or before[name].shape == value.shape:
            assert torch.equal(value, before[name])
        else:
            assert torch.equal(value[:, :columns], before[name])
            assert torch.equal(value[:, columns:], beside[name][:, columns:])
    assert (
        made.captioner.state_dict()["embed_memory.weight"].shape[1] > before["embed_memory.weight"].shape[1]
    )
    refused = CliRunner().invoke(lab, ["extend", *map(str, reversed(files)), "--out", str(tmp_path / "no")])
    assert refused.exit_code == 2


def test_a_branch_of_its_own_comes_from_the_trained_one() -> None:
    start, grid = tiny_stats(seed=1), StreamConfig(name="grid", width=6)
    config = start.config.model_copy(update={"streams": (grid, StreamConfig(name="moving", width=7))})
    trained = type(start)(config, start.vocabulary)
    weights, beside = join_weights(start, trained, Path("start")), trained.state_dict()
    assert weights.keys() == beside.keys()
    branch = [name for name in weights if name.startswith("streams.1.")]
    assert branch
    assert all(torch.equal(weights[name], beside[name]) for name in branch)
    for name, value in start.state_dict().items():
        assert torch.equal(weights[name][:, : value.shape[1]] if value.dim() == 2 else weights[name], value)
    columns = start.decoder.weight_ih.shape[1]
    assert torch.equal(weights["decoder.weight_ih"][:, columns:], beside["decoder.weight_ih"][:, columns:])
