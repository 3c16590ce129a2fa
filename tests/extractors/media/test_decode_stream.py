"""Frames handed over in chunks are the frames that decoding at once gives, and the child survives as ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from extractors.decoder.decoder import Decoder
from extractors.features import FrameSize, Resizing
from extractors.media import decode, errors
from extractors.media.decode import Limits, decode_here, stream_here
from extractors.media.frame_reader import read_in_order
from extractors.media.request import DecodeRequest
from extractors.media.stream_parts import (
    CHUNK_FRAMES,
    FrameChunk,
    StreamEnd,
    StreamPart,
    StreamStart,
    split_into_chunks,
)
from extractors.windows import Sampling, Windows
from tests.extractors.media.test_decode import WAYS_TO_STORE, spoil
from tests.media import numbered, read_number, write_video

EVERY = Windows(most=10_000)
FRAMES, RATE = 120, 10
SMALL_CHUNKS = 10 * 64 * 48 * 3


def asked(*windows: Windows, **how: Any) -> DecodeRequest:
    """Frames as stored that the windows look at."""
    return DecodeRequest(None, None, windows=windows, **how)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clip") / "a.mp4"
    return write_video(path, frames=FRAMES, painter=numbered, audio_seconds=3.0, options={"g": "20"})


@pytest.fixture(scope="module")
def shared_decoder() -> Iterator[Decoder]:
    with Decoder() as decoder:
        yield decoder


def last_start(parts: list[StreamPart]) -> tuple[StreamStart, list[FrameChunk], StreamEnd]:
    """What counts: from the last StreamStart on."""
    begins = [place for place, part in enumerate(parts) if isinstance(part, StreamStart)]
    begin, *chunks, end = parts[begins[-1] :]
    assert isinstance(begin, StreamStart)
    assert isinstance(end, StreamEnd)
    return begin, [chunk for chunk in chunks if isinstance(chunk, FrameChunk)], end


def numbers(chunks: list[FrameChunk]) -> list[int | None]:
    return [read_number(picture) for chunk in chunks for picture in chunk.pixels[0]]


def times(chunks: list[FrameChunk]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.concatenate([chunk.pts for chunk in chunks])


@pytest.mark.parametrize("name", WAYS_TO_STORE)
def test_every_frame_comes_once_and_nothing_is_said_twice(name: str, tmp_path: Path) -> None:
    how = {"fps": RATE, **WAYS_TO_STORE[name]}
    path = write_video(tmp_path / name, frames=40, painter=numbered, **how)
    parts = list(stream_here(path, asked(EVERY, chunk_bytes=SMALL_CHUNKS)))
    begin, chunks, end = last_start(parts)
    assert sum(isinstance(part, StreamStart) for part in parts) == 1
    assert numbers(chunks) == list(range(40))
    assert times(chunks) == pytest.approx(np.arange(40) / how["fps"], abs=2e-3)
    assert begin.duration == end.video.duration
    assert begin.fps == pytest.approx(end.video.fps_average)
    assert [chunk.until for chunk in chunks[:-1]] == [chunk.pts[0] for chunk in chunks[1:]]
    assert chunks[-1].until == np.inf
    assert end.video == decode_here(path, DecodeRequest(Sampling(fps=how["fps"]))).video


def test_few_windows_of_a_long_film_are_jumped_to(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "read_in_order", None)
    sparse = Windows(stack_size=2, step_size=2, most=3)
    begin, chunks, _ = last_start(list(stream_here(clip, asked(sparse))))
    instants = sparse.cut(begin.duration, begin.fps).instants
    assert numbers(chunks) == (instants * RATE).astype(int).tolist()


def test_a_jump_that_lands_elsewhere_starts_again_in_order(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "extractors.media.frame_reader._packets_from", lambda container, stream, key: iter(())
    )
    parts = list(stream_here(clip, asked(Windows(most=3))))
    assert [type(part) for part in parts] == [StreamStart, StreamStart, FrameChunk, StreamEnd]
    assert numbers(last_start(parts)[1]) == [20, 60, 100]


def test_a_bad_packet_starts_again_with_the_frames_that_there_are(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mov", codec="mjpeg", pix_fmt="yuvj420p", frames=50, painter=numbered)
    ten_a_second = Windows(extraction_fps=10, most=1000)
    parts = list(stream_here(spoil(path, [30]), asked(ten_a_second, chunk_bytes=SMALL_CHUNKS)))
    first, second = (place for place, part in enumerate(parts) if isinstance(part, StreamStart))
    begin, chunks, end = last_start(parts)
    good = [number for number in range(50) if number != 30]
    # the first telling stops where the file leaves its index
    told = [part for part in parts[first:second] if isinstance(part, FrameChunk)]
    assert numbers(told) == list(range(30))
    assert numbers(chunks) == good
    assert times(chunks) == pytest.approx(np.array(good) / 10)
    assert begin.fps == pytest.approx(49 / 5)
    assert end.video.frames_lost == 1
    assert end.video.frames == 49


@pytest.mark.parametrize("kept_bytes", [1 << 20, 0])
def test_few_frames_of_a_doubtful_file_cost_no_second_reading(
    kept_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An AVI with B-frames has no times to trust; few frames of its first reading are kept, many are not."""
    path = write_video(
        tmp_path / "a.avi", frames=40, painter=numbered, codec="mpeg4", options={"bf": "2"}, fps=RATE
    )
    readings = []

    def count(*arguments: Any) -> Any:
        readings.append(arguments)
        return read_in_order(*arguments)

    monkeypatch.setattr(decode, "read_in_order", count)
    monkeypatch.setattr(decode, "KEPT_BYTES", kept_bytes)
    parts = list(stream_here(path, DecodeRequest(Sampling(4), None)))
    assert [type(part) for part in parts] == [StreamStart, FrameChunk, StreamEnd]
    assert numbers(last_start(parts)[1]) == [5, 15, 25, 35]
    assert len(readings) == (1 if kept_bytes else 2)


