"""Captions video files: reads each, then has several captioned together, here or by an engine elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.documents.job import Answer
from app.errors import JobFailure
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress, media_answer
from app.settings import Settings
from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.features import Footage
from extractors.media.errors import MediaError
from extractors.media.request import DecodeRequest, Limits


@dataclass(frozen=True, eq=False)
class Outcome:
    """Holds what became of one file so far: it has been read, captioned, or has failed."""

    answer: Answer  #: as far as it came
    footage: Footage | None = None  #: what the captioner looks at
    error: ReelwordError | None = None  #: why it failed
    attention: str | None = None  #: the document as JSON

    @property
    def frames(self) -> NDArray[np.uint8] | None:
        """Returns the frames that were used (T, H, W, 3); None where none was read."""
        return None if self.footage is None else self.footage.shown_frames.pixels

    def joined_with(self, answer: EngineAnswer | JobFailure) -> Self:
        """Adds what the engine answers."""
        if isinstance(answer, JobFailure):
            return replace(self, error=answer)
        return replace(self, answer=self.answer.joined_with(answer.answer), attention=answer.attention)


#: Captions the frames of several videos together.
CaptionFrames: TypeAlias = Callable[[Sequence[Footage]], Sequence[EngineAnswer | JobFailure]]


class FileReader:
    """Reads of files what a captioner looks at.

    settings: limits of decoding. request: the frames that the captioner looks at. options: of captioning.
    """

    def __init__(self, settings: Settings, request: DecodeRequest, options: CaptionOptions) -> None:
        self.decoder = Decoder(settings.decoder)
        self._limits = Limits(seconds=settings.decode_seconds, memory=settings.decode_memory)
        self._request, self._options = request, options

    def read(self, file: Path) -> Outcome:
        """Reads a file; one that cannot be read has its error in what is returned."""
        began = time.perf_counter()
        try:
            decoded = self.decoder.decode(file, self._request, self._limits)
        except MediaError as error:
            return Outcome(Answer(), error=error)
        return Outcome(media_answer(decoded, time.perf_counter() - began, self._options), decoded.footage)


def caption_together(outcomes: Sequence[Outcome], caption: CaptionFrames) -> list[Outcome]:
    """Has those that were read captioned in one call; those that have failed stay as they are."""
    videos = [each.footage for each in outcomes if each.error is None and each.footage is not None]
    answers = iter(caption(videos) if videos else ())
    return [each if each.error is not None else each.joined_with(next(answers)) for each in outcomes]


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
    reader = FileReader(settings, engine.info.request_for(options.choice), options)

    def caption(videos: Sequence[Footage]) -> Sequence[EngineAnswer | JobFailure]:
        return engine.describe_and_caption(videos, [options] * len(videos), ignore_progress)

    with reader.decoder:
        for first in range(0, len(files), settings.batch_jobs):
            batch = files[first : first + settings.batch_jobs]
            yield from caption_together([reader.read(file) for file in batch], caption)
