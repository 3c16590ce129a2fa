"""The decode report: what was found in the file against what its header claims."""

from __future__ import annotations

from collections.abc import Iterator

from extractors.index import Index
from extractors.look import Look
from extractors.reading import Reading
from extractors.timeline import Timeline
from extractors.video import MediaWarning, Video

# Header durations that run on by more than this are a missing end, where no sound explains them.
DURATION_SLACK = 1.0
ANIMATIONS = ("gif", "apng")
HEADER_DURATION_FORMATS = ("matroska,webm", "flv")


def report(look: Look, index: Index, reading: Reading, timeline: Timeline) -> Video:
    """Everything that is known about the file after its frames were read."""
    expected = None if look.expected is None else max(0, look.expected - index.hidden)
    sound = look.sound
    return Video(
        container=look.container,
        codec=look.codec,
        duration=timeline.duration,
        width=look.display.width,
        height=look.display.height,
        rotation=look.display.rotation,
        fps=look.fps,
        fps_average=len(timeline) / timeline.duration,
        frames=len(timeline),
        frames_expected=expected,
        frames_counted=reading.complete,
        frames_lost=reading.lost,
        times_estimated=timeline.estimated,
        has_audio=sound is not None,
        audio_codec=sound.codec if sound else None,
        audio_channels=sound.channels if sound else None,
        audio_rate=sound.rate if sound else None,
        warnings=(*look.warnings, *_file_warnings(look, index, reading, timeline, expected)),
    )


def _file_warnings(
    look: Look, index: Index, reading: Reading, timeline: Timeline, expected: int | None
) -> Iterator[MediaWarning]:
    found, duration = len(timeline), timeline.duration
    if expected is not None and index.packets - index.hidden - index.damaged < expected:
        yield MediaWarning("incomplete", f"The header promises {expected} frames and the file has {found}.")
    elif _ends_early(look, duration):
        claim = f"The header promises {look.container_duration:.1f} seconds"
        yield MediaWarning("incomplete", f"{claim} and the pictures end at {duration:.1f}.")
    if found == 1 and look.container in ANIMATIONS:
        yield MediaWarning("still_image", "The file is a single picture, not a video.")
    if reading.lost:
        yield MediaWarning("frames_lost", f"{reading.lost} frames could not be decoded and were passed over.")
    if reading.damaged:
        yield MediaWarning("frames_damaged", f"{reading.damaged} frames were decoded with errors in them.")
    if timeline.estimated:
        yield MediaWarning("times_estimated", "The file has no usable times; they follow from its rate.")


def _ends_early(look: Look, duration: float) -> bool:
    claimed = look.container_duration
    if look.container not in HEADER_DURATION_FORMATS or claimed is None or look.sound is not None:
        return False
    return claimed > duration + max(DURATION_SLACK, 0.1 * claimed)
