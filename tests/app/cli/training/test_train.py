"""The command line trains whatever captioner the registry lists, and names those there are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from app.cli.main import cli as app
from extractors.extractor import OLDEST
from extractors.features import StreamSpec
from models.captioners import registry
from models.checkpoint import load_checkpoint
from tests.models.captioners.test_new_captioner import MeanCaptioner
from tests.training.killed_training import RECIPE
from tests.training.tiny_corpus import Averages, write_corpus
from training.batches.picture_batches import CachedNetwork
from training.batches.picture_features import VIEWS
from training.batches.picture_inputs import PICTURE_NETWORKS
from training.recipes.demo_recipes import RECIPES


class SixChannels(Averages):
    """The drawn network's cells, as wide as the new captioner reads them."""

    spec = StreamSpec("six channels", hashlib.sha256(b"six channels").hexdigest(), "none")
    shapes: Mapping[str, tuple[int, int]] = {"grid": (49, 6)}

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        return {"grid": super().of_pictures(pictures)["grid"][..., :6]}


def test_a_captioner_with_a_line_in_the_registry_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No list of captioners besides, and no config of the demo's widths, is needed."""
    monkeypatch.setitem(registry.CAPTIONERS, MeanCaptioner.name, MeanCaptioner)
    monkeypatch.setitem(PICTURE_NETWORKS, OLDEST, lambda _: CachedNetwork(SixChannels(), VIEWS))
    short = {"name": "demo", "steps": 2, "validate_every": 1, "self_critical_steps": 0, "soft_weight": 0.0}
    monkeypatch.setitem(RECIPES, "demo", RECIPE.model_copy(update=short))
    archive, captions = write_corpus(tmp_path, 16)
    archive.rename(tmp_path / "flickr8k_train.tar")
    captions.rename(tmp_path / "flickr8k_captions.json")
    places = ["--data", str(tmp_path), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]
    trained = CliRunner().invoke(app, ["train", "mean", *places, "--threads", "1"])
    assert trained.exit_code == 0, trained.output
    kept = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert isinstance(kept.captioner, MeanCaptioner)
    assert kept.card.streams == {"grid": SixChannels.spec}


def test_another_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["train", "lstm", "--data", str(tmp_path)], env={"COLUMNS": "300"})
    assert refused.exit_code == 2
    output = " ".join(refused.output.replace("│", " ").split())
    assert "no captioner is called 'lstm'; there are: dual_afr, g2l, refocus" in output
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
