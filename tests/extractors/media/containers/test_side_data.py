"""What stands beside the pixels turns and crops a film, and never costs it."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import Colorspace

from extractors.decoder.decoder import Decoder
from extractors.media import errors
from extractors.media.decode import decode_here
from extractors.media.request import Decoded
from tests.extractors.films import (
    remux,
    with_box,
    write_crop,
    write_dolby_vision,
    write_encrypted,
    write_jpegs,
    write_scrambled,
)
from tests.extractors.media.test_display import codes, corners
from tests.extractors.pictures import CASES, UPRIGHT_CORNERS, colour_profile, jpeg, picture
from tests.media import Picture, quarters, write_video


def in_a_child(path: Path) -> Decoded:
    with Decoder() as decoder:
        return decoder.decode(path)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["mov", "avi", "mkv"])
def test_exif_in_a_films_first_frame_turns_it(suffix: str, orientation: int, tmp_path: Path) -> None:
    frames = [jpeg(0, orientation), *(jpeg(k) for k in range(1, 5))]
    decoded = decode_here(write_jpegs(tmp_path / f"a.{suffix}", frames))
    assert decoded.video.frames == 5
    for pixels in decoded.frames.pixels:
        assert corners(pixels) == UPRIGHT_CORNERS[orientation]


def test_a_profile_in_a_films_frames_costs_nothing(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    picture(0).save(buffer, "JPEG", icc_profile=colour_profile(), comment=b"hello")
    decoded = in_a_child(write_jpegs(tmp_path / "a.mov", [buffer.getvalue()] * 5))
    assert (decoded.video.frames, decoded.video.frames_lost) == (5, 0)


@pytest.mark.parametrize(
    "parameters",
    [
        "max-cll=1000,400:master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(100000"
        "00,1)",
        "hdr10=1:repeat-headers=1",
        "aud=1:hrd=1:vbv-maxrate=900:vbv-bufsize=900",
    ],
)
def test_a_films_own_side_data_costs_nothing(parameters: str, tmp_path: Path) -> None:
    options = {"x265-params": f"log-level=none:{parameters}"}
    path = write_video(tmp_path / "a.mp4", frames=6, codec="libx265", options=options)
    assert corners(in_a_child(path).frames.pixels[0])[:3] == ["red", "green", "blue"]


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "webm"])
def test_a_mirrored_film_is_undone_in_each_container(suffix: str, tmp_path: Path) -> None:
    codec = "libvpx-vp9" if suffix == "webm" else "libx264"
    with av.open(str(tmp_path / f"a.{suffix}"), "w") as out:
        stream: Any = out.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.set_display_rotation(0, True, False)
        out.mux(stream.encode(av.VideoFrame.from_ndarray(quarters(0, 64, 48), format="rgb24")))
        out.mux(stream.encode())
    decoded = decode_here(tmp_path / f"a.{suffix}")
    assert corners(decoded.frames.pixels[0]) == UPRIGHT_CORNERS[2]


def framed(index: int, width: int, height: int) -> Picture:
    """The picture inside white bars of 16 pixels left and right, 24 above and 8 below."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    pixels[24 : height - 8, 16 : width - 16] = quarters(index, width - 32, height - 32)
    return pixels


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv"])
def test_a_clean_aperture_is_kept_to(suffix: str, tmp_path: Path) -> None:
    stored = write_video(tmp_path / "stored.mp4", width=96, height=80, painter=framed)
    cropped = write_crop(stored, tmp_path / "cropped.mp4", 64, 48, right=0, below=8)
    path = remux(cropped, tmp_path / f"a.{suffix}")
    decoded = in_a_child(path)
    assert (decoded.video.width, decoded.video.height) == (64, 48)
    assert corners(decoded.frames.pixels[0]) == UPRIGHT_CORNERS[1]
    assert decoded.frames.pixels[0][:, [0, -1]].max(axis=2).min() < 255


def test_a_clean_aperture_of_a_turned_film(tmp_path: Path) -> None:
    stored = write_video(tmp_path / "a.mp4", width=96, height=80, painter=framed, rotation=90)
    decoded = decode_here(write_crop(stored, tmp_path / "b.mp4", 64, 48, right=0, below=8))
    assert decoded.frames.pixels.shape[1:3] == (64, 48)
    assert corners(decoded.frames.pixels[0]) == ["green", "grey", "red", "blue"]


