"""A missing end is told by what the file claims, in every container, and a whole file is never accused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extractors.media import errors
from extractors.media.containers.completeness import (
    CLAIMS,
    LastPacketPlace,
    count_missing_bytes,
    may_end_in_a_picture,
    read_opendml_frames,
)
from extractors.media.decode import Decoded, DecodeRequest, Sampling, decode_here
from tests.media import Picture, cut, numbered, write_gif, write_still, write_video

FASTSTART = {"container_options": {"movflags": "faststart"}}
FRAGMENTS = {"options": {"g": "10"}, "container_options": {"movflags": "frag_keyframe+empty_moov"}}
WAYS: dict[str, dict[str, Any]] = {
    "mpeg4.avi": {"codec": "mpeg4"},
    "jpegs.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "h264.avi": {},
    "wmv2.wmv": {"codec": "wmv2"},
    "asf.asf": {"codec": "wmv2"},
    "mpeg2.mxf": {"codec": "mpeg2video", "fps": 25},
    "mpeg4.nut": {"codec": "mpeg4"},
    "h264.flv": {},
    "faststart.mp4": FASTSTART,
    "faststart.mov": FASTSTART,
    "faststart.3gp": {"codec": "mpeg4", **FASTSTART},
    "fragments.mp4": FRAGMENTS,
    "hybrid.mp4": {"options": {"g": "10"}, "container_options": {"movflags": "frag_keyframe"}},
    "sidx.mp4": {"options": {"g": "10"}, "container_options": {"movflags": "dash+frag_keyframe+global_sidx"}},
    "h264.mkv": {},
    "live.mkv": {"container_options": {"live": "1"}},
    "vp8.webm": {"codec": "libvpx"},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"cpu-used": "8"}},
    "h264.ts": {},
    "mpeg2.ts": {"codec": "mpeg2video", "fps": 25},
    "h264.m2ts": {},
    "vp8.ogv": {"codec": "libvpx", "container_format": "ogg"},
    "mpeg2.mpg": {"codec": "mpeg2video", "fps": 25},
    "mpeg1.mpg": {"codec": "mpeg1video", "fps": 25},
    "raw.y4m": {"codec": "wrapped_avframe"},
    "colours.gif": {"codec": "gif", "pix_fmt": "rgb8"},
    "vp8.ivf": {"codec": "libvpx"},
    "colours.apng": {"codec": "apng", "pix_fmt": "rgb24"},
}
SOUND = {"avi": "mp2", "flv": "aac", "mp4": "aac", "mov": "aac", "mkv": "aac", "webm": "libopus", "ts": "aac",
         "m2ts": "aac", "ogv": "libopus", "mpg": "mp2", "nut": "aac", "mxf": "pcm_s16le"}  # fmt: skip


def noise(index: int, width: int, height: int) -> Picture:
    """So that every frame takes some room in the file."""
    return np.random.default_rng(index).integers(0, 255, (height, width, 3), dtype=np.uint8)


def write(path: Path, sound: float = 0.0, **changes: Any) -> Path:
    how = {"frames": 60, "painter": noise, **WAYS.get(path.name, {}), **changes}
    if sound:
        how |= {"audio_seconds": sound, "audio_codec": SOUND[path.suffix[1:]], "audio_rate": 48000}
    return write_video(path, **how)


def codes(decoded: Decoded) -> list[str]:
    return [warning.code for warning in decoded.video.warnings]


def assert_whole(path: Path) -> Decoded:
    decoded = decode_here(path)
    assert "incomplete" not in codes(decoded)
    assert decoded.video.frames_expected in (None, decoded.video.frames)
    return decoded


@pytest.mark.parametrize("name", WAYS)
def test_a_cut_file_is_incomplete(name: str, tmp_path: Path) -> None:
    whole = write(tmp_path / name)
    told = assert_whole(whole).video
    for keep in (0.41, 0.517, 0.73, 0.95):
        decoded = decode_here(cut(whole, tmp_path / "cut.bin", keep))
        assert codes(decoded).count("incomplete") == 1, keep
        assert decoded.video.frames_expected in (None, told.frames)
        assert decoded.video.frames <= told.frames


@pytest.mark.parametrize("name", [name for name in WAYS if name.split(".")[1] in SOUND])
@pytest.mark.parametrize("sound", [1.0, 12.0])
def test_sound_of_another_length_is_no_missing_end(name: str, sound: float, tmp_path: Path) -> None:
    whole = write(tmp_path / name, sound)
    assert_whole(whole)
    for keep in (0.45, 0.8):
        assert "incomplete" in codes(decode_here(cut(whole, tmp_path / "cut.bin", keep))), keep


class Pipe:
    """What takes bytes and cannot go back: the writer never learns how much there will be."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, data: bytes) -> int:
        self.content += data
        return len(data)


