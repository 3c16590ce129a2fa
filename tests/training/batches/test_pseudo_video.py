"""Shots, distractors, and where the true one stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest, chisquare

from lab.pictures.picture_features import (
    MIRRORED,
    PAN_END,
    PAN_MIDDLE,
    PAN_START,
    VIEWS,
    WHOLE,
    PictureStreams,
)
from lab.pictures.pseudo_video import (
    PATHS,
    Pictures,
    Sample,
    Shots,
    draw_sample,
    sample_shot,
    sample_whole,
    stack_samples,
)

ROWS = 6
ALPHA = 1e-4  # of every statistical test here; the seeds are fixed, so a pass stays a pass


def pictures(*rows: int) -> Pictures:
    """Features that say which row and view they are: values[…] = 10 · row + view."""
    grid = 10 * np.arange(ROWS)[:, None, None, None] + np.arange(VIEWS)[None, :, None, None]
    cells = np.broadcast_to(grid, (ROWS, VIEWS, 2, 3)).astype(np.float16)
    return Pictures(PictureStreams({"grid": cells, "wide": cells[..., :1, :]}, {}), rows)


def rows_and_views(values: Mapping[str, NDArray[np.float16]]) -> list[tuple[int, int]]:
    """They are the same in every stream."""
    found, wide = ([divmod(int(value), 10) for value in values[name][:, 0, 0]] for name in ("grid", "wide"))
    assert found == wide
    return found


OTHERS = [pictures(1), pictures(2), pictures(3)]
EVEN = (1.0,) * 8
ALWAYS = Shots(EVEN, distractors=1.0)


def draw(steps: int, shots: Shots, count: int) -> list[Sample]:
    rng = np.random.default_rng(11)
    return [draw_sample(pictures(0), OTHERS, steps, shots, rng) for _ in range(count)]


def test_true_steps_show_the_captioned_picture_and_only_they_do() -> None:
    for steps in range(1, 9):
        for drawn in draw(steps, Shots(EVEN), 50):
            assert len(drawn.values["grid"]) == len(drawn.true) == steps
            shown = [row == 0 for row, _ in rows_and_views(drawn.values)]
            assert shown == drawn.true.tolist()
            assert drawn.true.any()
            assert (np.diff(np.flatnonzero(drawn.true)) == 1).all()


@pytest.mark.parametrize("steps", [2, 5, 8])
def test_the_true_shots_place_is_uniform(steps: int) -> None:
    """For every length of the true shot each possible first step is equally likely, and so are lengths."""
    firsts: dict[int, Counter[int]] = {length: Counter() for length in range(1, steps)}
    for drawn in draw(steps, ALWAYS, 2000):
        at = np.flatnonzero(drawn.true)
        firsts[len(at)][int(at[0])] += 1
    for length, counts in firsts.items():
        places = steps - length + 1
        assert set(counts) == set(range(places))
        assert chisquare([counts[i] for i in range(places)]).pvalue > ALPHA
    lengths = [counts.total() for counts in firsts.values()]
    assert len(lengths) == 1 or chisquare(lengths).pvalue > ALPHA


def test_a_biased_place_would_be_noticed() -> None:
    """The same count with the true shot one and a half times as often first."""
    assert chisquare([1500, 1000, 1000]).pvalue < ALPHA


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_share_of_samples_with_distractors(share: float) -> None:
    mixed = sum(not drawn.true.all() for drawn in draw(4, Shots(EVEN, distractors=share), 2000))
    assert binomtest(mixed, 2000, share).pvalue > ALPHA
    assert share not in (0, 1) or mixed == 2000 * share


def test_a_still_has_no_room_for_distractors() -> None:
    assert all(drawn.true.all() for drawn in draw(1, ALWAYS, 50))


def test_lengths_follow_their_odds() -> None:
    odds = (0.5, 0.25, 0.0, 0.25)
    rng = np.random.default_rng(5)
    counts = Counter(Shots(lengths=odds).draw_length(rng) for _ in range(2000))
    assert set(counts) == {1, 2, 4}
    assert chisquare([counts[1], counts[2], counts[4]], [1000, 500, 500]).pvalue > ALPHA


def test_a_shot_walks_one_path_of_views_from_end_to_end() -> None:
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(400):
        views = tuple(view for _, view in rows_and_views(sample_shot(pictures(4), 3, rng)))
        seen.add(views)
        assert views in {
            (WHOLE,) * 3,
            (MIRRORED,) * 3,
            (PAN_START, PAN_MIDDLE, PAN_END),
            (PAN_END, PAN_MIDDLE, PAN_START),
            (WHOLE, WHOLE, PAN_MIDDLE),
            (PAN_MIDDLE, PAN_MIDDLE, WHOLE),
        }
    assert len(seen) == len(PATHS)


def test_a_stream_of_two_views_shows_the_whole_or_its_mirror() -> None:
    """Then the other streams do too: a path that one lacks is none's."""
    rng = np.random.default_rng(2)
    full = pictures(4)
    two = PictureStreams({**full.cache.streams, "wide": full.cache.streams["wide"][:, :2]}, {})
    drawn = [rows_and_views(sample_shot(Pictures(two, (4,)), 3, rng)) for _ in range(200)]
    views = Counter(tuple(view for _, view in one) for one in drawn)
    assert views.keys() == {(WHOLE,) * 3, (MIRRORED,) * 3}
    assert binomtest(views[(WHOLE,) * 3], 200, 2 / 3).pvalue > ALPHA


def test_whole_is_every_frame_once() -> None:
    stills = sample_whole(pictures(3, 1, 4))
    assert rows_and_views(stills.values) == [(3, WHOLE), (1, WHOLE), (4, WHOLE)]
    assert stills.true.tolist() == [True] * 3


def test_a_videos_frames_run_in_order() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        rows = [row for row, _ in rows_and_views(sample_shot(pictures(1, 3, 5), 5, rng))]
        assert rows == sorted(rows)
        assert (rows[0], rows[-1]) == (1, 5)


def test_a_batch_lasts_one_second_a_step() -> None:
    batches = stack_samples(draw(3, ALWAYS, 4))
    assert batches["wide"].values.shape == (4, 3, 1, 3)
    batch = batches["grid"]
    assert batch.values.shape == (4, 3, 2, 3)
    assert batch.values.dtype == torch.float32
    assert batch.times[1].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert torch.equal(batch.frame_mask, batch.values.ne(0).flatten(2).any(2))
    assert batch.region_mask.shape == (4, 3, 2)


def test_places_behind_a_pictures_last_box_are_masked() -> None:
    boxes = np.ones((2, 3, 4), np.float16)
    boxes[0, 1:], boxes[1] = 0, 0
    (batch,) = stack_samples([Sample({"boxes": boxes}, np.ones(2, bool))]).values()
    assert batch.region_mask.tolist() == [[[True, False, False], [False] * 3]]
    assert batch.frame_mask.tolist() == [[True, False]]