@pytest.mark.parametrize("size", [(0, 48), (640, 480), (64, 80)])
def test_a_clean_aperture_without_sense_is_ignored(size: tuple[int, int], tmp_path: Path) -> None:
    stored = write_video(tmp_path / "a.mp4", frames=2)
    decoded = decode_here(write_crop(stored, tmp_path / "b.mp4", *size, right=0, below=0))
    assert (decoded.video.width, decoded.video.height) == (64, 48)


def test_the_reported_clean_aperture() -> None:
    decoded = in_a_child(CASES / "clean_aperture.mp4")
    assert (decoded.video.width, decoded.video.height) == (64, 48)
    assert corners(decoded.frames.pixels[0]) == UPRIGHT_CORNERS[1]


def test_dolby_vision_with_colours_of_its_own_warns(tmp_path: Path) -> None:
    film = write_video(tmp_path / "a.mp4")
    alien = write_dolby_vision(film, tmp_path / "5.mp4", 5)
    assert codes(decode_here(alien).video) == ["dolby_vision"]
    assert codes(decode_here(remux(alien, tmp_path / "5.mkv")).video) == ["dolby_vision"]
    for profile in (4, 7, 8, 9):
        assert codes(decode_here(write_dolby_vision(film, tmp_path / "8.mp4", profile)).video) == []


def test_boxes_that_nobody_knows_cost_nothing(tmp_path: Path) -> None:
    film = write_video(tmp_path / "a.mp4", frames=2)
    assert codes(decode_here(with_box(film, tmp_path / "b.mp4", b"zzzz", bytes(40))).video) == []


def _matroska_encryption(folder: Path) -> Path:
    """ContentEncodings as Matroska has them, before the first cluster."""
    content = write_video(folder / "a.mkv").read_bytes()
    algorithm = b"\x47\xe1\x81\x05"
    encryption = b"\x50\x35" + bytes([0x80 | len(algorithm)]) + algorithm
    encoding = b"\x62\x40" + bytes([0x80 | len(encryption)]) + encryption
    box = b"\x6d\x80" + bytes([0x80 | len(encoding)]) + encoding
    path = folder / "b.mkv"
    path.write_bytes(content.replace(b"\x1f\x43\xb6\x75", box + b"\x1f\x43\xb6\x75", 1))
    return path


@pytest.mark.parametrize("kind", ["mp4", "ts", "mkv", "asf"])
def test_an_encrypted_film_is_called_so(kind: str, tmp_path: Path) -> None:
    asf = write_video(tmp_path / "film.wmv", codec="wmv2").read_bytes()
    mark = bytes.fromhex("fbb3112223bdd211b4b700a0c955fc6e")
    (tmp_path / "asf").write_bytes(asf[:400] + mark + asf[400:])
    if kind == "mp4":
        path = write_encrypted(tmp_path / "a.mp4")
    elif kind == "ts":
        path = write_scrambled(tmp_path / "a.ts")
    else:
        path = _matroska_encryption(tmp_path) if kind == "mkv" else tmp_path / kind
    with pytest.raises(errors.Encrypted, match="encrypted"):
        in_a_child(path)


@pytest.mark.parametrize("suffix", ["mp4", "ts", "mkv", "wmv"])
def test_a_clear_film_is_not_called_encrypted(suffix: str, tmp_path: Path) -> None:
    codec = "wmv2" if suffix == "wmv" else "libx264"
    assert decode_here(write_video(tmp_path / f"a.{suffix}", codec=codec)).video.frames == 30


