"""Captions video files in this process: decodes, computes features, writes captions."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.documents.job import Answer
from app.errors import JobFailure
from app.jobs.job import State
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress, media_answer
from app.settings import Settings
from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.media.errors import MediaError
from extractors.media.request import Decoded, Limits


@dataclass(frozen=True, eq=False)
class Outcome:
    """Holds what became of one file."""

    file: Path
    answer: Answer  #: as far as it came
    attention: str | None  #: the document as JSON
    frames: NDArray[np.uint8] | None  #: (T, H, W, 3), those that were used
    error: ReelwordError | None  #: why it failed

    @property
    def state(self) -> State:
        return "succeeded" if self.error is None else "failed"


def caption_videos(
    files: Sequence[Path], options: CaptionOptions, settings: Settings, engine: Engine | None = None
) -> Iterator[Outcome]:
    """Captions files, ``settings.batch_jobs`` at a time.

    Args:
        options: the same for all; who writes is chosen here where they leave it open.
        settings: limits of decoding, and of the engine.
        engine: one that is loaded already.

    Yields:
        What became of each file in its turn; one that cannot be read or captioned has its error there.

    Raises:
        EngineStartFailed: the models do not load.
        JobFailure: no captioner can write as the options ask.
    """
    engine = engine or Engine(settings)
    options = engine.info.resolve(options)
    limits = Limits(seconds=settings.decode_seconds, memory=settings.decode_memory)
    with Decoder(settings.decoder) as decoder:
        for first in range(0, len(files), settings.batch_jobs):
            batch = files[first : first + settings.batch_jobs]
            yield from _caption_batch(batch, options, engine, decoder, limits)


def _caption_batch(
    files: Sequence[Path], options: CaptionOptions, engine: Engine, decoder: Decoder, limits: Limits
) -> list[Outcome]:
    read: dict[Path, tuple[Decoded, Answer]] = {}
    outcomes: dict[Path, Outcome] = {}
    for file in files:
        began = time.perf_counter()
        try:
            decoded = decoder.decode(file, engine.info.request_for(options.choice), limits)
        except MediaError as error:
            outcomes[file] = Outcome(file, Answer(), None, None, error)
        else:
            read[file] = decoded, media_answer(decoded, time.perf_counter() - began, options)
    videos = [decoded.footage for decoded, _ in read.values()]
    answers = engine.describe_and_caption(videos, [options] * len(videos), ignore_progress) if videos else []
    for (file, (decoded, media)), answer in zip(read.items(), answers, strict=True):
        outcomes[file] = _outcome(file, decoded, media, answer)
    return [outcomes[file] for file in files]


def _outcome(file: Path, decoded: Decoded, media: Answer, answer: EngineAnswer | JobFailure) -> Outcome:
    pixels = decoded.footage.shown_frames.pixels
    if isinstance(answer, JobFailure):
        return Outcome(file, media, None, pixels, answer)
    return Outcome(file, media.joined_with(answer.answer), answer.attention, pixels, None)
