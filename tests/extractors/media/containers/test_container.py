"""Only the file that was asked for is opened, and what it is not is said by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import av
import pytest

from extractors.media import errors
from extractors.media.decode import decode_here
from tests.media import numbered, tone, write_video


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{video}\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n{video}\n",
        "ffconcat version 1.0\nfile '{video}'\n",
        '<?xml version="1.0"?><MPD><Period><BaseURL>{video}</BaseURL></Period></MPD>',
    ],
)
def test_a_list_of_other_files_is_refused(playlist: str, tmp_path: Path) -> None:
    video = write_video(tmp_path / "private.mp4")
    for name in ("a.mp4", "a.m3u8", "a.ffconcat"):
        path = tmp_path / name
        path.write_text(playlist.format(video=video))
        with pytest.raises(errors.UnsupportedContainer):
            decode_here(path)


@pytest.mark.parametrize(
    "content",
    [b"<!doctype html><html></html>", b"PK\x03\x04" + bytes(500), b"%PDF-1.7\n", b"hello", bytes(5000)],
)
def test_something_else_in_a_videos_clothes(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(content)
    with pytest.raises(errors.NotAVideo):
        decode_here(path)


def test_random_bytes_end_as_a_named_error(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "a.mp4").read_bytes()
    path = tmp_path / "b.mp4"
    for at in range(0, 64, 4):
        path.write_bytes(whole[:at] + os.urandom(len(whole) - at))
        with pytest.raises(errors.InputError):
            decode_here(path)


@pytest.mark.parametrize("name", ["concat:a|b.mp4", "a b'c\".mp4", "film%03d.mp4", "-i.mp4", "Ünïcode.mp4"])
def test_a_name_is_only_a_name(name: str, tmp_path: Path) -> None:
    assert decode_here(write_video(tmp_path / "a.mp4").rename(tmp_path / name)).video.frames == 30


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.mp4")
    os.rename(write_video(tmp_path / "a.mp4"), path)
    assert decode_here(path).video.frames == 30


def test_tags_that_are_no_text_are_no_obstacle(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", metadata={"title": "MARKMARK"})
    path.write_bytes(path.read_bytes().replace(b"MARKMARK", b"\xff\xfe\xfd\xfcMARK"))
    assert decode_here(path).video.frames == 30


def write_cover(path: Path, film: bool) -> Path:
    """A file whose first track is cover art, with sound, and with moving pictures where ``film``."""
    with av.open(str(path), "w") as out:
        cover: Any = out.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 48, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        sound: Any = out.add_stream("aac", rate=16000)
        sound.layout = "mono"
        moving: Any = out.add_stream("libx264", rate=10) if film else None
        if film:
            moving.width, moving.height, moving.pix_fmt = 64, 48, "yuv420p"
        out.mux(cover.encode(av.VideoFrame.from_ndarray(numbered(999, 64, 48), format="rgb24")))
        for index in range(20 if film else 0):
            out.mux(moving.encode(av.VideoFrame.from_ndarray(numbered(index, 64, 48), format="rgb24")))
        for block in tone(1.0, 16000):
            out.mux(sound.encode(block))
        for stream in (cover, sound, moving):
            if stream is not None:
                out.mux(stream.encode())
    return path


def test_cover_art_is_not_the_film(tmp_path: Path) -> None:
    assert decode_here(write_cover(tmp_path / "a.mp4", film=True)).video.frames == 20
    with pytest.raises(errors.AudioOnly):
        decode_here(write_cover(tmp_path / "b.mp4", film=False))


def test_the_file_is_closed_again(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4")
    decode_here(path)
    (tmp_path / "b.mp4").write_bytes(b"nothing")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        decode_here(path)
        with pytest.raises(errors.NotAVideo):
            decode_here(tmp_path / "b.mp4")
    assert len(os.listdir("/proc/self/fd")) == before
