"""Every leaf of the tree can be reached, has a stable code, and says what to do."""

from __future__ import annotations

import ast
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from string import Formatter

import pytest

from extractors.decoder.decoder import Decoder
from extractors.errors import leaves
from extractors.media import errors
from extractors.media.decode import Limits, decode_here
from tests.extractors.films import write_encrypted
from tests.extractors.pictures import CASES
from tests.media import cut, without_index, write_audio, write_still, write_video

ROOT = Path(__file__).resolve().parents[3]
MANUAL = ROOT / "docs" / "decoding.md"


def missing(folder: Path) -> None:
    decode_here(folder / "absent.mp4")


def empty(folder: Path) -> None:
    (folder / "a.mp4").touch()
    decode_here(folder / "a.mp4")


def text(folder: Path) -> None:
    (folder / "a.mp4").write_text("hello")
    decode_here(folder / "a.mp4")


def playlist(folder: Path) -> None:
    (folder / "a.mp4").write_text("#EXTM3U\na.ts\n")
    decode_here(folder / "a.mp4")


def unknown_codec(folder: Path) -> None:
    content = write_video(folder / "a.mkv", codec="mjpeg", pix_fmt="yuvj420p").read_bytes()
    (folder / "a.mkv").write_bytes(content.replace(b"V_MJPEG", b"V_XXXXX"))
    decode_here(folder / "a.mkv")


def protected(folder: Path) -> None:
    decode_here(write_encrypted(folder / "a.mp4"))


def tiles(folder: Path) -> None:
    content = (CASES / "tiles.heic").read_bytes()
    (folder / "a.mp4").write_bytes(content.replace(b"heic", b"isom").replace(b"mif1", b"iso2"))
    decode_here(folder / "a.mp4")


def our_own_fault(folder: Path) -> None:
    with Decoder() as decoder:
        decoder.decode(write_video(folder / "a.mp4"), limits=Limits(pixels="many"))  # type: ignore[arg-type]


def no_index(folder: Path) -> None:
    decode_here(without_index(write_video(folder / "a.mp4"), folder / "b.mp4"))


def subtitles_only(folder: Path) -> None:
    content = write_video(folder / "a.mkv", frames=2).read_bytes()
    # the track's type, from video (1) to subtitles (17)
    assert content.count(b"\x83\x81\x01") == 1
    (folder / "a.mkv").write_bytes(content.replace(b"\x83\x81\x01", b"\x83\x81\x11"))
    decode_here(folder / "a.mkv")


def sound_only(folder: Path) -> None:
    decode_here(write_audio(folder / "a.m4a"))


def no_frame(folder: Path) -> None:
    path = write_video(folder / "a.mov", codec="mjpeg", pix_fmt="yuvj420p")
    start = path.read_bytes().index(b"mdat") + 4
    end = path.read_bytes().index(b"moov") - 4
    content = bytearray(path.read_bytes())
    content[start:end] = bytes(end - start)
    path.write_bytes(content)
    decode_here(path)


def damaged(folder: Path) -> None:
    path = write_video(folder / "a.mov", codec="mjpeg", pix_fmt="yuvj420p")
    start, end = path.read_bytes().index(b"mdat") + 4, path.read_bytes().index(b"moov") - 4
    middle = start + (end - start) // 3
    content = bytearray(path.read_bytes())
    content[middle:end] = bytes(end - middle)
    path.write_bytes(content)
    decode_here(path)


def long(folder: Path) -> None:
    decode_here(write_video(folder / "a.mp4"), limits=Limits(max_duration=1))


def large(folder: Path) -> None:
    decode_here(write_video(folder / "a.mp4"), limits=Limits(pixels=1000))


def many(folder: Path) -> None:
    decode_here(write_video(folder / "a.mp4"), limits=Limits(max_frames=10))


def slow(folder: Path) -> None:
    decode_here(write_video(folder / "a.mp4"), limits=Limits(seconds=0))


def hungry(folder: Path) -> None:
    path = write_video(folder / "a.mp4", frames=2, width=1920, height=1080, options={"preset": "ultrafast"})
    with Decoder() as decoder:
        decoder.decode(path, limits=Limits(memory=8 << 20))