def record(container_format: str, codec: str, path: Path, options: dict[str, str] | None = None) -> Path:
    out = Pipe()
    with av.open(out, "w", format=container_format, options=options or {}) as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb8" if codec == "gif" else "yuv420p"
        for index in range(60):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(noise(index, 64, 48), format="rgb24")))
        container.mux(stream.encode())
    path.write_bytes(out.content)
    return path


RECORDINGS = [
    ("matroska", "libx264"), ("webm", "libvpx"), ("flv", "libx264"), ("avi", "mpeg4"), ("asf", "wmv2"),
    ("mpegts", "libx264"), ("ogg", "libvpx"), ("mxf", "mpeg2video"), ("nut", "mpeg4"), ("gif", "gif"),
    ("mp4", "libx264"), ("ivf", "libvpx"), ("mpeg", "mpeg2video"),
]  # fmt: skip


@pytest.mark.parametrize(("container_format", "codec"), RECORDINGS)
def test_a_recording_without_claims_is_whole(container_format: str, codec: str, tmp_path: Path) -> None:
    options = {"movflags": "frag_keyframe+empty_moov"} if container_format == "mp4" else None
    decoded = assert_whole(record(container_format, codec, tmp_path / "a.bin", options))
    assert decoded.video.frames_expected is None
    assert decoded.video.frames == 60


@pytest.mark.parametrize("container_format", ["matroska", "webm", "flv", "nut", "ogg", "mpegts"])
def test_a_recording_that_broke_off_is_incomplete(container_format: str, tmp_path: Path) -> None:
    codec = dict(RECORDINGS)[container_format]
    whole = record(container_format, codec, tmp_path / "a.bin")
    assert "incomplete" in codes(decode_here(cut(whole, tmp_path / "cut.bin", 0.617)))


@pytest.mark.parametrize("name", ["fragments.mp4", "colours.gif", "hybrid.mp4", "h264.mkv"])
def test_a_part_is_no_claim_of_the_whole(name: str, tmp_path: Path) -> None:
    whole = write(tmp_path / name)
    for path in (whole, cut(whole, tmp_path / "cut.bin", 0.6)):
        assert decode_here(path).video.frames_expected is None