def test_what_a_broken_child_sends_is_a_crash_by_name(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that make no stream cost the child, and the caller gets an error of the tree."""
    start, end = StreamStart(1.0, 10.0), last_start(list(stream_here(clip, asked(EVERY))))[2]
    chunk = FrameChunk((np.zeros((1, 4, 4, 3), np.uint8),) * 2, np.zeros(1), np.inf)
    for parts in ([end], [chunk, end], [start, chunk, end]):
        with Decoder() as decoder:
            monkeypatch.setattr(decoder, "stream", lambda *_, parts=parts: (part for part in parts))
            with pytest.raises(errors.DecoderCrashed, match="without sense"):
                decoder.decode(clip)


def test_a_file_of_mostly_bad_packets_is_refused(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mov", codec="mjpeg", pix_fmt="yuvj420p", frames=20)
    with pytest.raises(errors.TooDamaged, match="Of 20 frames, 11"):
        list(stream_here(spoil(path, range(9, 20)), asked(EVERY)))


def test_an_animated_webp_is_streamed_too(tmp_path: Path) -> None:
    pictures = [Image.fromarray(numbered(number, 64, 48)) for number in range(12)]
    path = tmp_path / "a.webp"
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=100, lossless=True)
    begin, chunks, _ = last_start(list(stream_here(path, asked(EVERY, chunk_bytes=30_000))))
    assert (begin.duration, begin.fps) == pytest.approx((1.2, 10))
    assert numbers(chunks) == list(range(12))
    assert len(chunks) == 4


def test_frames_come_in_every_size_that_was_asked_for(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=12, width=96, height=48, painter=numbered, rotation=90)
    sizes = (FrameSize(), FrameSize(24), FrameSize(999), FrameSize(None, Resizing(20)))
    _, chunks, _ = last_start(list(stream_here(path, asked(EVERY, sizes=sizes, chunk_bytes=50_000))))
    assert {tuple(pixels.shape[1:] for pixels in chunk.pixels) for chunk in chunks} == {
        ((96, 48, 3), (48, 24, 3), (96, 48, 3), (40, 20, 3))
    }
    assert len(chunks) > 2
    alone = decode_here(path, DecodeRequest(Sampling(fps=10), short_side=24)).frames.pixels
    assert np.array_equal(np.concatenate([chunk.pixels[1] for chunk in chunks]), alone)
    stored = np.concatenate([chunk.pixels[0] for chunk in chunks])
    assert np.array_equal(np.concatenate([chunk.pixels[3] for chunk in chunks]), sizes[3].shrink(stored))


def test_the_child_tells_what_streaming_here_tells(shared_decoder: Decoder, clip: Path) -> None:
    request = asked(
        EVERY,
        sizes=(FrameSize(), FrameSize(16), FrameSize(None, Resizing((20, 30)))),
        audio_rate=8000,
        chunk_bytes=SMALL_CHUNKS,
    )
    far = list(shared_decoder.stream(clip, request))
    here = list(stream_here(clip, request))
    assert [type(part) for part in far] == [type(part) for part in here]
    _, far_chunks, far_end = last_start(far)
    _, chunks, end = last_start(here)
    for one, other in zip(far_chunks, chunks, strict=True):
        assert all(map(np.array_equal, one.pixels, other.pixels))
        assert np.array_equal(one.pts, other.pts)
        assert one.until == other.until
    assert far_end.video == end.video
    assert far_end.audio is not None
    assert end.audio is not None
    assert np.array_equal(far_end.audio.samples, end.audio.samples)


def test_sound_alone_needs_no_frame(shared_decoder: Decoder, clip: Path) -> None:
    begin, chunks, end = last_start(list(shared_decoder.stream(clip, asked(audio_rate=8000))))
    assert chunks == []
    assert begin.duration == pytest.approx(FRAMES / RATE)
    assert end.audio is not None
    assert len(end.audio.samples) == pytest.approx(24000, abs=1500)


def test_one_process_serves_streams_and_errors_cost_none(
    shared_decoder: Decoder, clip: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.mp4"
    page.write_text("<html><body>Not found</body></html>")
    list(shared_decoder.stream(clip, asked(Windows())))
    pid = shared_decoder.pid
    with pytest.raises(errors.NotAVideo):
        next(shared_decoder.stream(page, asked(Windows())))
    assert len(shared_decoder.decode(clip).frames) == 8
    assert numbers(last_start(list(shared_decoder.stream(clip, asked(EVERY))))[1]) == list(range(FRAMES))
    assert shared_decoder.pid == pid


def test_the_child_waits_for_a_slow_reader_who_costs_no_time_of_the_limit(
    shared_decoder: Decoder, clip: Path
) -> None:
    request = asked(EVERY, chunk_bytes=64 * 48 * 3)  # a chunk is a frame
    parts = shared_decoder.stream(clip, request, Limits(seconds=1.0))
    told = [next(parts), next(parts)]
    assert shared_decoder.pid is not None
    child = psutil.Process(shared_decoder.pid)
    time.sleep(1.2)
    used = child.cpu_times()
    time.sleep(1.2)
    assert child.cpu_times() == used  # it could have decoded all of the film by now
    assert numbers(last_start([*told, *parts])[1]) == list(range(FRAMES))


def begun(decoder: Decoder, clip: Path, limits: Limits | None = None) -> tuple[int, Iterator[StreamPart]]:
    """A stream of which a part was taken and most is still to come."""
    parts = decoder.stream(clip, asked(EVERY, chunk_bytes=SMALL_CHUNKS), limits)
    assert isinstance(next(parts), StreamStart)
    assert decoder.pid is not None
    return decoder.pid, parts


def test_a_stream_may_be_given_up(clip: Path) -> None:
    with Decoder() as decoder:
        pid, parts = begun(decoder, clip)
        del parts
        assert not psutil.pid_exists(pid)
        never_read = decoder.stream(clip, asked(EVERY))
        assert len(decoder.decode(clip).frames) == 8
        with pytest.raises(errors.DecoderKilled):
            next(never_read)
        _, parts = begun(decoder, clip)
        another = decoder.stream(clip, asked(EVERY))
        with pytest.raises(errors.DecoderKilled):
            list(parts)
        assert len(numbers(last_start(list(another))[1])) == FRAMES
        begun(decoder, clip)


def test_leaving_in_the_middle_of_a_stream_does_not_hang(clip: Path) -> None:
    with pytest.raises(ZeroDivisionError), Decoder() as decoder:  # noqa: PT012
        for _ in decoder.stream(clip, asked(EVERY, chunk_bytes=SMALL_CHUNKS)):
            raise ZeroDivisionError
    assert decoder.pid is None


def test_a_crash_a_hang_and_a_kill_end_a_stream_by_name(clip: Path) -> None:
    with Decoder() as decoder:
        pid, parts = begun(decoder, clip)
        os.kill(pid, signal.SIGSEGV)
        with pytest.raises(errors.DecoderCrashed, match="signal 11"):
            list(parts)
        pid, parts = begun(decoder, clip, Limits(seconds=0.3))
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(errors.DecodeTimeout):
            list(parts)
        assert not psutil.pid_exists(pid)
        _, parts = begun(decoder, clip)
        decoder.kill()
        with pytest.raises(errors.DecoderKilled):
            list(parts)
        assert len(decoder.decode(clip).frames) == 8


def test_a_request_for_nothing_is_refused() -> None:
    nonsense: tuple[dict[str, Any], ...] = ({"short_side": 0}, {"audio_rate": 0}, {"chunk_bytes": 0})
    for how in nonsense:
        with pytest.raises(ValueError, match="at least 1"):
            DecodeRequest(**how)


def test_a_chunk_holds_so_many_frames_at_most_however_small() -> None:
    dots = (np.full((1, 1, 3), number % 256, np.uint8) for number in range(2 * CHUNK_FRAMES + 1))
    chunks = list(split_into_chunks(((dot,) for dot in dots), np.arange(2 * CHUNK_FRAMES + 1) / 10, 1 << 20))
    assert [len(chunk.pts) for chunk in chunks] == [CHUNK_FRAMES, CHUNK_FRAMES, 1]
    assert chunks[1].pixels[0][0, 0, 0, 0] == CHUNK_FRAMES % 256
