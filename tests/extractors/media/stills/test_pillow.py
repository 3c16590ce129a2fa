"""Pictures are read whole, upright and as one, whatever their files keep beside them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from extractors.decoder.decoder import Decoder
from extractors.media import errors
from extractors.media.decode import DecodeRequest, Limits, Sampling, decode_here
from extractors.media.stills.picture_format import detect_picture_format
from tests.extractors.media.test_display import codes, corners
from tests.extractors.pictures import CASES, UPRIGHT_CORNERS, colour_profile, jpeg, picture, write_turned
from tests.media import cut, write_gif, write_video


def read_as_one(path: Path, warnings: list[str] | None = None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The one picture of a file that is a still, by the way a service reads it."""
    with Decoder() as decoder:
        decoded = decoder.decode(path)
    assert decoded.video.frames == len(decoded.frames) == 1
    assert codes(decoded.video) == (warnings or ["still_image"])
    pixels: np.ndarray[Any, np.dtype[np.uint8]] = decoded.frames.pixels[0]
    height, width, _ = pixels.shape
    assert (decoded.video.width, decoded.video.height) == (width, height)
    return pixels


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff", "avif"])
def test_every_orientation_is_upright(suffix: str, orientation: int, tmp_path: Path) -> None:
    decoded = decode_here(write_turned(tmp_path / f"a.{suffix}", orientation))
    assert corners(decoded.frames.pixels[0]) == UPRIGHT_CORNERS[orientation]
    assert (decoded.video.width, decoded.video.height) == ((48, 64) if orientation > 4 else (64, 48))
    assert codes(decoded.video) == ["still_image"]


def test_a_turned_heic_is_upright() -> None:
    pixels = read_as_one(CASES / "turned5.heic")
    assert pixels.shape == (64, 48, 3)
    assert corners(pixels) == UPRIGHT_CORNERS[5]


def test_a_turned_picture_is_made_small_first(tmp_path: Path) -> None:
    path = write_turned(tmp_path / "a.png", 6)
    assert decode_here(path, DecodeRequest(short_side=24)).frames.pixels.shape == (1, 32, 24, 3)


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"\xff" * 300, b"Exif\0\0II*\0"]
)
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_damaged_exif_costs_nothing(suffix: str, exif: bytes, tmp_path: Path) -> None:
    picture().save(tmp_path / f"a.{suffix}", exif=exif, quality=95)
    assert corners(read_as_one(tmp_path / f"a.{suffix}")) == UPRIGHT_CORNERS[1]


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_is_none_is_ignored(orientation: int, tmp_path: Path) -> None:
    assert corners(read_as_one(write_turned(tmp_path / "a.jpg", orientation))) == UPRIGHT_CORNERS[1]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff", "avif"])
def test_a_colour_profile_costs_nothing(suffix: str, tmp_path: Path) -> None:
    picture().save(tmp_path / f"a.{suffix}", icc_profile=colour_profile(), quality=95)
    for _ in range(5):
        assert corners(read_as_one(tmp_path / f"a.{suffix}")) == UPRIGHT_CORNERS[1]


def test_tiles_are_put_together() -> None:
    pixels = read_as_one(CASES / "tiles.heic")
    assert pixels.shape == (192, 256, 3)
    assert corners(pixels) == UPRIGHT_CORNERS[1]
    assert corners(pixels[60:130, 90:160]) == UPRIGHT_CORNERS[1]


def test_tiles_that_are_not_known_as_a_picture_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes((CASES / "tiles.heic").read_bytes().replace(b"heic", b"isom").replace(b"mif1", b"iso2"))
    with pytest.raises(errors.TiledImage):
        decode_here(path)


