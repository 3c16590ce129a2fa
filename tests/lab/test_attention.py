"""How even weights over time are, and whether they fall on the right one of two clips, is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from app.jobs.options import CaptionOptions
from app.pipeline.loaded_captioners import LoadedCaptioners
from app.settings import Settings
from extractors.features import Stream, StreamSpec
from lab.attention import Trust, described, joined, right_mass
from models.caption import Caption, ScoredWord
from models.combining.caption_writers import SingleWriter
from tests.app.captioners import write_all
from tests.media import write_video


def test_two_streams_become_one_film_of_every_second_row_of_each() -> None:
    def rows(first: int) -> Stream:
        start = np.arange(4.0)
        return Stream(torch.arange(first, first + 4)[:, None], start, start + 1, StreamSpec("", "", ""))

    film = joined(rows(0), rows(10))
    assert film.values.flatten().tolist() == [0, 2, 10, 12]
    assert film.start.tolist() == [0, 1, 2, 3]


def test_means_quartiles_and_the_share_that_is_spread_are_told() -> None:
    assert str(Trust([0.9, 0.96, 0.98, 1.0], [0.5, 0.7])).split() == [
        "0.960", "0.915", "0.970", "0.995", "0.50", "0.60",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["stats", "dual_afr"])
def test_captioners_are_measured_on_clips_and_what_cannot_be_read_is_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roster = LoadedCaptioners(
        Settings(weights=write_all(tmp_path / "weights", only=(name,)), device="cpu"), "cpu"
    )
    choice = roster.captioner_choices.resolve(CaptionOptions(captioner=name))
    (tmp_path / "torn.mp4").write_bytes(b"no film")
    files = [write_video(tmp_path / "one.mp4"), tmp_path / "torn.mp4", write_video(tmp_path / "two.mp4")]
    videos = list(described(roster.feature_source(choice), files))
    assert len(videos) == 2
    assert "torn.mp4:" in capsys.readouterr().err
    writer = roster.writer(choice)
    assert isinstance(writer, SingleWriter)
    words = [ScoredWord(word=word, logprob=-1.0) for word in ("a", "dog", "runs")]
    told = Caption(text="a dog runs", score=-1.0, words=words)
    first = right_mass(writer, (videos[0], told), videos[1], 0)
    second = right_mass(writer, (videos[1], told), videos[0], 1)
    assert first is not None
    assert second is not None
    assert 0 < first < 1
    assert first + second == pytest.approx(1)  # the same words of the same film
