"""Evidence is measured beside attention, on films of two clips, things of known places, planted signals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from app.jobs.options import CaptionOptions
from app.pipeline.loaded_captioners import LoadedCaptioners
from app.settings import Settings
from extractors.features import Stream, StreamSpec
from lab.evidence.clips import Things, list_videos, open_detector, read_clips
from lab.evidence.command import measure
from lab.evidence.curves import measure_areas
from lab.evidence.joined_clips import join_clips, place_words
from lab.evidence.pointing import name_thing, point
from models.caption import AttentionDocument
from models.combining.caption_writers import SingleWriter
from tests.app.captioners import write_all
from tests.media import write_video
from tests.models.evidence.namer import Namer, explain, film


def test_two_streams_become_one_film_of_every_second_row_of_each() -> None:
    def rows(first: int) -> Stream:
        start = np.arange(4.0)
        return Stream(torch.arange(first, first + 4)[:, None], start, start + 1, StreamSpec("", "", ""))

    joined = join_clips(rows(0), rows(10))
    assert joined.values.flatten().tolist() == [0, 2, 10, 12]
    assert joined.start.tolist() == [0, 1, 2, 3]


def test_a_word_is_found_in_the_clip_that_shows_its_thing() -> None:
    dog, cat = film(places=4, dog=range(4), cat=()), film(places=4, dog=(), cat=range(4))
    placed = list(place_words(Namer(), [dog, cat], [["the", "dog"], ["the", "cat"]]))
    assert [(each.word, each.is_own, each.evidence[1]) for each in placed] == [
        ("dog", True, True),
        ("cat", True, True),
    ]
    assert all(each.evidence[0] > 0.9 and each.attention is None for each in placed)


def test_words_name_things_in_the_singular_and_the_plural() -> None:
    named = [name_thing(word) for word in ("dog", "dogs", "couches", "woman", "runs", "bikes")]
    assert named == ["dog", "dog", "couch", "person", None, "bicycle"]


@pytest.mark.parametrize(("box", "hit"), [((0.7, 0.7, 1.0, 1.0), True), ((0.0, 0.0, 0.6, 1.0), False)])
def test_the_heaviest_cell_lies_in_the_thing_s_box_or_not(
    box: tuple[float, float, float, float], hit: bool
) -> None:
    found = explain(film(), ["the", "dog"])  # in the last cell of moment 0
    times = [[float(k), k + 1.0] for k in range(4)]
    document = AttentionDocument(words=["the", "dog"], times=times, temporal=[None, None], evidence=found)
    things = Things(np.arange(4.0), [{"dog": np.array([box])}, {}, {}, {}])
    (game,) = point(document.shown, things)
    assert game.hit == hit
    assert game.chance == pytest.approx(1 / 16 if hit else 8 / 16)


def test_deletion_falls_early_and_insertion_rises_early_by_what_the_word_needs() -> None:
    namer, weights = Namer(), np.array([0.7, 0.1, 0.1, 0.1])
    tokens = namer.vocabulary.encode(["dog"])
    (by_need,) = measure_areas(namer, film(), tokens, {0: weights})
    (by_rest,) = measure_areas(namer, film(), tokens, {0: -weights})
    assert by_need.deletion < by_rest.deletion
    assert by_need.insertion > by_rest.insertion


def test_a_captioner_is_measured_on_clips_and_what_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = LoadedCaptioners(
        Settings(weights=write_all(tmp_path / "weights", only=("stats",)), device="cpu"), "cpu"
    )
    choice = loaded.captioner_choices.resolve(CaptionOptions(captioner="stats"))
    (tmp_path / "torn.mp4").write_bytes(b"no film")
    write_video(tmp_path / "one.mp4")
    write_video(tmp_path / "two.mp4")
    clips = list(read_clips(loaded.feature_source(choice), list_videos(tmp_path), open_detector()))
    assert [clip.name for clip in clips] == ["one.mp4", "two.mp4"]
    assert "torn.mp4:" in capsys.readouterr().err
    writer = loaded.writer(choice)
    assert isinstance(writer, SingleWriter)
    lines = measure("stats", writer, clips)
    begins = "stats, 2 clips;joined;joined;pointing;pointing;evidence;attention;chance;cost".split(";")  # noqa: SIM905
    assert [line.strip().startswith(begin) for line, begin in zip(lines, begins, strict=True)] == [True] * 9
