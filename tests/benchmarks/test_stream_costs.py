"""What streams cost: each step of each clip is counted once, and the sum is of all."""

from __future__ import annotations

from pathlib import Path

from benchmarks.stream_costs import measure
from models.feature_sources.feature_source import ExtractorPool, FeatureSource
from models.stream_set import DEMO
from tests.media import write_video


def test_every_step_is_counted_for_every_clip(root: Path, tmp_path: Path) -> None:
    source = FeatureSource(DEMO, pool=ExtractorPool(cache=root / "data" / "cache"))
    clips = [write_video(tmp_path / f"{name}.mp4", frames=10) for name in "abc"]
    costs = measure(source, clips, together=2)
    assert {step: len(seconds) for step, seconds in costs.seconds.items()} == dict.fromkeys(
        ("decode", "efficientnet-lite2", "streams of streams"), 3
    )
    means = costs.means()
    assert means["efficientnet-lite2"] > 0
    assert means["all"] == sum(seconds for step, seconds in means.items() if step != "all")
