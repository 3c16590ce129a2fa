"""Seconds of a file as a video of their own: a clip that is cut out of a film by its times alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from extractors.request import Audio, Footage


def cut_out(footage: Footage, start: float, end: float) -> Footage:
    """What was decoded with ``DecodeRequest.part`` (start, end), its clock beginning at ``start``.

    The frame that is on screen at ``start`` begins there, and the sound is that of the part alone.
    """
    end = min(end, footage.duration)
    times = np.maximum(footage.pts - start, 0.0)
    sound = None if footage.sound is None else _sound(footage.sound, start, end)
    return replace(footage, pts=times, duration=end - start, sound=sound)


def _sound(sound: Audio, start: float, end: float) -> Audio:
    first, last = round(start * sound.rate), round(end * sound.rate)
    return replace(sound, samples=sound.samples[first:last])