def test_broadcasts_cut_between_packets(tmp_path: Path) -> None:
    """Nothing is claimed and nothing left over: only the last picture can tell, where it is hit."""
    for name, unit in (("h264.ts", 188), ("mpeg2.ts", 188), ("mpeg1.mpg", 2048)):
        content = write(tmp_path / name).read_bytes()
        path, told = tmp_path / "cut.bin", 0
        for count in range(len(content) // unit // 2, len(content) // unit // 2 + 8):
            path.write_bytes(content[: count * unit])
            told += "incomplete" in codes(decode_here(path))
        assert told >= 3, name


def test_whole_broadcasts_of_any_length_are_whole(tmp_path: Path) -> None:
    for frames in range(5, 25):
        for name in ("h264.ts", "mpeg2.ts", "mpeg2.mpg", "h264.m2ts"):
            assert_whole(write(tmp_path / name, sound=0.5 * (frames % 2), frames=frames))


ODD: dict[str, dict[str, Any]] = {
    "pause.avi": {"codec": "mpeg4", "pts": [0.0, 0.1, 0.2, 3.0, 3.1], "frames": 5},
    "pause.mkv": {"pts": [0.0, 0.1, 0.2, 30.0, 30.1], "frames": 5},
    "pause.mp4": {"pts": [0.0, 0.1, 0.2, 30.0, 30.1], "frames": 5},
    "pause.flv": {"pts": [0.0, 0.1, 0.2, 30.0, 30.1], "frames": 5},
    "pause.wmv": {"codec": "wmv2", "pts": [0.0, 0.1, 0.2, 30.0, 30.1], "frames": 5},
    "one.mp4": {"frames": 1},
    "one.mkv": {"frames": 1},
    "one.ts": {"frames": 1},
    "late.mkv": {"pts": [100 + index / 10 for index in range(30)], "frames": 30},
    "late.mp4": {"pts": [100 + index / 10 for index in range(30)], "frames": 30},
    "open-gop.mp4": {"options": {"x264-params": "open-gop=1:keyint=20:min-keyint=20:scenecut=0"}},
    "open-gop.ts": {"options": {"x264-params": "open-gop=1:keyint=20:min-keyint=20:scenecut=0"}},
    "b-frames.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "hidden.webm": {"codec": "libvpx", "options": {"auto-alt-ref": "1", "lag-in-frames": "16"}},
    "odd.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p", "width": 66, "height": 50, "frames": 7},
    "slow.ivf": {"codec": "libvpx", "pts": [0.0, 0.1, 0.2, 30.0, 30.1], "frames": 5},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_whole(name: str, tmp_path: Path) -> None:
    assert_whole(write_video(tmp_path / name, **{"painter": numbered, "frames": 60, **ODD[name]}))


@pytest.mark.parametrize("junk", [b"", bytes(100), b"\n", b"<html>not found</html>" * 20])
def test_what_hangs_behind_a_file_is_no_missing_end(junk: bytes, tmp_path: Path) -> None:
    for name in (
        "faststart.mp4",
        "fragments.mp4",
        "h264.mkv",
        "live.mkv",
        "mpeg4.avi",
        "h264.flv",
        "wmv2.wmv",
    ):
        path = write(tmp_path / name)
        path.write_bytes(path.read_bytes() + junk)
        assert_whole(path)


def test_stills_and_gifs_are_whole(tmp_path: Path) -> None:
    assert decode_here(write_still(tmp_path / "a.jpg")).video.frames_expected is None
    for name in ("a.gif", "a.webp", "a.png"):
        assert assert_whole(write_gif(tmp_path / name, [100] * 5)).video.frames_expected is None


def chunk(name: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)


def opendml(path: Path, frames: int, first: int) -> Path:
    """An AVI of two RIFF chunks (OpenDML), with ``first`` of its JPEG frames in the first of them."""
    source = write_video(path.with_suffix(".mov"), codec="mjpeg", pix_fmt="yuvj420p", frames=frames)
    with av.open(str(source)) as film:
        pictures = [bytes(packet) for packet in film.demux(video=0) if packet.size]
    avih = struct.pack("<14I", 100_000, 0, 0, 16, first, 0, 1, 0, 64, 48, 0, 0, 0, 0)
    strh = b"vidsMJPG" + struct.pack("<12I", 0, 0, 0, 1, 10, 0, first, 0, 0, 0, 0, 48 << 16 | 64)
    strf = struct.pack("<IiiHH4s5I", 40, 64, 48, 1, 24, b"MJPG", 0, 0, 0, 0, 0)
    streams = chunk(b"LIST", b"strl", chunk(b"strh", strh), chunk(b"strf", strf))
    extended = chunk(b"LIST", b"odml", chunk(b"dmlh", struct.pack("<I", frames), bytes(244)))
    header = chunk(b"LIST", b"hdrl", chunk(b"avih", avih), streams, extended)
    parts = [b"".join(chunk(b"00dc", each) for each in part) for part in (pictures[:first], pictures[first:])]
    riffs = [chunk(b"RIFF", b"AVI ", header, chunk(b"LIST", b"movi", parts[0]))]
    riffs.append(chunk(b"RIFF", b"AVIX", chunk(b"LIST", b"movi", parts[1])))
    path.write_bytes(b"".join(riffs))
    return path


def test_opendml_is_judged_by_all_of_its_parts(tmp_path: Path) -> None:
    whole = opendml(tmp_path / "a.avi", 40, 25)
    assert read_opendml_frames(whole) == 40
    content = whole.read_bytes()
    seam = content.index(b"AVIX") - 8
    for end in (seam, seam - 100, seam + 400, len(content) - 10):  # between the parts too
        path = tmp_path / "cut.avi"
        path.write_bytes(content[:end])
        decoded = decode_here(path)
        assert "incomplete" in codes(decoded), end
        assert decoded.video.frames_expected == 40
    assert "incomplete" not in codes(decode_here(whole))


def test_a_cut_avi_is_expected_as_its_header_says(tmp_path: Path) -> None:
    whole = write(tmp_path / "jpegs.avi", frames=30)
    video = decode_here(cut(whole, tmp_path / "cut.avi", 0.5), DecodeRequest(Sampling(fps=10))).video
    assert video.frames_expected == 30
    assert "30 frames" in next(warning.message for warning in video.warnings if warning.code == "incomplete")


class Beginnings(dict[str, bytes]):
    """Files by their format, told in a word where a test fails with them."""

    def __repr__(self) -> str:
        return f"Beginnings({', '.join(self)})"


@pytest.fixture(scope="module")
def beginnings(tmp_path_factory: pytest.TempPathFactory) -> Beginnings:
    folder = tmp_path_factory.mktemp("beginnings")
    names = {"mov,mp4,m4a,3gp,3g2,mj2": "fragments.mp4", "matroska,webm": "live.mkv", "avi": "mpeg4.avi",
             "asf": "wmv2.wmv", "mxf": "mpeg2.mxf", "flv": "h264.flv", "nut": "mpeg4.nut", "ogg": "vp8.ogv",
             "mpeg": "mpeg2.mpg", "mpegts": "h264.ts", "gif": "colours.gif"}  # fmt: skip
    return Beginnings((kind, write(folder / name, frames=8).read_bytes()) for kind, name in names.items())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(sorted(CLAIMS)),
    keep=st.floats(0, 1),
    edits=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=12)), max_size=6),
    last=st.none() | st.builds(LastPacketPlace, st.integers(0, 1 << 20), st.integers(0, 1 << 20)),
)
def test_no_bytes_make_the_judge_fall(
    kind: str,
    keep: float,
    edits: list[tuple[float, bytes]],
    last: LastPacketPlace | None,
    tmp_path: Path,
    beginnings: Beginnings,
) -> None:
    content = bytearray(beginnings.get(kind, b""))
    del content[int(keep * len(content)) :]
    for place, written in edits:
        at = int(place * len(content))
        content[at : at + 8] = written
    path = tmp_path / "a.bin"
    path.write_bytes(content or b"\0")  # an empty file is refused before
    assert count_missing_bytes(path, kind, last) >= 0
    may_end_in_a_picture(path, kind)
    read_opendml_frames(path)