def coloured(
    folder: Path, width: int, height: int, colours: Colorspace, tag: str | None
) -> np.ndarray[Any, Any]:
    """The colour read from a film of one colour, stored by ``colours`` and tagged so or not at all."""
    path = folder / "a.mp4"
    plain = np.full((height, width, 3), (40, 160, 90), np.uint8)
    frame = av.VideoFrame.from_ndarray(plain, format="rgb24").reformat(
        format="yuv420p", dst_colorspace=colours
    )
    frame.colorspace = 2
    with av.open(str(path), "w") as out:
        options = {"x264-params": f"colormatrix={tag or 'undef'}"}
        stream: Any = out.add_stream("libx264", rate=10, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        frame.pts, frame.time_base = 0, Fraction(1, 10)
        out.mux(stream.encode(frame))
        out.mux(stream.encode())
    pixel: np.ndarray[Any, Any] = decode_here(path).frames.pixels[0][9, 9].astype(int)
    return pixel


@pytest.mark.parametrize(
    ("width", "height", "colours", "tag"),
    [
        (1280, 720, Colorspace.ITU709, None),
        (720, 1280, Colorspace.ITU709, None),
        (1280, 720, Colorspace.ITU709, "bt709"),
        (1280, 720, Colorspace.ITU601, "smpte170m"),
        (720, 576, Colorspace.ITU601, None),
        (640, 480, Colorspace.ITU709, "bt709"),
    ],
)
def test_colours_without_a_tag_go_by_the_size(
    width: int, height: int, colours: Colorspace, tag: str | None, tmp_path: Path
) -> None:
    assert coloured(tmp_path, width, height, colours, tag) == pytest.approx([40, 160, 90], abs=4)


def test_the_track_that_is_enabled_is_the_film() -> None:
    decoded = in_a_child(CASES / "first_track_disabled.mp4")
    assert (decoded.video.width, decoded.video.height, decoded.video.frames) == (320, 240, 20)
    assert decoded.frames.pixels[0][9, 9].argmax() == 1
    assert codes(decoded.video) == ["track_chosen"]
    assert "2 picture tracks; number 2 (320 × 240)" in decoded.video.warnings[0].message


@pytest.mark.parametrize(
    ("dispositions", "chosen"),
    [((0, 1), 2), ((1, 0), 1), ((1, 1), 1), ((0, 0), 1), ((0x400, 1), 2), ((0x40000, 1), 2)],
)
def test_the_default_track_is_the_film(dispositions: tuple[int, int], chosen: int, tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mkv"), "w") as out:
        tracks: list[Any] = [out.add_stream("libx264", rate=10) for _ in dispositions]
        for number, (track, disposition) in enumerate(zip(tracks, dispositions, strict=True), start=1):
            track.width, track.height, track.pix_fmt = 64 * number, 48 * number, "yuv420p"
            track.disposition = disposition
        for number, track in enumerate(tracks, start=1):
            frame = av.VideoFrame.from_ndarray(quarters(0, 64 * number, 48 * number), format="rgb24")
            out.mux(track.encode(frame))
            out.mux(track.encode())
    assert decode_here(tmp_path / "a.mkv").video.width == 64 * chosen


@pytest.mark.parametrize(("suffix", "codec"), [("mp4", "mjpeg"), ("mkv", "mjpeg"), ("mov", "png")])
def test_a_cover_that_is_not_marked_is_not_the_film(tmp_path: Path, suffix: str, codec: str) -> None:
    """An mp4's header counts frames, that of Matroska does not."""
    with av.open(str(tmp_path / f"a.{suffix}"), "w") as out:
        cover: Any = out.add_stream(codec, rate=10)
        film: Any = out.add_stream("libx264", rate=10)
        for track, pix_fmt in ((cover, "rgb24" if codec == "png" else "yuvj420p"), (film, "yuv420p")):
            track.width, track.height, track.pix_fmt = 64, 48, pix_fmt
        for track, count in ((cover, 1), (film, 10)):
            for index in range(count):
                out.mux(track.encode(av.VideoFrame.from_ndarray(quarters(index, 64, 48), format="rgb24")))
            out.mux(track.encode())
    decoded = decode_here(tmp_path / f"a.{suffix}")
    assert (decoded.video.codec, decoded.video.frames) == ("h264", 10)
    assert codes(decoded.video) == ["track_chosen"]


@pytest.mark.parametrize("rate", [1, 10])
def test_a_film_of_jpegs_is_the_film_beside_another_track(tmp_path: Path, rate: int) -> None:
    with av.open(str(tmp_path / "a.mkv"), "w") as out:
        tracks: Any = [out.add_stream("mjpeg", rate=rate), out.add_stream("libx264", rate=rate)]
        for number, track in enumerate(tracks, 1):
            track.width, track.height = 64 * number, 48 * number
            track.pix_fmt = ("yuvj420p", "yuv420p")[number - 1]
        for index in range(6):
            for number, track in enumerate(tracks, 1):
                picture = quarters(index, 64 * number, 48 * number)
                out.mux(track.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        for track in tracks:
            out.mux(track.encode())
    video = decode_here(tmp_path / "a.mkv").video
    assert (video.codec, video.frames, video.width) == ("mjpeg", 6, 64)
