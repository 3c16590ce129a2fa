"""What all extractors of windows share: cutting, padding, batching, times, with a network of one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Frames, StreamSpec
from extractors.windowing.window_extractor import WindowExtractor, describe_windows
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows
from tests.extractors.moving import moving


class Means(WindowExtractor):
    """Says of a window the mean colour of each of its frames; keeps what it was asked."""

    name = "means"
    spec = StreamSpec("means", "none", "every second row and column")
    width = 3
    short_side = None
    device = torch.device("cpu")

    def __init__(self, windows: Windows, batch: int = 4) -> None:
        self.windows, self.batch = windows, batch
        self.prepared = 0
        self.batches: list[tuple[int, ...]] = []

    def prepare(self, frames: Tensor) -> Tensor:
        self.prepared += len(frames)
        return frames[:, ::2, ::2]

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        self.batches.append(tuple(stacks.shape[:4]))
        colours = stacks.float().mean((2, 3))
        return {"means": WindowRows(colours.mean(1)), "means_grid": WindowRows(colours)}


def colours(video: Frames) -> Tensor:
    """(T, 3) of the frames as Means prepares them."""
    return torch.from_numpy(video.pixels[:, ::2, ::2].copy()).float().mean((1, 2))


def test_each_row_is_said_of_its_own_frames() -> None:
    video = moving(10, 24, 32)
    (streams,) = Means(Windows(stack_size=4, step_size=2)).extract([video])
    each = colours(video)
    wanted = torch.stack([each[begin : begin + 4] for begin in (0, 2, 4, 6)])
    torch.testing.assert_close(streams["means_grid"].values, wanted)
    torch.testing.assert_close(streams["means"].values, wanted.mean(1))
    np.testing.assert_allclose(streams["means"].start, [0, 0.2, 0.4, 0.6])
    np.testing.assert_allclose(streams["means"].end, [0.4, 0.6, 0.8, 1.0])
    assert streams["means"].mask is not None
    assert streams["means"].mask.all()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_last_frame_is_repeated_to_fill_a_window_and_the_row_is_masked(count: int) -> None:
    video = moving(count, 24, 32)
    (streams,) = Means(Windows(stack_size=4, step_size=4)).extract([video])
    each = colours(video)
    begin = (count - 1) // 4 * 4
    padded = each[[min(begin + place, count - 1) for place in range(4)]]
    torch.testing.assert_close(streams["means_grid"].values[-1], padded)
    mask = streams["means"].mask
    assert mask is not None
    assert mask.tolist() == [True] * (count // 4) + [False]
    assert streams["means"].end[-1] == video.duration


def test_windows_that_share_frames_have_them_prepared_once() -> None:
    extractor = Means(Windows(stack_size=8, step_size=1))
    extractor.extract([moving(12, 24, 32)])
    assert extractor.prepared == 12


def test_videos_are_batched_together_and_keep_their_rows() -> None:
    """Lengths differ, so that batches end inside videos and some windows are padded; one size is another."""
    windows = Windows(stack_size=4, step_size=4)
    videos = [
        moving(13, 24, 32),
        moving(3, 24, 32, seed=1),
        moving(9, 40, 20, seed=2),
        moving(1, 24, 32, seed=3),
    ]
    together = Means(windows)
    for video, streams in zip(videos, together.extract(videos), strict=True):
        (alone,) = Means(windows).extract([video])
        for name, stream in streams.items():
            torch.testing.assert_close(stream.values, alone[name].values, atol=0, rtol=0)
            np.testing.assert_array_equal(stream.start, alone[name].start)
            assert stream.mask is not None
            mask = alone[name].mask
            assert mask is not None
            assert torch.equal(stream.mask, mask)
    assert together.batches == [(4, 4, 12, 16), (1, 4, 12, 16), (3, 4, 20, 10), (1, 4, 12, 16)]


def test_no_videos_give_no_streams() -> None:
    assert Means(Windows()).extract([]) == []


def test_frames_that_come_unevenly_are_taken_by_their_times() -> None:
    """Ten ticks a second: the frame on screen at each, however often there is a new one."""
    steady = moving(4, 24, 32)
    uneven = Frames(steady.pixels, np.array([0.0, 0.1, 0.5, 0.6]), 1.0)
    (streams,) = Means(Windows(stack_size=10, step_size=10, extraction_fps=10)).extract([uneven])
    torch.testing.assert_close(
        streams["means_grid"].values[0], colours(steady)[[0, 1, 1, 1, 1, 2, 3, 3, 3, 3]]
    )


def test_how_a_video_is_cut_is_said() -> None:
    assert describe_windows(Windows(16, 8, extraction_fps=25)) == "stack_size 16, step_size 8, 25 fps"
    assert describe_windows(Windows(1, 1)) == "stack_size 1, step_size 1, every frame"
    assert describe_windows(Windows(extraction_total=20)) == "stack_size 1, step_size 1, extraction_total 20"
