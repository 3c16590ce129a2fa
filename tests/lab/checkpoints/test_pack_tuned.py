"""A run's tuned networks become the repository's: the file is copied, and the manifest tells of it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import torch

from extractors.catalog.efficientnet_lite2 import load_packaged
from extractors.catalog.tuned_pair import TUNED, TUNED_GRID, PairEnd, make_spec, save_changes
from extractors.files import sha256_of
from extractors.pretrained.manifest import MANIFEST
from extractors.pretrained.weights_folder import WeightsFolder
from lab.checkpoints.pack_tuned import main, note_facts, pack
from models.checkpoint import Card, CheckpointError, save_checkpoint
from tests.models.tiny import tiny_stats


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder as it is left, with a captioner that has nothing to do with pictures."""
    folder = tmp_path / "run"
    end = PairEnd(load_packaged())
    torch.nn.init.zeros_(end.get_submodule("head").get_parameter("bias"))
    digest = save_changes(end, PairEnd(load_packaged()), folder / "tuned.safetensors")
    card = Card("stats", {TUNED_GRID: make_spec(digest, "0" * 64, "1" * 64)}, {}, {})
    save_checkpoint(folder / "best.safetensors", tiny_stats(), card)
    return folder


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    return Path(shutil.copy(MANIFEST, tmp_path / "weights" / "manifest.toml"))


def test_what_is_packed_is_found_and_right(run: Path, manifest: Path, tmp_path: Path) -> None:
    place = pack(run, manifest)
    assert place == manifest.parent / "networks" / "tuned_pair.safetensors"
    found = WeightsFolder(tmp_path / "data", manifest).find(TUNED)
    assert (found.file, found.sha256) == (place, sha256_of(run / "tuned.safetensors"))
    assert not found.pinned
    assert found.entry.bytes == place.stat().st_size


def test_files_that_do_not_belong_together_are_not_packed(run: Path, manifest: Path) -> None:
    before = manifest.read_text()
    end = PairEnd(load_packaged())
    save_changes(end, end, run / "tuned.safetensors")
    with pytest.raises(CheckpointError, match=r"best\.safetensors was not trained with .*tuned\.safetensors"):
        pack(run, manifest)
    assert manifest.read_text() == before
    assert not (manifest.parent / "networks").exists()


def test_the_manifest_notes_a_new_file_in_its_place() -> None:
    """Twice is as good as once, and nothing else is touched."""
    text = MANIFEST.read_text()
    once = note_facts(text, "a" * 64, 12)
    again = note_facts(once, "b" * 64, 34)
    before, known = tomllib.loads(text), tomllib.loads(again)
    assert known == {**before, TUNED: {**before[TUNED], "sha256": "b" * 64, "bytes": 34}}
    assert len(again.splitlines()) == len(once.splitlines())
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert [line for line in again.splitlines() if line.startswith("#")] == comments


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: python -m lab.checkpoints.pack_tuned RUN" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 1
    assert "tuned.safetensors" in capsys.readouterr().err
