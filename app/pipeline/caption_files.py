"""Captions video files in this process: decodes, computes features, writes captions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import JobFailure
from app.jobs.job import State
from app.jobs.options import CaptionOptions
from app.pipeline import answers as pipeline_answers
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress
from app.settings import Settings
from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.media.errors import MediaError
from extractors.media.request import Decoded, Limits


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one file.

    answer: the members of a job's document that are known, as far as it came. frames: uint8 (T, H, W, 3),
    those that were used. error: why it failed, or None.
    """

    file: Path
    answer: Mapping[str, Any]
    attention: Mapping[str, Any] | None
    frames: NDArray[np.uint8] | None
    error: ReelwordError | None

    @property
    def state(self) -> State:
        return "succeeded" if self.error is None else "failed"


def caption_videos(
    files: Sequence[Path], options: CaptionOptions, settings: Settings, engine: Engine | None = None
) -> Iterator[Outcome]:
    """Captions files, ``settings.batch_jobs`` at a time, and tells of each in its turn.

    A file that cannot be read or captioned has its error in its outcome. Raises EngineStartFailed.
    """
    engine = engine or Engine(settings)
    limits = Limits(seconds=settings.decode_seconds, memory=settings.decode_memory)
    with Decoder(settings.decoder) as decoder:
        for first in range(0, len(files), settings.batch_jobs):
            batch = files[first : first + settings.batch_jobs]
            yield from _caption_batch(batch, options, engine, decoder, limits)


def _caption_batch(
    files: Sequence[Path], options: CaptionOptions, engine: Engine, decoder: Decoder, limits: Limits
) -> list[Outcome]:
    read: dict[Path, tuple[Decoded, dict[str, Any]]] = {}
    outcomes: dict[Path, Outcome] = {}
    for file in files:
        began = time.perf_counter()
        try:
            decoded = decoder.decode(file, engine.request_for(options), limits)
        except MediaError as error:
            outcomes[file] = Outcome(file, {}, None, None, error)
        else:
            read[file] = decoded, pipeline_answers.media_answer(decoded, time.perf_counter() - began)
    videos = [decoded.footage for decoded, _ in read.values()]
    answers = engine.describe_and_caption(videos, [options] * len(videos), ignore_progress) if videos else []
    for (file, (decoded, known)), answer in zip(read.items(), answers, strict=True):
        outcomes[file] = _outcome(file, decoded, known, answer)
    return [outcomes[file] for file in files]


def _outcome(
    file: Path, decoded: Decoded, known: Mapping[str, Any], answer: EngineAnswer | JobFailure
) -> Outcome:
    pixels = decoded.frames.pixels
    if isinstance(answer, JobFailure):
        return Outcome(file, known, None, pixels, answer)
    return Outcome(file, pipeline_answers.whole_answer(known, answer), answer.attention, pixels, None)
