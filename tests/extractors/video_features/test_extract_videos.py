"""One decode for all extractors, on the inputs at which the public ones fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from extractors.decoder.decoder import Decoder
from extractors.extractor import AnyExtractor
from extractors.features import Stream
from extractors.media import errors
from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest
from extractors.video_features.extract_videos import ExtractedVideo, extract_video, extract_videos
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Sampling, Windows
from tests.extractors.media.test_decode import spoil
from tests.extractors.plain_extractors import Loudness, Means, Numbers, Sum
from tests.media import Picture, numbered, write_video

ROOT = Path(__file__).resolve().parents[3]
FOURS = Windows(stack_size=4, step_size=4, most=1000)


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder() as decoder:
        yield decoder


def in_time(described: ExtractedVideo) -> None:
    """Every row has its seconds, within the video, and every stream begins and ends with it."""
    for stream in described.streams.values():
        assert len(stream.start) == len(stream.end) == len(stream.values) > 0
        assert (stream.start < stream.end).all()
        assert (np.diff(stream.start) > 0).all()
        assert stream.start[0] == 0
        assert stream.end[-1] == pytest.approx(described.video.duration)


def rows(stream: Stream) -> list[list[int]]:
    found: list[list[int]] = stream.values.int().tolist()
    return found


def real(stream: Stream) -> list[bool]:
    assert stream.mask is not None
    found: list[bool] = stream.mask.tolist()
    return found


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5])
def test_a_clip_of_any_length_has_rows_and_loses_no_frame(
    decoder: Decoder, tmp_path: Path, frames: int
) -> None:
    path = write_video(tmp_path / "a.mp4", frames=frames, painter=numbered)
    described = extract_video(decoder, path, [Numbers(FOURS)])
    in_time(described)
    last = [[0, 1, 2, 3], [4, 4, 4, 4]] if frames == 5 else [[*range(frames), *[frames - 1] * (4 - frames)]]
    assert rows(described.streams["numbers"]) == last
    assert real(described.streams["numbers"]) == ([True, False] if frames == 5 else [frames == 4])
    assert described.sampled == pytest.approx(np.arange(frames) / 10)


def test_frames_that_come_unevenly_are_taken_by_time(decoder: Decoder, tmp_path: Path) -> None:
    times = [0.0, 0.04, 0.5, 0.54, 2.0, 2.04, 3.0]
    path = write_video(tmp_path / "a.mp4", frames=7, pts=times, painter=numbered)
    described = extract_video(decoder, path, [Numbers(Windows(extraction_fps=2))])
    in_time(described)
    # on screen at 0, 0.5, 1.0, … seconds
    assert rows(described.streams["numbers"]) == [[0], [2], [3], [3], [4], [5], [6]]
    assert described.streams["numbers"].start == pytest.approx(np.arange(7) / 2)


def test_two_frames_a_second_feed_a_network_that_wants_ten(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=4, fps=2, painter=numbered)
    windows = Windows(stack_size=5, step_size=5, extraction_fps=10)
    described = extract_video(decoder, path, [Numbers(windows)])
    in_time(described)
    assert rows(described.streams["numbers"]) == [[0] * 5, [1] * 5, [2] * 5, [3] * 5]
    assert described.streams["numbers"].start == pytest.approx([0, 0.5, 1, 1.5])
    assert all(real(described.streams["numbers"]))


def test_odd_sizes_pass_whole(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(
        tmp_path / "a.mkv", frames=6, width=101, height=57, codec="ffv1", pix_fmt="bgr0", painter=numbered
    )
    extractor = Numbers(FOURS)
    described = extract_video(decoder, path, [extractor])
    assert extractor.sizes == {(57, 101)}
    assert rows(described.streams["numbers"]) == [[0, 1, 2, 3], [4, 5, 5, 5]]


def lying(number: int, width: int, height: int) -> Picture:
    """A number drawn so that it stands upright when the frame is turned by 90 degrees."""
    return np.ascontiguousarray(np.rot90(numbered(number, height, width), -1))


def test_a_phone_held_upright_is_seen_upright(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=8, width=96, height=48, painter=lying, rotation=90)
    extractor = Numbers(FOURS)
    described = extract_video(decoder, path, [extractor])
    assert extractor.sizes == {(96, 48)}
    assert (described.video.width, described.video.height) == (48, 96)
    assert rows(described.streams["numbers"]) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_portrait_with_wide_pixels_is_seen_as_displayed(decoder: Decoder, tmp_path: Path) -> None:
    aspect = Fraction(2)
    path = write_video(
        tmp_path / "a.mp4", frames=4, width=48, height=128, sample_aspect=aspect, painter=numbered
    )
    extractor = Numbers(FOURS)
    assert rows(extract_video(decoder, path, [extractor]).streams["numbers"]) == [[0, 1, 2, 3]]
    assert extractor.sizes == {(128, 96)}


def test_a_film_that_stands_still_has_the_same_row_all_along(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=30, painter=lambda index, *size: numbered(77, *size))
    described = extract_video(decoder, path, [Numbers(FOURS)])
    in_time(described)
    assert rows(described.streams["numbers"]) == [[77] * 4] * 8


def test_a_picture_is_a_film_of_one_frame(decoder: Decoder, tmp_path: Path) -> None:
    Image.fromarray(numbered(5, 64, 48)).save(tmp_path / "a.png")
    described = extract_video(decoder, tmp_path / "a.png", [Numbers(FOURS), Loudness()])
    in_time(described)
    assert rows(described.streams["numbers"]) == [[5] * 4]
    assert real(described.streams["loudness"]) == [False]


STEREO = {"audio_codec": "mp3", "audio_rate": 44100, "audio_layout": "stereo"}
SURROUND = {"audio_codec": "ac3", "audio_rate": 48000, "audio_layout": "5.1"}


@pytest.mark.parametrize(
    ("sound", "heard"),
    [
        ({}, False),
        ({"audio_seconds": 3.0}, True),
        ({"audio_seconds": 0.2}, True),
        ({"audio_seconds": 3.0, **STEREO}, True),
        ({"audio_seconds": 3.0, **SURROUND}, True),
    ],
    ids=["none", "whole", "0.2 s", "mp3", "5.1"],
)
def test_sound_of_any_kind_or_none_lines_up_with_the_pictures(
    decoder: Decoder, tmp_path: Path, sound: dict[str, Any], heard: bool
) -> None:
    path = write_video(tmp_path / "a.mp4", frames=30, painter=numbered, **sound)
    tens = Windows(stack_size=10, step_size=10)
    described = extract_video(decoder, path, [Loudness(), Numbers(tens)])
    in_time(described)
    pictures, loudness = described.streams["numbers"], described.streams["loudness"]
    assert loudness.start == pytest.approx(pictures.start, abs=0.01)
    assert loudness.end == pytest.approx(pictures.end, abs=0.01)
    assert real(loudness) == [heard] * 3
    loud = (loudness.values[:, 0] > 0.02).tolist()
    assert loud == {None: [False] * 3, 0.2: [True, False, False], 3.0: [True] * 3}[sound.get("audio_seconds")]


def test_all_look_at_one_decode_each_in_its_way(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=50, width=96, height=64, painter=numbered, audio_seconds=5)
    extractors: list[AnyExtractor] = [
        Sum("all", "sum", "slow"),
        Sum("sum", "fours", "loudness"),
        Numbers(FOURS, name="fours", batch=5),
        Numbers(Windows(extraction_fps=1), name="slow", short_side=32),
        Numbers(Windows(stack_size=2, step_size=2, extraction_total=6), name="six", batch=1),
        Loudness(),
    ]
    described = extract_video(decoder, path, extractors)
    streams = described.streams
    assert set(streams) == {"all", "sum", "fours", "slow", "six", "loudness"}
    in_time(
        replace(described, streams={name: streams[name] for name in ("fours", "slow", "six", "loudness")})
    )
    assert rows(streams["slow"]) == [[0], [10], [20], [30], [40]]
    assert rows(streams["six"]) == [[4, 12], [20, 29], [37, 45]]
    assert rows(streams["fours"])[-1] == [48, 49, 49, 49]
    total = streams["fours"].values.sum() + streams["loudness"].values.sum()
    assert streams["sum"].values.item() == pytest.approx(total.item())
    assert streams["all"].values.item() == pytest.approx(total.item() + 100)


def test_nobody_sees_other_pixels_for_the_company(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=20, width=160, height=120)
    small, large = Means(FOURS, name="small", short_side=32), Means(FOURS, name="large")
    alone = extract_video(decoder, path, [small]).streams["small"]
    together = extract_video(decoder, path, [large, small]).streams["small"]
    assert torch.equal(alone.values, together.values)
    assert small.sizes == {(32, 43)}
    assert large.sizes == {(120, 160)}


def test_frames_in_memory_give_the_same_rows(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=33, width=64, height=48)
    extractor = Means(Windows(stack_size=8, step_size=3), short_side=48)
    streamed = extract_video(decoder, path, [extractor]).streams["numbers"]
    frames = decode_here(path, DecodeRequest(Sampling(fps=10), short_side=48)).frames
    whole = extractor.extract([frames])[0]["numbers"]
    assert torch.equal(streamed.values, whole.values)
    assert streamed.start == pytest.approx(whole.start)
    assert streamed.end == pytest.approx(whole.end)
    assert real(streamed) == real(whole)


def test_one_bad_packet_costs_one_frame_and_no_row(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mov", codec="mjpeg", pix_fmt="yuvj420p", frames=40, painter=numbered)
    extractor = Numbers(replace(FOURS, extraction_fps=10))
    described = extract_video(decoder, spoil(path, [21]), [extractor])
    in_time(described)
    whole = [[4 * row + frame for frame in range(4)] for row in range(10)]
    whole[5][1] = 20  # the frame before stays on screen
    assert rows(described.streams["numbers"]) == whole
    assert described.video.frames_lost == 1
    assert 2.1 not in described.sampled.round(6)


def test_several_files_in_turn_share_batches_and_one_bad_file_fails_alone(tmp_path: Path) -> None:
    paths = []
    for place, frames in enumerate((6, 3, 9)):
        path = tmp_path / f"{place}.mp4"
        paths.append(write_video(path, frames=frames, painter=numbered))
    (tmp_path / "page.mp4").write_text("<html><body>Not found</body></html>")
    paths.insert(1, tmp_path / "page.mp4")
    extractor = Numbers(FOURS, batch=4)
    with Decoder() as first, Decoder() as second:
        found = list(extract_videos([first, second], paths, [extractor]))
    assert [path for path, _ in found] == paths
    assert isinstance(found[1][1], errors.NotAVideo)
    good = [outcome for _, outcome in found if isinstance(outcome, ExtractedVideo)]
    assert [rows(one.streams["numbers"])[-1] for one in good] == [[4, 5, 5, 5], [0, 1, 2, 2], [8, 8, 8, 8]]
    assert extractor.batches == [4, 2]


class Choosy(Means):
    """A network that a size of frame is too much for."""

    def prepare(self, frames: Tensor) -> Tensor:
        if frames.shape[1] > 100:
            raise RuntimeError("frames too tall")
        return super().prepare(frames)

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        if (stacks.float().mean((1, 2, 3, 4)) > 250).any():
            raise RuntimeError("frames too bright")
        return super().extract_windows(stacks)


def white(number: int, width: int, height: int) -> Picture:
    return np.full((height, width, 3), 255, np.uint8)


def test_what_a_network_cannot_do_fails_that_file_alone(decoder: Decoder, tmp_path: Path) -> None:
    paths = [
        write_video(tmp_path / "good.mp4", frames=5),
        write_video(tmp_path / "bright.mp4", frames=5, painter=white),
        write_video(tmp_path / "tall.mp4", frames=40, height=120),
        write_video(tmp_path / "also-good.mp4", frames=5),
    ]
    found = dict(extract_videos([decoder], paths, [Choosy(FOURS, batch=8)]))
    assert [str(outcome) for outcome in found.values() if isinstance(outcome, Exception)] == [
        "frames too bright",
        "frames too tall",
    ]
    assert isinstance(found[paths[0]], ExtractedVideo)
    assert isinstance(found[paths[3]], ExtractedVideo)


LONG = """
import resource, sys
from pathlib import Path
from extractors.decoder.decoder import Decoder
from extractors.video_features.extract_videos import extract_video
from extractors.windows import Windows
from tests.extractors.plain_extractors import Means

