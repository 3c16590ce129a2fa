"""Of each family and processor: one cell of a frame is painted, and the key that the token map names for that
place answers, and it alone.

The encoders are kept from mixing their tokens by hooks that take attention's output away, so that a token
sees what its own pixels show and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.features import Frames
from extractors.preprocessing.images import make_even_edges, map_to_picture
from extractors.windows import Sampling
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.load import AnyPretrainedCaptioner, load_pretrained_captioner
from models.pretrained.token_map import TokenMap, covered, grid_keys
from tests.models.pretrained import tiny_vlm
from tests.models.pretrained.attention_arrays import AttentionArrays
from tests.models.pretrained.tiny_folders import ENCODERS, write_blip, write_encoder_decoder, write_git

#: Height and width of frames: lying, standing, a square, and one that divides by nothing.
SIZES = [(96, 160), (200, 120), (128, 128), (101, 147)]
WRITERS: dict[str, Callable[[Path], Path]] = {
    "git": write_git,
    "blip": write_blip,
    **tiny_vlm.WRITERS,
    **{name: lambda folder, name=name: write_encoder_decoder(folder, name) for name in ENCODERS},  # type: ignore[misc]
}


FRAMES = 6
#: Models whose visual tokens are called images, though they are a video's.
VISUAL = {"smolvlm": "image_token_id", "internvl": "image_token_id"}


@contextmanager
def without_mixing(model: nn.Module) -> Iterator[None]:
    """While it lasts, attention adds nothing to any token."""

    def nothing(module: nn.Module, given: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (torch.zeros_like(output[0]), *output[1:])
        return torch.zeros_like(output)

    with ExitStack() as hooks:
        for module in model.modules():
            if type(module).__name__.endswith("Attention"):
                hooks.callback(module.register_forward_hook(nothing).remove)
        yield


def painted(size: tuple[int, int], frame: int, rectangle: tuple[float, ...]) -> Frames:
    """A black video of a frame a second; in one of them (-1: in none) the inner part of a rectangle (left,
    top, right, bottom) is white."""
    height, width = size
    pixels = np.zeros((FRAMES, height, width, 3), np.uint8)
    left, top, right, bottom = rectangle
    across, down = (right - left) / 4, (bottom - top) / 4
    rows = slice(round((top + down) * height), round((bottom - down) * height))
    columns = slice(round((left + across) * width), round((right - across) * width))
    if frame >= 0:
        pixels[frame, rows, columns] = 255
    return Frames(pixels, np.arange(FRAMES, dtype=np.float64), float(FRAMES))


def cell(token_map: TokenMap, row: int, column: int) -> tuple[float, ...]:
    """(left, top, right, bottom) of a cell in the whole frame, as an ``Attention`` draws it."""
    left, top, right, bottom = token_map.view
    rows = map_to_picture(make_even_edges(token_map.rows), top, bottom)
    columns = map_to_picture(make_even_edges(token_map.columns), left, right)
    return columns[column], rows[row], columns[column + 1], rows[row + 1]


def _hidden(captioner: AnyPretrainedCaptioner, video: Frames) -> tuple[Tensor, TokenMap, NDArray[np.float64]]:
    """(keys, C) as the decoder is given them, where they lie, and when the frames that were shown begin."""
    chosen = captioner._choose(video)
    encoded = captioner._encode([chosen], None)
    token_map = captioner._token_map(encoded, 0, chosen)
    if captioner.info.family == "git":
        return encoded.hidden.flatten(0, 1), token_map, chosen.starts
    if captioner.info.family == "blip":
        return encoded.memory[0], token_map, chosen.starts
    if captioner.info.family != "video_language":
        return encoded[0], token_map, chosen.starts
    (prompt,) = encoded
    visual = prompt.visual.pooler_output
    visual = torch.cat([part.reshape(-1, part.shape[-1]) for part in visual])
    hidden = torch.zeros(prompt.ids.shape[1], visual.shape[1])
    hidden[prompt.ids[0] == captioner.model.config.__dict__[VISUAL.get(captioner.name, "video_token_id")]] = (
        visual
    )
    return hidden, token_map, chosen.starts


@pytest.mark.parametrize("family", WRITERS)
def test_the_painted_cell_s_key_answers(tmp_path: Path, family: str) -> None:
    captioner = load_pretrained_captioner(WRITERS[family](tmp_path / family))
    with torch.inference_mode(), without_mixing(captioner.model):
        for place, size in enumerate(SIZES):
            before, token_map, starts = _hidden(captioner, painted(size, -1, (0, 0, 0, 0)))
            frame = int(starts[(place * 3 + 1) % len(starts)])
            row, column = (place + 1) % token_map.rows, (place * 2 + 3) % token_map.columns
            after, _, _ = _hidden(captioner, painted(size, frame, cell(token_map, row, column)))
            change = (after - before).abs().amax(1)
            moments = np.flatnonzero((starts == frame).reshape(-1, token_map.frames_each).any(1))
            keys = token_map.keys[moments, row * token_map.columns + column]
            assert change[keys].min() > 0.1 * change.max()
            assert change[np.setdiff1d(token_map.keys, keys)].max() < 0.01 * change.max()


def test_patches_that_do_not_fill_a_picture_leave_its_rim_out() -> None:
    assert covered((0.0, 0.0, 1.0, 1.0), 30, 8) == (0.0, 0.0, 0.8, 0.8)
    assert covered((0.25, 0.0, 0.75, 1.0), 20, 8) == pytest.approx((0.25, 0.0, 0.65, 0.8))


def test_keys_lie_behind_each_other() -> None:
    np.testing.assert_array_equal(grid_keys(2, 3, leading=1, each=2), [[3, 4, 5], [8, 9, 10]])


def test_weights_are_told_by_time_and_place_and_sum_to_one() -> None:
    frames = ChosenFrames(np.zeros((3, 2, 2, 3), np.uint8), np.array([0.0, 0.0, 2.0]), 4.0)
    token_map = TokenMap(grid_keys(3, 2, each=1), 1, 2)
    weights = np.array([[9, 1, 2, 9, 3, 0, 9, 0, 4.0], [9, 0, 0, 9, 0, 0, 9, 0, 0]])
    document = token_map.attention(("a", "dog"), weights, frames)
    found = AttentionArrays.of(document)
    np.testing.assert_array_equal(found.times, [[0, 2], [2, 4]])
    np.testing.assert_allclose(found.temporal, [[0.6, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(found.spatial[0], [[4 / 6, 2 / 6], [0.0, 1.0]], atol=1e-4)
    np.testing.assert_allclose(found.spatial[0].sum(1), 1, atol=1e-3)
    assert document.temporal[1] is None


def test_moments_of_two_frames_begin_with_the_first() -> None:
    video = Frames(np.zeros((4, 2, 2, 3), np.uint8), np.arange(4.0), 4.0)
    chosen = ChosenFrames.of(video, Sampling(3), multiple=2)
    assert chosen.starts.tolist() == [0, 2, 3, 3]
    times, index = chosen.moments(2)
    np.testing.assert_array_equal(times, [[0, 3], [3, 4]])
    np.testing.assert_array_equal(index, [0, 1])
