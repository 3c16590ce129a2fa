"""What a stream knows of words: found where it is there, not found in noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from extractors.windowing.window_extractor import WindowExtractor
from lab.streams import PAN, Task, frames_of, looking, precision, shares, vectors
from tests.training.tiny_corpus import write_corpus
from training.batches import picture_batches
from training.batches.archives import ArchiveItem
from training.recipes.demo_recipes import DEMO


def drawn(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, and words that three of their channels tell of."""
    features = np.random.default_rng(seed).normal(size=(rows, 12)).astype(np.float32)
    return features, (features[:, :3] > 0.8).astype(np.float32)


def test_a_stream_that_knows_is_told_from_one_that_does_not() -> None:
    (learned, said), (judged, truth) = drawn(300, 1), drawn(100, 2)
    task = Task([], [], said, truth)
    noise = np.random.default_rng(3).normal(size=(400, 900)).astype(np.float32)
    knowing, knowing_nothing = (learned, judged), (noise[:300], noise[300:])
    assert precision(task, [knowing]) > 85
    assert precision(task, [knowing_nothing]) < 40
    assert precision(task, [knowing, knowing_nothing]) == pytest.approx(precision(task, [knowing]), abs=10)


def test_a_words_share_is_of_the_captions() -> None:
    items = [
        ArchiveItem("a", ("a.png",), ("A dog, a dog!", "two cats"), "train"),
        ArchiveItem("b", ("b.png",), ("cats",), "train"),
    ]
    assert shares(items, ["dog", "cats", "bird"]).tolist() == [[0.5, 0.5, 0], [0, 1, 0]]


def test_a_pan_crosses_the_picture_and_a_still_is_shown_whole() -> None:
    y, x = np.mgrid[:100, :200]
    picture = np.stack([x, y, y], 2).astype(np.uint8)
    assert np.array_equal(frames_of(picture, 1).pixels, picture[None])
    pan = frames_of(picture, PAN)
    assert pan.pixels.shape == (PAN, 100, 200, 3)
    assert pan.duration == pytest.approx(PAN / 25)
    left, right = pan.pixels[0, 50, :, 0], pan.pixels[-1, 50, :, 0]
    assert (left.min(), left.max()) == (0, pytest.approx(159, abs=1))
    assert (right.min(), right.max()) == (pytest.approx(40, abs=1), 199)


def test_pictures_of_a_set_become_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, captions = write_corpus(tmp_path, 12)
    monkeypatch.setattr(picture_batches, "SETS", ((archive.name, captions.name),))
    monkeypatch.setattr("lab.streams.SETS", ((archive.name, captions.name),))
    monkeypatch.setattr("lab.streams.SELECTION_SET", "")
    monkeypatch.setattr("lab.streams.COMMON", 0)
    monkeypatch.setattr("lab.streams.DEMO", DEMO.model_copy(update={"held_out": 4}))
    task = Task.of(tmp_path, 6)
    assert (len(task.learned), len(task.judged)) == (6, 4)
    assert not {item.id for item in task.learned} & {item.id for item in task.judged}
    assert task.said.shape[1] == task.truth.shape[1] > 2
    extractor = looking("efficientnet-lite2")
    found = vectors(extractor, archive, task.judged)
    assert found.shape == (4, 1280)
    assert isinstance(extractor, WindowExtractor)
    assert np.abs(found[0] - found[1]).max() > 0.01
