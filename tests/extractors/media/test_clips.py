"""Seventy real clips of many makers, where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from extractors.decoder.decoder import Decoder
from extractors.media.decode import DecodeRequest

CLIPS = Path(__file__).resolve().parents[4] / "shared" / "data" / "clips"
SUFFIXES = {".mp4", ".avi", ".gif", ".mkv", ".webm"}


def test_every_clip_is_decoded() -> None:
    if not CLIPS.is_dir():
        pytest.skip("shared/data/clips absent")
    clips = sorted(path for path in CLIPS.iterdir() if path.suffix in SUFFIXES)
    assert len(clips) == 70
    with Decoder() as decoder:
        for clip in clips:
            decoded = decoder.decode(clip, DecodeRequest(short_side=64, audio_rate=16000))
            frames, video = decoded.frames, decoded.video
            assert len(frames) == 8, clip.name
            assert min(frames.pixels.shape[1:3]) <= 64
            assert (np.diff(frames.pts) > 0).all()
            assert frames.pts[-1] < video.duration
            assert video.frames_lost == 0
            assert video.has_audio == (decoded.audio is not None)
            json.dumps(video.media())
