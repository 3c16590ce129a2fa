"""Defines the decode report: facts about a video file once it has been looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MediaWarning:
    """Something the reader of a caption should know about the file; it did not stop the decoding."""

    code: str
    message: str


@dataclass(frozen=True)
class Video:
    """Facts about one file; times are seconds from the first shown frame.

    width, height: pixels as displayed, rotation and pixel aspect applied.
    rotation: degrees counter-clockwise that the frames were turned by, one of 0, 90, 180, 270.
    fps: nominal rate the container claims, None where it claims none. fps_average: frames ÷ duration.
    frames: shown frames found. frames_expected: what the header claims, None where it claims nothing.
    frames_counted: True where ``frames`` was counted by decoding all of them, False by packets.
    frames_lost: packets that were tried and could not be decoded.
    times_estimated: True where the file has no usable times and they were made from the rate.
    """

    container: str
    codec: str
    duration: float
    width: int
    height: int
    rotation: int
    fps: float | None
    fps_average: float
    frames: int
    frames_expected: int | None
    frames_counted: bool
    frames_lost: int
    times_estimated: bool
    has_audio: bool
    audio_codec: str | None = None
    audio_channels: int | None = None
    audio_rate: int | None = None
    warnings: tuple[MediaWarning, ...] = ()

    def media(self) -> dict[str, Any]:
        """Make the ``media`` member of a job's answer."""
        return {
            "container": self.container,
            "codec": self.codec,
            "duration": round(self.duration, 6),
            "width": self.width,
            "height": self.height,
            "rotation": self.rotation,
            "fps": self.fps,
            "fps_average": round(self.fps_average, 6),
            "frames": self.frames,
            "frames_expected": self.frames_expected,
            "frames_counted": self.frames_counted,
            "frames_lost": self.frames_lost,
            "times_estimated": self.times_estimated,
            "has_audio": self.has_audio,
            "audio_codec": self.audio_codec,
            "audio_channels": self.audio_channels,
            "audio_rate": self.audio_rate,
        }