@pytest.mark.parametrize("left", [1, 2, 3, 4, 5, 6, 7, 187])
def test_a_last_packet_that_is_cut_says_nothing_of_the_picture(
    left: int, tmp_path: Path, beginnings: Beginnings
) -> None:
    whole = beginnings["mpegts"]
    (tmp_path / "whole.ts").write_bytes(whole)
    for flags in (0x10, 0x30):  # a payload, and a field before it
        (tmp_path / "cut.ts").write_bytes(whole + (b"G\x01\x00" + bytes([flags]) + bytes(184))[:left])
        assert count_missing_bytes(tmp_path / "cut.ts", "mpegts", None) == 188 - left
        assert may_end_in_a_picture(tmp_path / "cut.ts", "mpegts") == may_end_in_a_picture(
            tmp_path / "whole.ts", "mpegts"
        )


def test_a_file_of_nothing_but_small_pieces_takes_no_time(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes((8).to_bytes(4, "big") + b"ftyp" + ((8).to_bytes(4, "big") + b"free") * 2_000_000)
    assert count_missing_bytes(path, "mov,mp4,m4a,3gp,3g2,mj2", None) == 0
    path.write_bytes(b"\x47" * (4 << 20))
    assert count_missing_bytes(path, "mpegts", None) >= 0
    with pytest.raises(errors.MediaError):
        decode_here(path)
