"""Frames as a viewer sees them: upright, at display aspect, 8-bit RGB."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import av
import numpy as np
import pytest

from extractors.media.containers.sample_descriptions import read_first_aspect
from extractors.media.decode import DecodeRequest, decode_here
from extractors.media.request import Video
from tests.extractors.films import add_description
from tests.media import quarters, write_still, write_video

Shape: TypeAlias = tuple[tuple[int, int], Fraction | int | None]

QUIET = {"libx265": {"x265-params": "log-level=0"}}
CORNERS = {(255, 0, 0): "red", (0, 255, 0): "green", (0, 0, 255): "blue"}


def corners(picture: np.ndarray[Any, np.dtype[np.uint8]]) -> list[str]:
    """Colours of the corners: top left, top right, bottom left, bottom right."""
    found = []
    for row, column in ((4, 4), (4, -5), (-5, 4), (-5, -5)):
        pixel = picture[row, column].astype(int)
        near = [name for colour, name in CORNERS.items() if np.abs(pixel - colour).max() < 40]
        found.append(near[0] if near else "grey")
    return found


def codes(video: Video) -> list[str]:
    return [warning.code for warning in video.warnings]


@pytest.mark.parametrize(
    ("rotation", "seen"),
    [
        (0, ["red", "green", "blue", "grey"]),
        (90, ["green", "grey", "red", "blue"]),
        (180, ["grey", "blue", "green", "red"]),
        (270, ["blue", "red", "grey", "green"]),
        (-90, ["blue", "red", "grey", "green"]),
        (88, ["green", "grey", "red", "blue"]),
    ],
)
def test_every_rotation_is_undone(rotation: float, seen: list[str], tmp_path: Path) -> None:
    decoded = decode_here(write_video(tmp_path / "a.mp4", frames=2, rotation=rotation))
    assert corners(decoded.frames.pixels[0]) == seen
    assert decoded.video.rotation == round(rotation / 90) % 4 * 90


@pytest.mark.parametrize(
    ("horizontal", "vertical", "seen"),
    [(True, False, ["green", "red", "grey", "blue"]), (False, True, ["blue", "grey", "red", "green"])],
)
def test_mirroring_is_applied(horizontal: bool, vertical: bool, seen: list[str], tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as out:
        stream: Any = out.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.set_display_rotation(0, horizontal, vertical)
        out.mux(stream.encode(av.VideoFrame.from_ndarray(quarters(0, 64, 48), format="rgb24")))
        out.mux(stream.encode())
    assert corners(decode_here(tmp_path / "a.mp4").frames.pixels[0]) == seen


@pytest.mark.parametrize(
    ("aspect", "size"),
    [(Fraction(16, 11), (93, 48)), (Fraction(1, 2), (64, 96)), (Fraction(1000), (64, 48))],
)
def test_pixels_are_shown_square(aspect: Fraction, size: tuple[int, int], tmp_path: Path) -> None:
    decoded = decode_here(write_video(tmp_path / "a.mkv", frames=1, sample_aspect=aspect))
    assert (decoded.video.width, decoded.video.height) == size
    assert decoded.frames.pixels.shape[1:3] == (size[1], size[0])


def test_aspect_and_rotation_together(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=1, sample_aspect=Fraction(2), rotation=90)
    decoded = decode_here(path, DecodeRequest(short_side=24))
    assert (decoded.video.width, decoded.video.height) == (48, 128)
    assert decoded.frames.pixels.shape == (1, 64, 24, 3)


@pytest.mark.parametrize(
    ("name", "how", "expected"),
    [
        ("plain.mp4", {}, []),
        ("10-bit.mp4", {"pix_fmt": "yuv420p10le"}, ["high_bit_depth"]),
        (
            "pq.mp4",
            {"pix_fmt": "yuv420p10le", "options": {"x264-params": "transfer=smpte2084:colorprim=bt2020"}},
            ["hdr", "high_bit_depth"],
        ),
        ("interlaced.mp4", {"options": {"x264-params": "interlaced=1"}}, ["interlaced"]),
        ("alpha.mkv", {"codec": "ffv1", "pix_fmt": "yuva420p"}, ["alpha_dropped"]),
    ],
)
def test_what_is_lost_is_said(name: str, how: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    decoded = decode_here(write_video(tmp_path / name, frames=12, **how))
    assert codes(decoded.video) == expected
    assert corners(decoded.frames.pixels[0])[:3] == ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("codec", "pix_fmt"),
    [("ffv1", "yuv420p"), ("ffv1", "yuv444p"), ("ffv1", "yuv422p10le"), ("mjpeg", "yuvj420p")],
)
def test_greys_keep_their_brightness(codec: str, pix_fmt: str, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", frames=20, codec=codec, pix_fmt=pix_fmt)
    for picture, instant in zip(*_pictures(path), strict=True):
        assert abs(int(picture[-5, -5, 0]) - 8 * round(instant * 10)) <= 3


def _pictures(path: Path) -> tuple[Any, Any]:
    frames = decode_here(path).frames
    return frames.pixels, frames.pts


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP"])
def test_a_still_is_a_film_of_one_frame(kind: str, tmp_path: Path) -> None:
    decoded = decode_here(write_still(tmp_path / "a.mp4", kind=kind))
    assert corners(decoded.frames.pixels[0])[:3] == ["red", "green", "blue"]
    assert codes(decoded.video) == ["still_image"]
    assert decoded.frames.duration == pytest.approx(0.04)
    assert decoded.frames.pts.tolist() == [0.0]


def test_a_still_may_bear_a_pictures_name(tmp_path: Path) -> None:
    assert len(decode_here(write_still(tmp_path / "photo%03d.jpg")).frames) == 1


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        (((64, 48), None), ((96, 64), None), (64, 48)),
        (((64, 48), None), ((64, 48), None), (64, 48)),
        (((64, 48), 2), ((96, 64), None), (128, 48)),
        (((64, 48), None), ((96, 64), 2), (64, 48)),
        (((96, 64), 2), ((64, 48), Fraction(1, 2)), (192, 64)),
    ],
)
def test_a_track_of_two_descriptions_has_the_first_one_s_shape(
    tmp_path: Path, codec: str, first: Shape, second: Shape, shown: tuple[int, int]
) -> None:
    one, other = (
        write_video(
            tmp_path / f"{number}.mp4", width=size[0], height=size[1], codec=codec,
            sample_aspect=None if aspect is None else Fraction(aspect), options=QUIET.get(codec),
        )
        for number, (size, aspect) in enumerate((first, second))
    )  # fmt: skip
    video = decode_here(add_description(one, other, tmp_path / "joined.mp4")).video
    assert (video.width, video.height, video.frames) == (*shown, 30)


def test_one_description_is_left_to_ffmpeg(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", sample_aspect=Fraction(2))
    assert read_first_aspect(path, 1) is None
    (tmp_path / "b.mp4").write_bytes(path.read_bytes()[:-200])
    assert read_first_aspect(tmp_path / "b.mp4", 1) is None
