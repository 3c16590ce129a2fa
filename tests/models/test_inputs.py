"""Named inputs: what is missing, averages under masks, and rows joined by time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lab.pictures.renamed_streams import rename_streams
from models.inputs import (
    InputStream,
    average_frames,
    average_regions,
    collate,
    collate_inputs,
    deduplicate,
    find_nearest_rows,
    gather_rows,
    make_absent_stream,
)
from tests.models.tiny import (
    dual_afr_config,
    g2l_config,
    refocus_config,
    stats_config,
    stream,
    vatex_config,
    videos,
)

CPU = torch.device("cpu")
GRID, SOUND = InputStream(name="grid", width=6), InputStream(name="sound", width=3)


def test_each_name_is_kept_once_in_order() -> None:
    assert deduplicate(SOUND, None, GRID, SOUND) == (SOUND, GRID)


@pytest.mark.parametrize(
    "config", [stats_config(), g2l_config(), refocus_config(), vatex_config(), dual_afr_config()], ids=type
)
def test_a_configs_inputs_get_other_names_wherever_it_has_them(config: Any) -> None:
    given = rename_streams(config, {"grid": "other", "nothing": "x"})
    assert {each.name for each in given.streams} == {
        "other" if each.name == "grid" else each.name for each in config.streams
    }
    assert '"grid"' in config.model_dump_json()
    assert '"name":"grid"' not in given.model_dump_json()
    assert rename_streams(given, {"other": "grid"}) == config


def test_only_the_optional_stream_may_be_missing() -> None:
    heard, silent = {**videos()[0], "sound": stream(2, 1, 3, 7)}, videos()[1]
    grid, sound = collate_inputs([heard, silent], [GRID, SOUND], CPU, optional="sound")
    assert grid.frame_mask.sum(1).tolist() == [3, 1]
    assert sound.frame_mask.sum(1).tolist() == [2, 0]
    assert not average_frames(sound)[1].any()
    with pytest.raises(KeyError, match="sound"):
        collate_inputs([heard, silent], [GRID, SOUND], CPU)


def test_an_absent_stream_has_one_row_that_is_hidden() -> None:
    batch = collate([make_absent_stream(SOUND)], CPU)
    assert batch.values.shape == (1, 1, 1, 3)
    assert not batch.frame_mask.any()


def test_means_count_what_is_seen_alone() -> None:
    features = videos((3, 5))
    boxes = [features[i]["boxes"] for i in range(2)]
    batch = collate(boxes, CPU)
    frames, whole = average_regions(batch), average_frames(batch)
    for i, given in enumerate(boxes):
        assert given.mask is not None
        means = [x[seen].mean(0) for x, seen in zip(given.values, given.mask, strict=True)]
        torch.testing.assert_close(frames[i, : len(means)], torch.stack(means))
        torch.testing.assert_close(whole[i], torch.stack(means).mean(0))


def test_rows_are_joined_to_the_nearest_in_time() -> None:
    every_second = torch.arange(6.0).view(1, 6, 1) + torch.tensor([0.0, 1.0])
    slow = torch.tensor([[[0.0, 3.0], [3.0, 6.0], [0.0, 0.0]]])
    mask = torch.tensor([[True, True, False]])
    rows = find_nearest_rows(every_second, slow, mask)
    assert rows.tolist() == [[0, 0, 0, 1, 1, 1]]
    values = torch.tensor([[[1.0, 10.0], [2.0, 20.0], [9.0, 90.0]]])
    assert gather_rows(values, rows)[0, :, 1].tolist() == [10, 10, 10, 20, 20, 20]


def test_of_two_equally_near_rows_the_earlier_is_taken() -> None:
    middle = torch.tensor([[[2.0, 2.0]]])
    sides = torch.tensor([[[1.0, 1.0], [3.0, 3.0]]])
    assert find_nearest_rows(middle, sides, torch.ones(1, 2, dtype=torch.bool)).tolist() == [[0]]
