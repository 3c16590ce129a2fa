"""A film of any length whose cuts are known: clips joined, each encoded once and then repeated as packets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

WIDTH, HEIGHT, RATE = 320, 180, 25
SHORTEST, LONGEST = 3.0, 9.0  #: seconds of a part
ENCODER = {"preset": "veryfast", "crf": "28", "bf": "0", "g": "250", "sc_threshold": "0", "threads": "1"}
PATTERNS = 40

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class EncodedClip:
    """A piece of one clip, encoded: a key frame and what follows it.

    source: index of its clip. header: what a decoder needs, the same for all.
    packets: (bytes, whether it is a key frame) of each frame.
    """

    source: int
    header: bytes
    packets: tuple[tuple[bytes, bool], ...]


def encode_parts(clips: Sequence[Path], seed: int = 0) -> list[EncodedClip]:
    """A random piece of each clip that is long enough; of drawn patterns where there are no clips."""
    generator = random.Random(seed)
    encoded = (_encode_part(number, pictures, generator) for number, pictures in _sources(clips))
    return [part for part in encoded if part is not None]


def write_joined(
    path: Path, parts: Sequence[EncodedClip], seconds: float, seed: int = 0, rate: int = RATE
) -> list[float]:
    """Writes a film of parts in a random order, no clip after itself.

    Args:
        path: an mp4 file.
        parts: of ``encode_parts``.
        seconds: the film is as long, or longer by less than a part.
        seed: of the order.
        rate: frames a second; below ``RATE`` the parts play slowly, and a long film has few frames.

    Returns:
        Seconds at which a part other than the first begins.
    """
    cuts, frame = [], 0
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("libx264", rate=rate, options=ENCODER)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.extradata = parts[0].header
        for part in _shuffled(parts, random.Random(seed)):
            if frame >= seconds * rate:
                break
            cuts.append(frame / rate)
            for content, is_key in part.packets:
                out.mux(_packet(content, is_key, frame, stream))
                frame += 1
    return cuts[1:]


def _packet(content: bytes, is_key: bool, frame: int, stream: Any) -> av.Packet[Any]:
    packet = av.Packet(content)
    packet.pts = packet.dts = frame
    packet.duration, packet.time_base = 1, Fraction(1, int(stream.average_rate or RATE))
    packet.is_keyframe, packet.stream = is_key, stream
    return packet


def _shuffled(parts: Sequence[EncodedClip], generator: random.Random) -> Iterator[EncodedClip]:
    """All parts again and again, each time in another order."""
    last: EncodedClip | None = None
    while True:
        order = generator.sample(parts, len(parts))
        if last is not None and order[0].source == last.source:
            order.append(order.pop(0))
        yield from order
        last = order[-1]


def _encode_part(source: int, pictures: Sequence[Picture], generator: random.Random) -> EncodedClip | None:
    """A random piece of a clip's pictures; None where the clip is too short."""
    length = min(len(pictures), round(generator.uniform(SHORTEST, LONGEST) * RATE))
    if length < SHORTEST * RATE:
        return None
    first = generator.randint(0, len(pictures) - length)
    codec: Any = av.CodecContext.create("libx264", "w")
    codec.width, codec.height, codec.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    codec.time_base, codec.framerate = Fraction(1, RATE), Fraction(RATE)
    codec.options = ENCODER
    codec.flags |= av.codec.context.Flags.global_header
    packets = []
    for index, picture in enumerate([*pictures[first : first + length], None]):
        frame = None
        if picture is not None:
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, RATE)
        packets += [(bytes(packet), bool(packet.is_keyframe)) for packet in codec.encode(frame)]
    return EncodedClip(source, codec.extradata, tuple(packets))


def _sources(clips: Sequence[Path]) -> Iterator[tuple[int, list[Picture]]]:
    if not clips:
        for number in range(PATTERNS):
            yield number, _pattern(number)
    for number, clip in enumerate(clips):
        yield number, read_pictures(clip)


def read_pictures(clip: Path) -> list[Picture]:
    """A clip's first pictures at ``RATE``, squashed to the film's size."""
    pictures: list[Picture] = []
    with av.open(str(clip)) as container:
        for frame in container.decode(video=0):
            picture = np.asarray(frame.to_ndarray(width=WIDTH, height=HEIGHT, format="rgb24"), np.uint8)
            due = int((frame.time or 0.0) * RATE) + 1
            pictures += [picture] * max(0, due - len(pictures))
            if len(pictures) > 2 * LONGEST * RATE:
                break
    return pictures


def _pattern(number: int) -> list[Picture]:
    """Soft blotches that drift: a scene where there is no footage."""
    generator = np.random.default_rng(number)
    coarse = generator.integers(0, 256, (5, 8, 3), dtype=np.uint8)
    picture = np.asarray(Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))
    return [np.roll(picture, index, axis=1) for index in range(round(LONGEST * RATE))]
