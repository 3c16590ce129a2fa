"""The decoding process can crash, hang, grow and be killed, and its owner goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from extractors.decoder.decoder import Decoder
from extractors.media import errors
from extractors.media.decode import DecodeRequest, Limits, Sampling, decode_here
from tests.media import numbered, write_video

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(
        tmp_path_factory.mktemp("clip") / "a.mp4", frames=30, painter=numbered, audio_seconds=3.0
    )


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    with Decoder() as decoder:
        yield decoder


def pid_of(decoder: Decoder) -> int:
    assert decoder.pid is not None
    return decoder.pid


def test_the_answer_is_what_decoding_here_gives(decoder: Decoder, clip: Path) -> None:
    request = DecodeRequest(Sampling(5), short_side=32, audio_rate=8000)
    far, here = decoder.decode(clip, request), decode_here(clip, request)
    assert far.video == here.video
    assert np.array_equal(far.frames.pixels, here.frames.pixels)
    assert np.array_equal(far.frames.pts, here.frames.pts)
    assert far.audio is not None
    assert here.audio is not None
    assert np.array_equal(far.audio.samples, here.audio.samples)


def test_one_process_serves_many_files_and_the_answers_stay(decoder: Decoder, clip: Path) -> None:
    first = decoder.decode(clip, DecodeRequest(Sampling(3)))
    kept, pid = first.frames.pixels.copy(), pid_of(decoder)
    for _ in range(5):
        decoder.decode(clip, DecodeRequest(Sampling(7)))
    assert pid_of(decoder) == pid
    assert np.array_equal(first.frames.pixels, kept)


def test_the_process_is_replaced_after_enough_files(clip: Path) -> None:
    with Decoder(files_per_child=2) as decoder:
        pids = []
        for _ in range(5):
            decoder.decode(clip)
            pids.append(pid_of(decoder))
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


def test_a_media_error_costs_no_process(decoder: Decoder, clip: Path, tmp_path: Path) -> None:
    pid = pid_of(decoder)
    (tmp_path / "page.mp4").write_text("<html><body>Not found</body></html>")
    with pytest.raises(errors.NotAVideo):
        decoder.decode(tmp_path / "page.mp4")
    assert len(decoder.decode(clip).frames) == 8
    assert pid_of(decoder) == pid


def paused(decoder: Decoder) -> int:
    """Stop the child as a hang in native code would: it neither answers nor ends."""
    pid = pid_of(decoder)
    os.kill(pid, signal.SIGSTOP)
    return pid


def later(seconds: float, *signals_to: tuple[int, signal.Signals]) -> threading.Timer:
    def send() -> None:
        for pid, number in signals_to:
            os.kill(pid, number)

    timer = threading.Timer(seconds, send)
    timer.start()
    return timer


def test_a_crash_is_an_error_and_the_next_file_is_decoded(decoder: Decoder, clip: Path) -> None:
    pid = paused(decoder)
    timer = later(0.2, (pid, signal.SIGSEGV), (pid, signal.SIGCONT))
    with pytest.raises(errors.DecoderCrashed, match="signal 11"):
        decoder.decode(clip)
    timer.join()
    assert len(decoder.decode(clip).frames) == 8
    assert pid_of(decoder) != pid


def test_a_process_that_ended_while_idle_is_replaced(decoder: Decoder, clip: Path) -> None:
    pid = pid_of(decoder)
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)], timeout=5) if psutil.pid_exists(pid) else None
    assert len(decoder.decode(clip).frames) == 8


def test_a_hang_ends_at_the_time_limit(decoder: Decoder, clip: Path) -> None:
    pid, started = paused(decoder), time.monotonic()
    with pytest.raises(errors.DecodeTimeout):
        decoder.decode(clip, limits=Limits(seconds=0.3))
    assert time.monotonic() - started < 5
    assert not psutil.pid_exists(pid)
    assert len(decoder.decode(clip).frames) == 8


def test_kill_ends_a_running_decode_at_once(decoder: Decoder, clip: Path) -> None:
    paused(decoder)
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        decoder.kill()

    timer = threading.Timer(0.3, kill)
    timer.start()
    with pytest.raises(errors.DecoderKilled):
        decoder.decode(clip)
    assert time.monotonic() - killed[0] < 0.2
    timer.join()
    assert len(decoder.decode(clip).frames) == 8


def test_kill_without_a_running_decode_does_no_harm(decoder: Decoder, clip: Path) -> None:
    decoder.kill()
    assert len(decoder.decode(clip).frames) == 8


def test_a_closed_decoder_says_so(clip: Path) -> None:
    decoder = Decoder()
    decoder.close()
    with pytest.raises(errors.DecoderKilled, match="closed"):
        decoder.decode(clip)
    assert decoder.pid is None


def test_memory_is_limited_and_the_next_file_is_decoded(decoder: Decoder, clip: Path, tmp_path: Path) -> None:
    large = write_video(
        tmp_path / "a.mp4", frames=4, width=3840, height=2160, options={"preset": "ultrafast"}
    )
    with pytest.raises(errors.DecodeMemory):
        decoder.decode(large, limits=Limits(memory=48 << 20))
    assert len(decoder.decode(clip).frames) == 8


def test_ten_minutes_take_the_memory_of_ten_seconds(tmp_path: Path) -> None:
    peaks = []
    for frames in (100, 6000):
        path = write_video(
            tmp_path / f"{frames}.avi",
            frames=frames,
            width=160,
            height=120,
            codec="mpeg4",
            options={"bf": "2"},
        )
        with Decoder() as decoder:
            decoded = decoder.decode(path)
            assert decoded.video.frames == frames
            assert decoded.video.frames_counted  # all were decoded, in order
            status = Path(f"/proc/{decoder.pid}/status").read_text().splitlines()
            peaks.append(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")))
    # all frames of the longer one would be 124 MB
    assert peaks[1] - peaks[0] < 20_000


def test_the_process_holds_no_torch_and_no_secrets(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:secret@127.0.0.1/0")
    with Decoder() as decoder:
        decoder.decode(clip, DecodeRequest(audio_rate=16000))
        process = Path(f"/proc/{decoder.pid}")
        assert "torch" not in (process / "maps").read_text()
        assert b"secret" not in (process / "environ").read_bytes()
    check = (
        "import sys, extractors.decoder.decoder, extractors.decoder.child; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0


def test_the_process_ends_with_its_parent(clip: Path) -> None:
    script = (
        "import sys; from extractors.decoder.decoder import Decoder\n"
        "decoder = Decoder(); decoder.decode(sys.argv[1]); print(decoder.pid, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(clip)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
        assert psutil.wait_procs([child], timeout=5)[0] == [child]


def test_nothing_is_printed_and_nothing_is_left_behind(clip: Path, tmp_path: Path) -> None:
    noise = tmp_path / "noise.mp4"
    noise.write_bytes(clip.read_bytes()[:1500] + b"private words " * 100)
    script = (
        "import sys; from extractors.decoder.decoder import Decoder\n"
        "with Decoder() as decoder:\n"
        "    for path in sys.argv[1:]:\n"
        "        try: decoder.decode(path)\n"
        "        except Exception: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", script, str(clip), str(noise)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    assert done.stdout + done.stderr == b""


def test_a_mistake_of_ours_is_named_and_the_next_file_is_decoded(decoder: Decoder, clip: Path) -> None:
    nonsense = Limits(pixels="many")  # type: ignore[arg-type]
    pid = pid_of(decoder)
    with pytest.raises(errors.DecoderFault, match="TypeError in"):
        decoder.decode(clip, limits=nonsense)
    assert len(decoder.decode(clip).frames) == 8
    assert pid_of(decoder) != pid


def test_an_unknown_reader_is_refused() -> None:
    with pytest.raises(ValueError, match="choose pyav or decord"):
        Decoder("opencv")  # type: ignore[arg-type]