def crashed(folder: Path) -> None:
    path = write_video(folder / "a.mp4")
    with Decoder() as decoder:
        assert decoder.pid is not None
        os.kill(decoder.pid, signal.SIGSTOP)
        timer = threading.Timer(0.2, os.kill, (decoder.pid, signal.SIGKILL))
        timer.start()
        decoder.decode(path)


def killed(folder: Path) -> None:
    path = write_video(folder / "a.mp4")
    with Decoder() as decoder:
        assert decoder.pid is not None
        os.kill(decoder.pid, signal.SIGSTOP)
        threading.Timer(0.2, decoder.kill).start()
        decoder.decode(path)


REACHED: dict[type[errors.MediaError], Callable[[Path], None]] = {
    errors.MissingFile: missing,
    errors.EmptyFile: empty,
    errors.NotAVideo: text,
    errors.UnsupportedContainer: playlist,
    errors.UnsupportedCodec: unknown_codec,
    errors.Encrypted: protected,
    errors.TiledImage: tiles,
    errors.IncompleteFile: no_index,
    errors.NoVideoStream: subtitles_only,
    errors.AudioOnly: sound_only,
    errors.NoFrames: no_frame,
    errors.TooDamaged: damaged,
    errors.TooLong: long,
    errors.TooManyPixels: large,
    errors.TooManyFrames: many,
    errors.DecodeTimeout: slow,
    errors.DecodeMemory: hungry,
    errors.DecoderFault: our_own_fault,
    errors.DecoderCrashed: crashed,
    errors.DecoderKilled: killed,
}


@pytest.mark.parametrize("leaf", list(leaves(errors.MediaError)), ids=lambda leaf: leaf.code)
def test_each_leaf_is_reached(leaf: type[errors.MediaError], tmp_path: Path) -> None:
    with pytest.raises(leaf) as raised:
        REACHED[leaf](tmp_path)
    assert type(raised.value) is leaf
    assert re.fullmatch(r"[A-Z][^\n]+\.", str(raised.value))
    assert re.fullmatch(r"[A-Z][^\n]+\.", leaf.hint)


def test_codes_are_told_apart_and_found_again() -> None:
    codes = [leaf.code for leaf in leaves(errors.MediaError)]
    assert len(set(codes)) == len(codes)
    for leaf in leaves(errors.MediaError):
        again = errors.error_from_code(leaf.code, "Because.")
        assert type(again) is leaf
        assert str(again) == "Because."
    assert isinstance(errors.error_from_code("nonsense", "Because."), errors.DecoderCrashed)


def test_the_manual_lists_every_code_with_its_remedy() -> None:
    manual = MANUAL.read_text()
    for leaf in leaves(errors.MediaError):
        assert f"| `{leaf.code}` |" in manual
        assert leaf.hint in manual


def test_the_manual_lists_every_warning() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", MANUAL.read_text().split("## Warnings")[1], re.MULTILINE))
    codes = {warning.code for warning in errors.WarningCode}
    assert codes == listed - {leaf.code for leaf in leaves(errors.MediaError)}


def test_every_warning_is_raised_with_the_facts_of_its_sentence() -> None:
    """A fact that a call forgets would end the decoding of the one file that is warned of."""
    calls = [
        (node.func.value.attr, {each.arg for each in node.keywords})
        for folder in ("extractors", "app")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "warn"
        and isinstance(node.func.value, ast.Attribute)
        and node.func.value.attr in errors.WarningCode.__members__
    ]
    for name, facts in calls:
        sentence = errors.WarningCode[name].sentence
        assert {field for _, field, _, _ in Formatter().parse(sentence) if field} == facts, name
    assert {name for name, _ in calls} == set(errors.WarningCode.__members__)


def test_a_damaged_still_is_incomplete(tmp_path: Path) -> None:
    whole = write_still(tmp_path / "a.webp", kind="WEBP")
    with pytest.raises(errors.IncompleteFile):
        decode_here(cut(whole, tmp_path / "b.webp", 0.3))
