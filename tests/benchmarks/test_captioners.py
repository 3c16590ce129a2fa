"""What a caption costs: measured for all in turns, kept in the cards, read by the rule for the default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.pipeline.installed_captioners import captioner_choices
from app.pipeline.loaded_captioners import LoadedCaptioners
from app.settings import Settings
from benchmarks.captioners import Seconds, measure, table
from extractors.decoder.decoder import Decoder
from models.checkpoint import Speed, load_checkpoint, read_card, record_speed, save_checkpoint
from tests.app.captioners import write_all
from tests.media import write_video

pytestmark = pytest.mark.slow


def test_the_median_is_kept() -> None:
    seconds = Seconds([1.0, 9.0, 2.0], [0.5, 0.25, 0.25])
    assert seconds.median("here") == Speed(2.0, 0.25, "here")
    assert table({"slow": Speed(2.0, 0.5, ""), "quick": Speed(1.0, 0.25, "")}).splitlines()[1].split() == [
        "quick", "1.000", "0.250", "4.0", "1.250",
    ]  # fmt: skip


def test_each_captioner_is_measured_on_one_clip(root: Path, tmp_path: Path) -> None:
    weights = write_all(tmp_path / "weights", only=("g2l",))
    roster = LoadedCaptioners(Settings(weights=weights, data=root / "data", device="cpu"), "cpu")
    with Decoder() as decoder:
        found = measure(roster, decoder, write_video(tmp_path / "clip.mp4"), rounds=1)
    assert list(found) == ["ensemble", "fusion", "g2l", "stats"]
    for seconds in found.values():
        assert len(seconds.features) == len(seconds.captions) == 1
        assert min(seconds.features + seconds.captions) > 0


def test_what_was_measured_decides_who_writes(tmp_path: Path) -> None:
    weights = write_all(tmp_path / "weights", only=("g2l",))
    for name, cider, seconds in (("stats", 30.0, 62.0), ("g2l", 20.0, 1.0)):
        path = weights / f"{name}.safetensors"
        loaded = load_checkpoint(path)
        card = replace(loaded.card, scores={"70 real clips": {"cider": cider}})
        save_checkpoint(path, loaded.captioner, card)
        record_speed(path, Speed(seconds / 2, seconds / 2, "here"))
        assert read_card(path).scores == card.scores
    settings = Settings(weights=weights, data=tmp_path / "data")
    assert captioner_choices(settings).default == "g2l"
    record_speed(weights / "stats.safetensors", Speed(1.0, 1.0, "here"))
    assert captioner_choices(settings).default == "stats"
