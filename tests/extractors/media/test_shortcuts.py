"""What decoding leaves out changes no byte of what it hands over."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import VideoReformatter

from extractors.media import decode, frame_reader
from extractors.media.containers.hevc_layers import find_temporal_layer, measure_length_field
from extractors.media.containers.packet_index import PacketIndex, read_index
from extractors.media.decode import DecodeRequest, Limits, Sampling, decode_here
from extractors.media.display import SCALER, FrameConverter, choose_rgb_layout, plan_display
from extractors.media.frame_reader import MediaSource, Shortcuts, find_shortcuts
from extractors.media.probe import probe_media
from tests.extractors.media.test_decode import WAYS_TO_STORE
from tests.media import numbered, write_video

B_FRAMES = {"g": "40", "bf": "3", "b_strategy": "0"}
HEVC = "keyint=40:bframes=3:b-adapt=0:log-level=none"
WAYS: dict[str, dict[str, Any]] = {
    **WAYS_TO_STORE,
    "h264-b-frames.mp4": {"options": B_FRAMES},
    "h264-b-frames.ts": {"options": B_FRAMES},
    "hevc-b-frames.mkv": {"codec": "libx265", "options": {"x265-params": HEVC}},
    "hevc-layers.mp4": {"codec": "libx265", "options": {"x265-params": f"{HEVC}:temporal-layers=2"}},
    "mpeg2-b-frames.mpg": {"codec": "mpeg2video", "options": {"g": "12", "bf": "2"}, "fps": 25},
    "av1.mkv": {"codec": "libsvtav1", "options": {"preset": "12", "g": "40"}},
}


def write(name: str, folder: Path, frames: int = 80) -> Path:
    return write_video(folder / name, frames=frames, painter=numbered, **{"fps": 10, **WAYS[name]})


@pytest.mark.parametrize("name", WAYS)
def test_few_frames_are_those_of_decoding_everything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(name, tmp_path)
    for request in (DecodeRequest(Sampling(7)), DecodeRequest(Sampling(fps=3))):
        few = decode_here(path, request)
        with monkeypatch.context() as patch:
            patch.setattr(decode, "FEW_FRAMES", 0)
            patch.setattr(decode, "JUMP_BELOW", 0)
            every = decode_here(path, request)
        assert few.frames.pts.tolist() == every.frames.pts.tolist()
        assert np.array_equal(few.frames.pixels, every.frames.pixels)
        assert few.video == every.video


def count_decoded(path: Path, request: DecodeRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Frames that decoders hand over."""
    count, decode_packets = 0, frame_reader.decode_packets

    def counting(*arguments: Any) -> Any:
        nonlocal count
        for frame in decode_packets(*arguments):
            count += 1
            yield frame

    with monkeypatch.context() as patch:
        patch.setattr(frame_reader, "decode_packets", counting)
        decode_here(path, request)
    return count


def test_frames_nobody_refers_to_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("h264-b-frames.mp4", tmp_path)
    left_out = count_decoded(path, DecodeRequest(Sampling(4)), monkeypatch)
    monkeypatch.setattr(frame_reader, "SKIPPING_CODECS", frozenset())
    assert left_out < 0.75 * count_decoded(path, DecodeRequest(Sampling(4)), monkeypatch)


def test_nothing_is_decoded_behind_the_wanted_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"g": "20", "bf": "0", "sc_threshold": "0"}
    path = write_video(tmp_path / "a.mp4", frames=80, options=options)
    fed = 0
    feed_wanted = frame_reader.feed_wanted

    def counting(*arguments: Any) -> Any:
        nonlocal fed
        for packet in feed_wanted(*arguments):
            fed += packet.size > 0
            yield packet

    monkeypatch.setattr(frame_reader, "feed_wanted", counting)
    decode_here(path, DecodeRequest(Sampling(2)))  # frames 20 and 60: key frames
    assert fed == 2


def test_what_may_hold_half_a_frame_a_packet_is_decoded_whole() -> None:
    index = PacketIndex("mov,mp4,m4a,3gp,3g2,mj2", Fraction(1, 1000), Fraction(25))
    assert find_shortcuts("h264", index) == Shortcuts(skips=True, drains=True)
    assert find_shortcuts("libdav1d", index) == Shortcuts(skips=False, drains=True)
    assert find_shortcuts("wmv2", index) == Shortcuts(skips=False, drains=False)
    index.layered = True
    assert find_shortcuts("hevc", index) == Shortcuts(skips=False, drains=True)
    index.interlaced = True
    assert find_shortcuts("h264", index) == Shortcuts(skips=False, drains=False)


def test_interlaced_film_is_known_before_its_frames_are_read(tmp_path: Path) -> None:
    options = {"x264-params": "interlaced=1:keyint=20"}
    path = write_video(tmp_path / "a.ts", frames=60, height=64, painter=numbered, options=options)
    _, index, probe = decode.examine(path, Limits())
    assert probe.interlaced
    assert index.interlaced


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_temporal_layers_are_read_out_of_packets(suffix: str, layers: int, tmp_path: Path) -> None:
    options = {"x265-params": f"{HEVC}:temporal-layers={layers if layers > 1 else 0}"}
    path = write_video(tmp_path / f"a.{suffix}", frames=40, codec="libx265", options=options)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        field = measure_length_field(stream.codec_context.extradata)
        found = {
            find_temporal_layer(memoryview(packet), field)
            for packet in container.demux(stream)
            if packet.size
        }
    assert found == set(range(layers))
    index = read_index(path, max_pixels=1 << 20, max_frames=100, deadline=float("inf"))
    assert index.layered == (layers > 1)


@pytest.mark.parametrize("content", [b"", b"\x00\x00", b"\x00\x00\x00\x01", b"\xff" * 40, bytes(1000)])
def test_packets_without_sense_have_no_layer(content: bytes) -> None:
    assert find_temporal_layer(memoryview(content), 4) is None
    assert find_temporal_layer(memoryview(content), None) is None


@pytest.mark.parametrize(
    "pix_fmt", ["yuv420p", "yuvj420p", "yuv422p10le", "yuv444p", "nv12", "gbrp", "rgb24"]
)
@pytest.mark.parametrize("side", [None, 64])
def test_planes_hold_the_bytes_of_interleaved_pixels(pix_fmt: str, side: int | None) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (121, 201, 3), np.uint8)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=pix_fmt)
    display = plan_display(frame, None).at(side)
    size = display.stored_width, display.stored_height
    interleaved = VideoReformatter().reformat(frame, *size, "rgb24", interpolation=SCALER, threads=1)
    assert np.array_equal(FrameConverter(display).pixels(frame), interleaved.to_ndarray())
    assert choose_rgb_layout(frame) == ("rgb24" if pix_fmt in ("gbrp", "rgb24") else "gbrp")


def test_a_first_frame_that_the_index_does_not_name_is_decoded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("h264-b-frames.mp4", tmp_path)
    source = MediaSource(path, 1 << 20, float("inf"))
    index = read_index(path, max_pixels=1 << 20, max_frames=100, deadline=float("inf"))
    right = index.pts[0]
    index.pts[0] = index.pts[1] - 1  # a time that no packet has
    assert probe_media(source, index).tick == right