def test_a_cut_off_photo_is_not_read_in_part(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.jpg")
    for source in (CASES / "tiles.heic", tmp_path / "a.jpg"):
        with pytest.raises(errors.IncompleteFile):
            decode_here(cut(source, tmp_path / f"cut{source.suffix}", 0.6))


def test_a_stereo_pair_or_gain_map_is_one_picture(tmp_path: Path) -> None:
    for name, second in (("pair", picture(3)), ("gain", picture(3, 16, 12)), ("many", picture(3))):
        path = tmp_path / f"{name}.jpg"
        others = [second] * (3 if name == "many" else 1)
        picture().save(path, "MPO", save_all=True, append_images=others, quality=95)
        assert corners(read_as_one(path)) == UPRIGHT_CORNERS[1]


def test_what_stands_behind_a_photo_is_not_read(tmp_path: Path) -> None:
    film = write_video(tmp_path / "film.mp4").read_bytes()
    for behind in (film, jpeg(3), jpeg(3) + film, b"SEFH" * 100, b"\xff\xd8\xff"):
        (tmp_path / "a.jpg").write_bytes(jpeg() + behind)
        assert corners(read_as_one(tmp_path / "a.jpg")) == UPRIGHT_CORNERS[1]


def test_a_film_of_bare_jpegs_stays_a_film(tmp_path: Path) -> None:
    (tmp_path / "a.mjpeg").write_bytes(b"".join(jpeg(k, orientation=1) for k in range(12)))
    decoded = decode_here(tmp_path / "a.mjpeg")
    assert decoded.video.frames == 12
    assert "still_image" not in codes(decoded.video)


def test_pages_are_not_a_film(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.tiff", save_all=True, append_images=[picture(3)] * 3)
    assert corners(read_as_one(tmp_path / "a.tiff")) == UPRIGHT_CORNERS[1]


def test_a_cameras_raw_file_is_not_captioned_by_its_thumbnail(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.dng", "TIFF", tiffinfo={0x00FE: 1})
    with pytest.raises(errors.UnsupportedCodec, match="raw picture"):
        decode_here(tmp_path / "a.dng")


def test_deep_greys_keep_their_brightness(tmp_path: Path) -> None:
    Image.fromarray(np.full((48, 64), 80 << 8, np.uint16)).save(tmp_path / "a.png")
    assert (read_as_one(tmp_path / "a.png", ["still_image", "high_bit_depth"]) == 80).all()


def test_transparency_is_said(tmp_path: Path) -> None:
    picture().convert("RGBA").save(tmp_path / "a.png")
    assert corners(read_as_one(tmp_path / "a.png", ["still_image", "alpha_dropped"])) == UPRIGHT_CORNERS[1]


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "avif"])
def test_an_animation_of_one_frame_is_a_still(suffix: str, tmp_path: Path) -> None:
    decoded = decode_here(write_gif(tmp_path / f"a.{suffix}", [100]))
    assert codes(decoded.video) == ["still_image"]


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "avif"])
def test_all_frames_of_an_animation_are_there(suffix: str, tmp_path: Path) -> None:
    path = write_gif(tmp_path / f"a.{suffix}", [100, 500, 1000, 100, 300])
    decoded = decode_here(path, DecodeRequest(Sampling(fps=100)))
    assert codes(decoded.video) == []
    assert decoded.frames.pts == pytest.approx([0.0, 0.1, 0.6, 1.6, 1.7])
    greys = [int(frame[-4, -4, 0]) for frame in decoded.frames.pixels]
    assert greys == pytest.approx([0, 40, 80, 120, 160], abs=8)


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_no_delay_is_a_tenth_of_a_second(suffix: str, tmp_path: Path) -> None:
    decoded = decode_here(write_gif(tmp_path / f"a.{suffix}", [0, 0, 500]), DecodeRequest(Sampling(fps=100)))
    assert decoded.frames.pts == pytest.approx([0.0, 0.1, 0.2])
    assert decoded.video.duration == pytest.approx(0.7)


def test_an_animated_webp_is_shown_by_its_delays(tmp_path: Path) -> None:
    path = write_gif(tmp_path / "a.webp", [100, 500, 1000, 100, 300])
    decoded = decode_here(path, DecodeRequest(Sampling(fps=1), audio_rate=16000))
    assert decoded.video.container == "webp"
    assert decoded.video.frames == 5
    assert decoded.video.duration == pytest.approx(2.0)
    assert decoded.video.warnings == ()
    assert decoded.audio is None
    assert decoded.frames.pts == pytest.approx([0.0, 0.6])
    assert [int(picture[-4, -4, 0]) for picture in decoded.frames.pixels] == pytest.approx([0, 80], abs=8)


def test_the_times_of_an_animated_avif_do_not_drift(tmp_path: Path) -> None:
    """A thirtieth of a second is no whole number of milliseconds, in which Pillow tells delays."""
    path = write_video(tmp_path / "a.avif", frames=61, fps=30, codec="libsvtav1", options={"preset": "12"})
    decoded = decode_here(path, DecodeRequest(Sampling(61)))
    assert decoded.video.container == "avif"
    assert decoded.frames.pts == pytest.approx(np.arange(61) / 30, abs=6e-4)
    assert decoded.video.duration == pytest.approx(61 / 30, abs=1e-3)


def test_fill_bytes_in_a_photo_are_skipped_at_once(tmp_path: Path) -> None:
    whole = jpeg()
    (tmp_path / "a.jpg").write_bytes(whole[:2] + b"\xff" * (32 << 20) + whole[2:])
    began = time.process_time()
    assert detect_picture_format(tmp_path / "a.jpg") == "JPEG"
    assert time.process_time() - began < 1.0  # byte by byte it takes several
    (tmp_path / "b.jpg").write_bytes(whole[:2] + b"\xff" * 100)  # nothing but fill
    assert detect_picture_format(tmp_path / "b.jpg") == "JPEG"


def test_it_is_made_small(tmp_path: Path) -> None:
    path = write_gif(tmp_path / "a.webp", [100, 100], width=320, height=160)
    assert decode_here(path, DecodeRequest(short_side=80)).frames.pixels.shape == (2, 80, 160, 3)


def test_limits_hold_for_it_too(tmp_path: Path) -> None:
    path = write_gif(tmp_path / "a.webp", [1000, 1000, 1000])
    with pytest.raises(errors.TooManyPixels):
        decode_here(path, limits=Limits(pixels=3000))
    with pytest.raises(errors.TooLong):
        decode_here(path, limits=Limits(max_duration=2))
    with pytest.raises(errors.TooManyFrames):
        decode_here(path, limits=Limits(max_frames=2))
    with pytest.raises(errors.DecodeTimeout):
        decode_here(path, limits=Limits(seconds=0))


def test_a_cut_off_one_is_incomplete(tmp_path: Path) -> None:
    whole = write_gif(tmp_path / "a.webp", [100] * 20)
    with pytest.raises(errors.IncompleteFile):
        decode_here(cut(whole, tmp_path / "b.webp", 0.5))
