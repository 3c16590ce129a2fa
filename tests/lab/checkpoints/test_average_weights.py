"""The mean of several checkpoints' weights is a checkpoint that tells what it was made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from extractors.features import StreamSpec
from lab.__main__ import lab
from models.checkpoint import Card, load_checkpoint, save_checkpoint
from tests.models.tiny import SPEC, stats_config, tiny_stats

CARD = Card("stats", {"grid": SPEC}, {"somewhere": {"cider": 1.0}}, {"streams": "demo"})


def saved(folder: Path, name: str, seed: int, ids: tuple[str, ...], card: Card = CARD) -> str:
    trained = replace(card, training={**card.training, "recipe": name, "ids": list(ids)})
    save_checkpoint(folder / f"{name}.safetensors", tiny_stats(seed=seed), trained)
    return str(folder / f"{name}.safetensors")


def test_weights_are_the_mean_and_the_card_names_all(tmp_path: Path) -> None:
    files = [saved(tmp_path, "one", 1, ("a", "b")), saved(tmp_path, "two", 2, ("b", "c"))]
    files.append(saved(tmp_path, "three", 3, ("a",)))
    out = tmp_path / "mean.safetensors"
    result = CliRunner().invoke(lab, ["average", *files, "--out", str(out)])
    assert result.exit_code == 0, result.output
    made, parts = load_checkpoint(out), [load_checkpoint(Path(file)) for file in files]
    for name, value in made.captioner.state_dict().items():
        of_parts = torch.stack([part.captioner.state_dict()[name] for part in parts])
        torch.testing.assert_close(value, of_parts.mean(0), atol=1e-3, rtol=1e-3)  # float16 in the file
    assert made.card.training["ids"] == ["a", "b", "c"]
    assert [part["recipe"] for part in made.card.training["averaged"]] == ["one", "two", "three"]
    assert made.card.training["streams"] == "demo"
    assert made.card.streams == {"grid": SPEC}
    assert made.card.scores == {}


def test_what_did_not_go_on_from_one_checkpoint_is_refused(tmp_path: Path) -> None:
    one, out = saved(tmp_path, "one", 1, ("a",)), tmp_path / "mean.safetensors"
    elsewhere = replace(CARD, streams={"grid": StreamSpec("another", "0" * 64, "nothing")})
    others = {"different streams": saved(tmp_path, "other", 2, ("a",), elsewhere)}
    wider = tmp_path / "wider.safetensors"
    save_checkpoint(wider, tiny_stats(stats_config(hidden=11)), CARD)
    others |= {"different configs": str(wider), "nobody": "nobody"}
    for said, other in others.items():
        result = CliRunner().invoke(lab, ["average", one, other, "--out", str(out)])
        assert result.exit_code == 2
        assert said in result.output
        assert not out.exists()


def test_a_checkpoint_that_is_named_twice_counts_twice(tmp_path: Path) -> None:
    one, two = saved(tmp_path, "one", 1, ("a",)), saved(tmp_path, "two", 2, ("a",))
    out = tmp_path / "mean.safetensors"
    assert CliRunner().invoke(lab, ["average", one, two, two, "--out", str(out)]).exit_code == 0
    values = [load_checkpoint(Path(f)).captioner.state_dict()["output.bias"] for f in (one, two, str(out))]
    torch.testing.assert_close(values[2], (values[0] + 2 * values[1]) / 3, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("count", [0, 1])
def test_one_alone_is_no_average(tmp_path: Path, count: int) -> None:
    files = [saved(tmp_path, "one", 1, ("a",))][:count]
    assert (
        CliRunner().invoke(lab, ["average", *files, "--out", str(tmp_path / "mean.safetensors")]).exit_code
        == 2
    )