with Decoder() as decoder:
    described = extract_video(decoder, sys.argv[1], [Means(Windows(16, 16, most=100_000))])
    status = Path(f"/proc/{decoder.pid}/status").read_text().splitlines()
print(len(described.streams["numbers"]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def test_twenty_minutes_take_the_memory_of_two(tmp_path: Path) -> None:
    windows, peaks = [], []
    for minutes in (2, 20):
        path = tmp_path / f"{minutes}.mp4"
        write_video(path, frames=300 * minutes, fps=5, width=128, height=96, codec="mpeg4")
        done = subprocess.run(
            [sys.executable, "-c", LONG, str(path)], cwd=ROOT, capture_output=True, check=True, text=True
        )
        count, *peak = map(int, done.stdout.split())
        windows.append(count)
        peaks.append(peak)
    assert windows == [38, 375]
    # all frames of the longer one would be 221 MB
    growth = np.subtract(peaks[1], peaks[0])
    assert growth.max() < 50_000


def test_extractors_that_do_not_make_a_whole_are_refused(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=3)
    with pytest.raises(ValueError, match="no extractor"):
        extract_video(decoder, path, [])
    with pytest.raises(ValueError, match="given twice: numbers"):
        extract_video(decoder, path, [Numbers(), Means()])
    with pytest.raises(ValueError, match="sum needs loudness, which no extractor gives"):
        extract_video(decoder, path, [Numbers(), Sum("sum", "numbers", "loudness")])
