"""A wrong time is mended in its place, and no single one rules the film."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extractors.media import decode
from extractors.media.containers.packet_index import UNTIMED
from extractors.media.decode import Decoded, DecodeRequest, Sampling, decode_here, stream_here
from extractors.media.frame_reader import read_in_order
from extractors.media.stream_parts import FrameChunk, StreamEnd, StreamStart
from extractors.media.timeline import find_rising, mend_ticks
from extractors.windows import Windows
from tests.media import numbered, read_number, write_video

FRAMES, STEP = 60, 0.1
EVEN = [index * STEP for index in range(FRAMES)]
PAUSED = [index * STEP + (40 if index >= 30 else 0) for index in range(FRAMES)]
BAD = 21
CONTAINERS = ("mp4", "mkv", "flv", "ts", "mov", "nut")
EVERY = DecodeRequest(Sampling(fps=10, max_frames=100_000))


def with_times(source: Path, path: Path, times: Sequence[float], good: Sequence[float]) -> Path:
    """A copy whose k-th shown frame carries ``times[k]``; the times of decoding follow ``good``."""
    with av.open(str(source)) as film:
        stream = film.streams.video[0]
        packets = [packet for packet in film.demux(stream) if packet.size]
        shown = sorted(packet.pts or 0 for packet in packets)
        with av.open(str(path), "w") as out:
            copied = out.add_stream_from_template(stream)
            for position, packet in enumerate(packets):
                place = shown.index(packet.pts or 0)
                packet.pts = round((1 + times[place]) / packet.time_base)
                packet.dts = round((0.6 + good[position]) / packet.time_base)
                packet.stream = copied
                out.mux(packet)
    return path


def doubled(times: Sequence[float]) -> list[float]:
    return [times[at - 1] if at == BAD else time for at, time in enumerate(times)]


def backward(times: Sequence[float]) -> list[float]:
    return [times[at - 1] - 1.5 * STEP if at == BAD else time for at, time in enumerate(times)]


def ahead(times: Sequence[float]) -> list[float]:
    return [times[at] + 1000 if at == BAD else time for at, time in enumerate(times)]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("straight") / "a.mkv"
    return write_video(path, frames=FRAMES, painter=numbered, options={"bf": "0", "g": "20"})


@pytest.fixture(scope="module")
def reordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reordered") / "a.mkv"
    return write_video(path, frames=FRAMES, painter=numbered, options={"bf": "2", "g": "20"})


def codes(decoded: Decoded) -> list[str]:
    return [warning.code for warning in decoded.video.warnings]


def assert_clock(decoded: Decoded, times: Sequence[float]) -> None:
    """Every frame is there, at its right time."""
    assert [read_number(picture) for picture in decoded.frames.pixels] == list(range(len(times)))
    assert decoded.frames.pts == pytest.approx(np.array(times), abs=2e-3)
    assert decoded.video.duration == pytest.approx(times[-1] + STEP, abs=0.02)
    assert not decoded.video.times_estimated


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("times", [EVEN, PAUSED], ids=["even", "paused"])
def test_good_times_are_left_alone(
    container: str, times: list[float], straight: Path, tmp_path: Path
) -> None:
    decoded = decode_here(with_times(straight, tmp_path / f"a.{container}", times, times), EVERY)
    assert_clock(decoded, times)
    assert codes(decoded) == []


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("wrong", [doubled, backward, ahead])
@pytest.mark.parametrize("times", [EVEN, PAUSED], ids=["even", "paused"])
def test_one_wrong_time_is_mended_in_its_place(
    container: str,
    wrong: Callable[[Sequence[float]], list[float]],
    times: list[float],
    straight: Path,
    tmp_path: Path,
) -> None:
    path = with_times(straight, tmp_path / f"a.{container}", wrong(times), times)
    decoded = decode_here(path, EVERY)
    assert_clock(decoded, times)
    # the writer of flv takes a time far ahead for the film's duration, and promises that
    promised = ["incomplete"] if container == "flv" and wrong is ahead else []
    assert codes(decoded) == [*promised, "times_mended"]
    assert "1 of 60 frames" in decoded.video.warnings[-1].message


@pytest.mark.parametrize("container", ["mp4", "mkv", "flv", "ts"])
def test_a_doubled_time_among_reordered_frames(container: str, reordered: Path, tmp_path: Path) -> None:
    path = with_times(reordered, tmp_path / f"a.{container}", doubled(EVEN), EVEN)
    decoded = decode_here(path, EVERY)
    assert_clock(decoded, EVEN)
    assert codes(decoded) == ["times_mended"]


def without_time(path: Path, which: int) -> Path:
    """Take the time from the picture of that number in a transport stream."""
    content = bytearray(path.read_bytes())
    seen = -1
    for at in range(0, len(content), 188):
        header = content[at + 3] >> 4 & 3
        pes = at + 4 + (1 + content[at + 4] if header == 3 else 0)
        if content[at + 1] & 0x40 and content[pes : pes + 3] == b"\0\0\1" and content[pes + 3] >= 0xE0:
            seen += 1
            if seen == which:
                size = content[pes + 8]
                content[pes + 7] = 0
                content[pes + 9 : pes + 9 + size] = b"\xff" * size
    path.write_bytes(content)
    return path


def test_a_missing_time_in_a_transport_stream(straight: Path, tmp_path: Path) -> None:
    path = without_time(with_times(straight, tmp_path / "a.ts", PAUSED, PAUSED), BAD)
    assert_clock(decode_here(path, EVERY), PAUSED)


@pytest.mark.parametrize("pause", [5.0, 15.0, 700.0, 3600.0])
def test_a_pause_in_a_transport_stream_is_a_pause(pause: float, straight: Path, tmp_path: Path) -> None:
    times = [time + (pause if at >= 30 else 0) for at, time in enumerate(EVEN)]
    decoded = decode_here(with_times(straight, tmp_path / "a.ts", times, times), EVERY)
    assert_clock(decoded, times)
    assert codes(decoded) == []


@pytest.mark.parametrize(
    ("ending", "step", "told"),
    [
        ("ts", 10.0, ["long_stays"]),
        ("ts", 1.0, ["long_stays"]),
        ("ts", 0.5, []),
        ("mp4", 10.0, []),
        ("mkv", 10.0, []),
    ],
)
def test_frames_that_stay_long_are_told_of_where_the_container_forbids_it(
    ending: str, step: float, told: list[str], tmp_path: Path
) -> None:
    path = write_video(tmp_path / f"a.{ending}", frames=10, pts=[step * at for at in range(10)])
    assert codes(decode_here(path)) == told


@pytest.mark.parametrize("jump_at", [10, 30, 50])
@pytest.mark.parametrize("later", [10.0, 1000.0])
def test_a_clock_that_jumps_back_goes_on(jump_at: int, later: float, straight: Path, tmp_path: Path) -> None:
    """Two recordings in one stream, the first of them by a later clock."""
    times = [later + time for time in EVEN]
    first = with_times(straight, tmp_path / "a.ts", times, times)
    second = with_times(straight, tmp_path / "b.ts", EVEN, EVEN)
    joined = tmp_path / "c.ts"
    packets = first.read_bytes()
    joined.write_bytes(packets[: len(packets) * jump_at // FRAMES // 188 * 188] + second.read_bytes())
    decoded = decode_here(joined, EVERY)
    assert decoded.video.duration == pytest.approx(decoded.video.frames * STEP, abs=0.5)
    assert {"times_mended", "times_estimated"} & set(codes(decoded))


def test_a_wrong_time_costs_no_second_reading(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = []

    def counted(*arguments: object) -> object:
        readings.append(arguments)
        return read_in_order(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(decode, "read_in_order", counted)
    for wrong in (doubled, backward):
        decode_here(with_times(straight, tmp_path / "a.mkv", wrong(PAUSED), PAUSED), EVERY)
    assert len(readings) == 2


def test_streaming_mends_alike(straight: Path, tmp_path: Path) -> None:
    path = with_times(straight, tmp_path / "a.mp4", doubled(PAUSED), PAUSED)
    every = Windows(extraction_fps=10, most=10_000)
    parts = list(stream_here(path, DecodeRequest(None, None, windows=(every,))))
    begin = next(part for part in parts if isinstance(part, StreamStart))
    times = np.concatenate([part.pts for part in parts if isinstance(part, FrameChunk)])
    assert begin.duration == pytest.approx(46.0, abs=0.02)
    assert times == pytest.approx(np.array(PAUSED), abs=2e-3)
    end = parts[-1]
    assert isinstance(end, StreamEnd)
    assert [warning.code for warning in end.video.warnings] == ["times_mended"]


# The second of two equal times is the wrong one where there is room behind, the first where there is before.
@pytest.mark.parametrize(
    ("ticks", "right"),
    [
        ([0, 1, 2, 2, 4, 5], [0, 1, 2, 3, 4, 5]),
        ([0, 1, 2, 4, 4, 5], [0, 1, 2, 3, 4, 5]),
        ([0, 1, 2, 2, 3, 4], [0, 1, 2, 2.5, 3, 4]),
        ([0, 1, 2, 3, 31, 31, 32, 60, 61, 62], [0, 1, 2, 3, 30, 31, 32, 60, 61, 62]),
        ([0, 1, 2, 3, 30, 30, 32, 60, 61, 62], [0, 1, 2, 3, 30, 31, 32, 60, 61, 62]),
        ([0, 1, 2, 1, 4, 5], [0, 1, 2, 3, 4, 5]),
        ([0, 1, 2, 90, 4, 5], [0, 1, 2, 3, 4, 5]),
        ([90, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        ([0, 1, 2, 3, 3], [0, 1, 2, 3, 4]),
        ([0, 1, UNTIMED, 3, 4], [0, 1, 2, 3, 4]),
        ([UNTIMED, 1, 2, 3, UNTIMED], [0, 1, 2, 3, 4]),
        ([0, 10, UNTIMED, UNTIMED, 16, 26, 36], [0, 10, 12, 14, 16, 26, 36]),
        ([50, 51, 52, 0, 1, 2, 3, 4, 5], [-3, -2, -1, 0, 1, 2, 3, 4, 5]),
    ],
)
def test_what_a_wrong_time_becomes(ticks: list[int], right: list[float]) -> None:
    values = np.array(ticks, np.int64)
    assert mend_ticks(values, find_rising(values), 1).tolist() == pytest.approx(right)


def longest_rising(ticks: list[int]) -> int:
    """The obvious way: for each tick the longest choice that ends with it."""
    lengths: list[int] = []
    for at, tick in enumerate(ticks):
        before = [lengths[k] for k in range(at) if ticks[k] < tick and ticks[k] != UNTIMED]
        lengths.append(0 if tick == UNTIMED else 1 + max(before, default=0))
    return max(lengths, default=0)


@given(st.lists(st.one_of(st.integers(-50, 50), st.just(UNTIMED)), min_size=1, max_size=40))
def test_the_most_times_that_can_be_kept_are_kept_and_all_rise(ticks: list[int]) -> None:
    values = np.array(ticks, np.int64)
    good = find_rising(values)
    assert good.sum() == longest_rising(ticks)
    assert (np.diff(values[good]) > 0).all()
    if good.any():
        times = mend_ticks(values, good, 3)
        assert (np.diff(times) > 0).all()
        assert (times != values).sum() == (~good).sum()


def stay(path: Path, at: int, seconds: float, tmp_path: Path) -> Path:
    """Let the frame ``at`` of an mp4 of 100 frames stay so long, by its table of stays alone (stts)."""
    content = path.read_bytes()
    begin = content.index(b"stts") - 4
    size = int.from_bytes(content[begin : begin + 4], "big")
    assert int.from_bytes(content[begin + 12 : begin + 16], "big") == 1
    count, delta = (int.from_bytes(content[begin + k : begin + k + 4], "big") for k in (16, 20))
    long = round(seconds * delta / STEP)
    entries = [pair for pair in ((at, delta), (1, long), (count - at - 1, delta)) if pair[0]]
    table = b"".join(value.to_bytes(4, "big") for pair in entries for value in pair)
    table = b"stts" + bytes(4) + len(entries).to_bytes(4, "big") + table
    grown = 4 + len(table) - size
    content = content[:begin] + (4 + len(table)).to_bytes(4, "big") + table + content[begin + size :]
    mended = bytearray(content)
    for name in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
        place = content.index(name) - 4
        mended[place : place + 4] = (int.from_bytes(content[place : place + 4], "big") + grown).to_bytes(
            4, "big"
        )
    changed = tmp_path / "stay.mp4"
    changed.write_bytes(mended)
    return changed


@pytest.fixture(scope="module")
def ten_seconds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ten") / "a.mp4"  # its index lies behind its frames, whose places stay
    return write_video(path, frames=100, painter=numbered, options={"bf": "0"})


@pytest.mark.parametrize("seconds", [3600.0, 100.0, 12.0])
def test_a_stay_that_header_and_edit_list_contradict_is_shortened(
    seconds: float, ten_seconds: Path, tmp_path: Path
) -> None:
    path = stay(ten_seconds, 99, seconds, tmp_path)
    decoded = decode_here(path)
    assert decoded.video.duration == pytest.approx(10.0, abs=0.2)
    assert codes(decoded) == ["stay_shortened"]
    assert [read_number(picture) for picture in decoded.frames.pixels] == [6, 18, 31, 43, 56, 68, 81, 93]


@pytest.mark.parametrize("at", [0, 50])
def test_what_the_edit_list_takes_out_is_not_sampled(at: int, ten_seconds: Path, tmp_path: Path) -> None:
    decoded = decode_here(stay(ten_seconds, at, 3600.0, tmp_path))
    assert decoded.video.duration == pytest.approx(10.0, abs=0.2)
    assert "stay_shortened" in codes(decoded)
    assert decoded.video.frames == at + 1


def test_a_long_stay_that_the_header_knows_of_is_kept(tmp_path: Path) -> None:
    times = [*EVEN, 3600.0]
    path = write_video(tmp_path / "a.mp4", frames=61, pts=times, painter=numbered, options={"bf": "0"})
    decoded = decode_here(path)
    assert decoded.video.duration == pytest.approx(3600.0, abs=1.0)
    assert codes(decoded) == ["fewer_frames"]


def test_fewer_frames_than_asked_for_are_told(tmp_path: Path) -> None:
    times = [0.0, 1.0, 2.0, 3.0, 30.0, 31.0, 32.0, 60.0, 61.0, 62.0]
    path = write_video(tmp_path / "a.mp4", frames=10, pts=times, painter=numbered)
    for request in (DecodeRequest(Sampling(8)), DecodeRequest(windows=(Windows(extraction_total=8),))):
        decoded = decode_here(path, request)
        assert len(decoded.frames) < 8
        assert codes(decoded) == ["fewer_frames"]
    end = list(stream_here(path, DecodeRequest(None, None, windows=(Windows(extraction_total=8),))))[-1]
    assert isinstance(end, StreamEnd)
    assert [warning.code for warning in end.video.warnings] == ["fewer_frames"]
    part = decode_here(path, DecodeRequest(Sampling(8), part=(0.0, 4.0)))
    assert codes(part) == []  # all four that there are


def test_a_short_film_gives_all_it_has_and_nothing_is_told(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=3)
    for request in (DecodeRequest(Sampling(8)), DecodeRequest(Sampling(fps=100))):
        decoded = decode_here(path, request)
        assert len(decoded.frames) == 3
        assert codes(decoded) == []


@pytest.mark.parametrize("rate", [Fraction(25), Fraction(30000, 1001), Fraction(24000, 1001)])
def test_times_rounded_to_milliseconds_are_no_fault(rate: Fraction, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", frames=50, fps=rate)
    assert codes(decode_here(path, DecodeRequest(Sampling(fps=float(rate))))) == []
