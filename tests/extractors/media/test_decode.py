"""The frames that come back are the frames that were shown, whatever the container makes of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from extractors.media import decode, errors
from extractors.media.decode import Decoded, DecodeRequest, Limits, Sampling, decode_here
from tests.media import cut, numbered, quarters, read_number, write_video

FRAMES, RATE = 120, 10
OPEN_GOP = {"x264-params": "open-gop=1:keyint=20:min-keyint=20:scenecut=0"}
X265 = {"x265-params": "keyint=25:log-level=none"}

WAYS_TO_STORE: dict[str, dict[str, Any]] = {
    "h264.mp4": {"options": {"g": "25"}},
    "one-key-frame.mp4": {"options": {"g": "999"}},
    "open-gop.mp4": {"options": OPEN_GOP},
    "open-gop.mkv": {"options": OPEN_GOP},
    "intra-refresh.mp4": {"options": {"x264-params": "intra-refresh=1:keyint=20:bframes=0"}},
    "fragments.mp4": {"options": {"g": "25"}, "container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "hevc.mp4": {"codec": "libx265", "options": X265},
    "hevc-10-bit.mkv": {"codec": "libx265", "options": X265, "pix_fmt": "yuv420p10le"},
    "vp8-hidden-frames.webm": {"codec": "libvpx", "options": {"auto-alt-ref": "1", "lag-in-frames": "16"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"g": "25", "cpu-used": "8"}},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"g": "12"}},
    "mpeg4-b-frames.avi": {"codec": "mpeg4", "options": {"g": "12", "bf": "2"}},
    "h264-b-frames.avi": {"options": {"g": "12", "bf": "2"}},
    "mpeg2.mpg": {"codec": "mpeg2video", "options": {"g": "12", "bf": "2"}, "fps": 25},
    "h264.ts": {"options": {"g": "25"}},
    "late-start.ts": {"options": {"g": "25"}, "container_options": {"output_ts_offset": "100"}},
    "h264.flv": {"options": {"g": "25"}},
    "wmv2.wmv": {"codec": "wmv2"},
    "jpegs.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "prores.mov": {"codec": "prores_ks", "pix_fmt": "yuv422p10le"},
    "numbers.gif": {"codec": "gif", "pix_fmt": "rgb8"},
}


def numbers(decoded: Decoded) -> list[int | None]:
    return [read_number(picture) for picture in decoded.frames.pixels]


def due(sampling: Sampling, duration: float, rate: float) -> list[int]:
    return sorted({int(instant * rate + 1e-6) for instant in sampling.instants(duration)})


@pytest.mark.parametrize("name", WAYS_TO_STORE)
def test_the_right_frames_come_back(name: str, tmp_path: Path) -> None:
    how = {"fps": RATE, **WAYS_TO_STORE[name]}
    path = write_video(tmp_path / name, frames=FRAMES, painter=numbered, **how)
    for sampling in (Sampling(5), Sampling(2), Sampling(fps=1.7)):
        decoded = decode_here(path, DecodeRequest(sampling))
        assert decoded.video.duration == pytest.approx(FRAMES / how["fps"], abs=2e-3)
        assert decoded.video.frames == FRAMES
        assert decoded.video.frames_lost == 0
        wanted = due(sampling, FRAMES / how["fps"], how["fps"])
        assert numbers(decoded) == wanted
        assert decoded.frames.pts == pytest.approx(np.array(wanted) / how["fps"], abs=2e-3)


def test_few_frames_of_a_long_film_are_jumped_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "read_in_order", None)
    for name in ("h264.mp4", "h264.ts", "mpeg2.mpg", "h264.mkv"):
        how = {"fps": RATE, **WAYS_TO_STORE.get(name, {"options": {"g": "25"}})}
        path = write_video(tmp_path / name, frames=FRAMES, painter=numbered, **how)
        decoded = decode_here(path, DecodeRequest(Sampling(3)))
        assert numbers(decoded) == due(Sampling(3), FRAMES / how["fps"], how["fps"]), name


def test_a_jump_that_lands_elsewhere_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a.mp4", frames=FRAMES, painter=numbered, options={"g": "25"})
    monkeypatch.setattr(
        "extractors.media.frame_reader._packets_from", lambda container, stream, key: iter(())
    )
    assert numbers(decode_here(path, DecodeRequest(Sampling(3)))) == [20, 60, 100]


def test_variable_frame_times_are_kept(tmp_path: Path) -> None:
    times = [0.0, 0.04, 0.5, 0.54, 2.0, 2.04, 3.0]
    path = write_video(tmp_path / "a.mp4", frames=7, pts=times, painter=numbered)
    decoded = decode_here(path, DecodeRequest(Sampling(fps=2)))
    assert numbers(decoded) == [0, 2, 3, 4, 5, 6]
    assert decoded.frames.pts == pytest.approx([0.0, 0.5, 0.54, 2.0, 2.04, 3.0])
    assert not decoded.video.times_estimated


def test_times_count_from_the_first_shown_frame(tmp_path: Path) -> None:
    times = [5 + 0.1 * index for index in range(20)]
    path = write_video(tmp_path / "a.mkv", frames=20, pts=times, painter=numbered)
    decoded = decode_here(path, DecodeRequest(Sampling(fps=1)))
    assert decoded.frames.pts == pytest.approx([0.0, 1.0])
    assert numbers(decoded) == [0, 10]


def test_a_bare_stream_has_estimated_times(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.h264", frames=50, fps=25, painter=numbered)
    decoded = decode_here(path, DecodeRequest(Sampling(5)))
    assert decoded.video.times_estimated
    assert [warning.code for warning in decoded.video.warnings] == ["times_estimated"]
    assert numbers(decoded) == [5, 15, 25, 35, 45]


def copy_from(source: Path, path: Path, first: float) -> Path:
    """A cut without encoding: frames before ``first`` seconds stay in the file and are hidden."""
    options = {"avoid_negative_ts": "disabled"}
    with av.open(str(source)) as film, av.open(str(path), "w", options=options) as out:
        stream = film.streams.video[0]
        copied = out.add_stream_from_template(stream)
        assert stream.time_base is not None
        shift = round(first / stream.time_base)
        for packet in film.demux(stream):
            if packet.dts is not None and packet.pts is not None:
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                packet.stream = copied
                out.mux(packet)
    return path


def test_hidden_frames_are_not_shown_nor_counted(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "a.mp4", frames=100, painter=numbered, options={"g": "50"})
    decoded = decode_here(copy_from(whole, tmp_path / "b.mp4", 2.0), DecodeRequest(Sampling(fps=2)))
    assert decoded.video.frames == 80
    assert decoded.video.frames_expected == 80
    assert decoded.video.warnings == ()
    assert numbers(decoded) == list(range(20, 100, 5))
    assert decoded.frames.pts[0] == 0


def spoil(path: Path, which: Sequence[int]) -> Path:
    """Overwrite the packets (in file order) that ``which`` names."""
    with av.open(str(path)) as film:
        places = [(packet.pos, packet.size) for packet in film.demux(video=0) if packet.size]
    content = bytearray(path.read_bytes())
    for position in which:
        start, size = places[position]
        assert start is not None
        content[start : start + size] = b"\xff" * size
    path.write_bytes(content)
    return path


def test_a_bad_packet_costs_one_picture_and_is_counted(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mov", codec="mjpeg", pix_fmt="yuvj420p", frames=50, painter=numbered)
    decoded = decode_here(spoil(path, [11, 30]), DecodeRequest(Sampling(fps=10)))
    assert decoded.video.frames_lost == 2
    assert decoded.video.frames == 48
    assert decoded.video.frames_expected == 50
    assert "frames_lost" in [warning.code for warning in decoded.video.warnings]
    assert numbers(decoded) == [index for index in range(50) if index not in (11, 30)]
    assert decoded.frames.pts == pytest.approx([index / 10 for index in range(50) if index not in (11, 30)])


def test_a_file_of_mostly_bad_packets_is_refused(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mov", codec="mjpeg", pix_fmt="yuvj420p", frames=20)
    with pytest.raises(errors.TooDamaged, match="Of 20 frames, 11"):
        decode_here(spoil(path, range(9, 20)))


def test_reading_past_damage_keeps_what_follows(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=200, painter=numbered, options={"g": "20"})
    decoded = decode_here(spoil(path, range(50, 60)), DecodeRequest(Sampling(fps=10)))
    assert decoded.video.frames_lost > 0
    assert decoded.video.frames > 180
    assert [number for number in numbers(decoded) if number is not None][-100:] == list(range(100, 200))


def test_the_end_of_a_cut_off_matroska_is_missed(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "a.mkv", frames=200, painter=numbered, options={"g": "20"})
    decoded = decode_here(cut(whole, tmp_path / "b.mkv", 0.6))
    assert [warning.code for warning in decoded.video.warnings] == ["incomplete"]
    assert decoded.frames.duration < 15


def test_the_short_side_is_made_small_and_nothing_is_enlarged(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=2, width=640, height=360)
    assert decode_here(path, DecodeRequest(short_side=90)).frames.pixels.shape == (2, 90, 160, 3)
    assert decode_here(path, DecodeRequest(short_side=999)).frames.pixels.shape == (2, 360, 640, 3)


def test_limits_are_kept_before_decoding(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=30, width=320, height=240)
    with pytest.raises(errors.TooManyPixels, match="320 × 240"):
        decode_here(path, limits=Limits(pixels=320 * 239))
    with pytest.raises(errors.TooLong, match="lasts 3 seconds"):
        decode_here(path, limits=Limits(max_duration=2.9))
    with pytest.raises(errors.TooManyFrames):
        decode_here(path, limits=Limits(max_frames=29))
    with pytest.raises(errors.DecodeTimeout):
        decode_here(path, limits=Limits(seconds=0))


def test_a_huge_canvas_in_a_tiny_file_is_refused(tmp_path: Path) -> None:
    def blank(index: int, width: int, height: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.zeros((height, width, 3), np.uint8)

    path = write_video(
        tmp_path / "a.mov", codec="png", pix_fmt="rgb24", frames=1, width=9000, height=9000, painter=blank
    )
    assert path.stat().st_size < 2_000_000
    with pytest.raises(errors.TooManyPixels):
        decode_here(path)


def test_the_same_file_decodes_to_the_same_pixels(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=40, painter=quarters)
    first, second = decode_here(path), decode_here(path)
    assert np.array_equal(first.frames.pixels, second.frames.pixels)
