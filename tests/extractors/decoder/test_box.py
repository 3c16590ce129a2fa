"""The box of the decoding process: each thing that it refuses, tried in a process that is in it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from extractors.decoder import box, decoder
from extractors.media.decode import Decoded, DecodeRequest, Sampling, decode_here
from extractors.media.errors import MediaError
from tests.extractors.pictures import CASES, write_turned
from tests.media import cut, without_index, write_audio, write_gif, write_still, write_video

TRIES = """
import json, os, socket, subprocess, sys, threading, time
from extractors.decoder.box import enter_box, limit_processor_seconds

folder = sys.argv[1]
before = time.perf_counter()
lacking = enter_box()
spent = time.perf_counter() - before
libc = __import__("ctypes").CDLL(None, use_errno=True)

def trace():
    if libc.ptrace(16, os.getppid(), 0, 0) != 0:
        raise PermissionError

tries = {
    "socket": lambda: socket.socket(), "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "pair": lambda: socket.socketpair(), "fork": os.fork, "exec": lambda: os.execv("/bin/true", ["true"]),
    "program": lambda: subprocess.run(["true"]), "trace": trace, "signal": lambda: os.kill(os.getppid(), 0),
    "write": lambda: open(f"{folder}/new", "w"), "change": lambda: open(f"{folder}/old", "a"),
    "read": lambda: open(f"{folder}/old"), "list": lambda: os.listdir(folder),
    "secrets": lambda: open(f"/proc/{os.getppid()}/environ").read(), "users": lambda: open("/etc/passwd"),
    "remove": lambda: os.unlink(f"{folder}/old"), "folder": lambda: os.mkdir(f"{folder}/more"),
    "files": lambda: [os.dup(0) for _ in range(300)],
}
done = []
for name, attempt in tries.items():
    try:
        attempt()
        done.append(name)
    except OSError:
        pass
os.closerange(3, 256)
thread = threading.Thread(target=lambda: None)
thread.start(), thread.join()
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
print(json.dumps({"lacking": lacking, "done": done, "spent": spent, "status": status}), flush=True)
limit_processor_seconds(-9 / os.cpu_count())  # one second more
while True:
    pass
"""


@pytest.fixture(scope="module")
def lacking() -> list[str]:
    """Layers that this machine's kernel lacks."""
    run = subprocess.run(
        [sys.executable, "-c", "from extractors.decoder.box import enter_box; print(*enter_box())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout.split()


def test_what_no_decoder_needs_is_refused(lacking: list[str], tmp_path: Path) -> None:
    if lacking:
        pytest.skip(f"this kernel lacks {lacking}")
    (tmp_path / "old").write_text("here")
    run = subprocess.run(
        [sys.executable, "-c", TRIES, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert run.stdout, run.stderr
    told = json.loads(run.stdout)
    assert (told["lacking"], told["done"]) == ([], [])
    assert (told["status"]["NoNewPrivs"], told["status"]["Seccomp"]) == ("1", "2")
    assert told["spent"] < 0.5  # half a millisecond; on a busy machine more
    assert run.returncode < 0, "it was to end by its own limit of processor seconds"
    assert [file.name for file in tmp_path.iterdir()] == ["old"]


def test_a_decoder_s_child_is_in_the_box(lacking: list[str]) -> None:
    with decoder.Decoder() as running:
        status = Path(f"/proc/{running.pid}/status").read_text()
    assert ("NoNewPrivs:\t1" in status) == ("no_new_privs" not in lacking)
    assert ("Seccomp:\t2" in status) == ("seccomp" not in lacking)


def write_one_of_each(folder: Path) -> list[Path]:
    """A file of each container and codec that is written here, and what is at hand of others."""
    x265 = {"codec": "libx265", "options": {"x265-params": "log-level=none"}}
    films: list[tuple[str, dict[str, Any]]] = [
        ("a.mp4", {"audio_seconds": 3.0}), ("turned.mp4", {"rotation": 90}), ("hevc.mp4", x265),
        ("a.mkv", {}), ("a.webm", {"codec": "libvpx-vp9"}), ("a.avi", {"codec": "mpeg4"}), ("a.ts", {}),
        ("a.flv", {"codec": "flv"}), ("a.mov", {"codec": "mjpeg", "pix_fmt": "yuvj420p"}),
        ("a.mpg", {"codec": "mpeg2video", "fps": 25}), ("a.h264", {}),
    ]  # fmt: skip
    written = [write_video(folder / name, frames=20, **how) for name, how in films]
    written += [
        write_gif(folder / f"moving.{kind}", [100, 300, 200]) for kind in ("gif", "webp", "png", "avif")
    ]
    written += [write_turned(folder / f"b.{kind}", 6) for kind in ("jpg", "png", "webp", "tiff", "avif")]
    written += [write_still(folder / "c.bmp", kind="BMP"), write_audio(folder / "sound.m4a")]
    whole = written[0]
    written += [cut(whole, folder / "cut.mp4", 0.7), without_index(whole, folder / "lost.mp4")]
    (folder / "page.mp4").write_text("<html><body>Not found</body></html>")
    (folder / "empty.mp4").write_bytes(b"")
    return [
        *written,
        folder / "page.mp4",
        folder / "empty.mp4",
        folder / "gone.mp4",
        *sorted(CASES.glob("*.*")),
    ]


@pytest.mark.parametrize("reader", ["pyav", "decord"])
def test_in_the_box_each_kind_of_file_is_read_as_outside(reader: decoder.Reader, tmp_path: Path) -> None:
    """By one child, one after the other: each file comes as a descriptor, for none can be opened there."""
    if reader == "decord" and find_spec("decord") is None:
        pytest.skip("decord2 absent")
    request = DecodeRequest(Sampling(5), audio_rate=8000)
    names = write_one_of_each(tmp_path)
    with decoder.Decoder(reader) as running:
        pid = running.pid
        for path in names:
            words, shades = outcome(partial(running.decode, path, request))
            outside, others = outcome(partial(decode_here, path, request))
            assert words == outside, path.name
            assert np.allclose(shades, others, atol=8), path.name
        assert running.pid == pid
        assert [path for path in names if is_open_in(running.pid, path)] == []


def outcome(decode: Callable[[], Decoded]) -> tuple[str, Any]:
    """What comes of a file, in words, and the shade of each frame; decord's differ by little."""
    try:
        decoded = decode()
    except MediaError as error:
        return f"{error.code}: {error}", 0
    kept = [each.code for each in decoded.video.warnings if each.code != "reader_fallback"]
    sound = None if decoded.audio is None else len(decoded.audio.samples)
    words = f"{replace(decoded.video, warnings=())} {kept} {decoded.frames.pts.tolist()} {sound}"
    return words, decoded.frames.pixels.mean((1, 2))


def is_open_in(pid: int | None, path: Path) -> bool:
    return str(path) in {os.path.realpath(link) for link in Path(f"/proc/{pid}/fd").iterdir()}


def test_what_the_kernel_lacks_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    decoder._tell_lacking.cache_clear()
    with caplog.at_level(logging.WARNING):
        for layers in ("landlock seccomp", "landlock seccomp", ""):
            decoder._tell_lacking(layers)
    assert [record.message for record in caplog.records] == [
        "videos are read with less protection: this kernel lacks landlock seccomp"
    ]


def test_a_kernel_without_a_layer_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, where nothing is really given up."""

    def call(name: str, *arguments: object) -> int:
        if name == "syscall":
            raise OSError("Function not implemented")
        return 0

    monkeypatch.setattr(box, "_call", call)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    assert box.enter_box() == ["landlock"]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert box.enter_box() == ["landlock", "seccomp"]
