"""Decodes and captions rows: the two kinds of actors that Ray Data runs, many decoders for an engine.

A video that cannot be captioned continues as a row with its code. What passes between the two are frames as
bytes; the captioning side gives them to the engine together. An engine that dies of a video is started anew
by Ray, with the same videos: EngineAttempts remembers which had been begun, and which of them is given up.
"""

import os
import pickle
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray

from app.bulk.rows import SCHEMA, DoneVideos, caption_row, failure_row
from app.documents.job import Answer
from app.errors import EngineCrashed, EngineFault, JobFailure, UploadMissing
from app.extract.addresses import local_copy, stamp_of
from app.fetching.fetch import FetchLimits
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, ignore_progress, load_engine, media_answer
from app.settings import Settings
from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.files import sha256_of, write_path
from extractors.media.request import DecodeRequest, Limits

Row = dict[str, Any]
Batch = dict[str, NDArray[np.object_]]
Found = EngineAnswer | JobFailure

log = structlog.get_logger(__name__)


def describe_engine(settings: Settings) -> EngineInfo:
    """Returns what an engine can do: asked where the models are, once for all decoders."""
    return load_engine(settings).warm_up()


class DecodeVideo:
    """Reads one video a call.

    settings: limits of decoding and fetching. request: the frames that the captioner looks at. options: of
    captioning. run: digest of options and weights. done: what has its row already and is passed over.
    """

    def __init__(
        self, settings: Settings, request: DecodeRequest, options: CaptionOptions, run: str, done: DoneVideos
    ) -> None:
        self._decoder = Decoder(settings.decoder)
        self._limits = Limits(seconds=settings.decode_seconds, memory=settings.decode_memory)
        self._fetch_limits = FetchLimits.of(settings)
        self._request, self._options, self._run, self._done = request, options, run, done

    def __call__(self, row: Row) -> list[Row]:
        """Returns the row with its frames, or none where it is done."""
        path = os.fsdecode(row["path"])
        file = write_path(path)
        stamp = stamp_of(path)
        if self._done.is_unchanged(file, stamp):
            return []
        decoded_row = {
            "file": file,
            "stamp": stamp,
            "sha256": "",
            "run": self._run,
            "answer": "{}",
            "frames": b"",
            "failure": b"",
        }
        try:
            with local_copy(path, self._fetch_limits) as copy:
                decoded_row["sha256"] = sha256_of(copy)
                if self._done.has(file, str(decoded_row["sha256"])):
                    return []
                began = time.perf_counter()
                decoded = self._decoder.decode(copy, self._request, self._limits)
        except OSError as error:
            decoded_row["failure"] = pickle.dumps(UploadMissing(f"The file cannot be read: {error}."))
        except ReelwordError as error:
            decoded_row["failure"] = pickle.dumps(error)
        else:
            answer = media_answer(decoded, time.perf_counter() - began, self._options)
            decoded_row |= {"answer": answer.model_dump_json(), "frames": pickle.dumps(decoded.footage, 5)}
        is_recorded = not decoded_row["sha256"] and self._done.has(file, "")  # unreadable before, too
        return [] if is_recorded else [decoded_row]


class EngineAttempts:
    """Counts, as one actor for all engines, how often the captioning of a video was begun and not ended."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()

    def counts(self, videos: Sequence[str]) -> list[int]:
        return [self._begun[video] for video in videos]

    def begin(self, videos: Sequence[str]) -> None:
        self._begun.update(videos)

    def end(self, videos: Sequence[str]) -> None:
        for video in videos:
            del self._begun[video]


class CaptionVideos:
    """Captions several videos a call with one engine, which is loaded once.

    settings: of the engine; how often a video is tried of which it dies, as a job is. options: who writes has
    been chosen in them. attempts: of all engines.
    """

    def __init__(self, settings: Settings, options: CaptionOptions, attempts: EngineAttempts) -> None:
        self._engine, self._options, self._attempts = load_engine(settings), options, attempts
        self._most = settings.attempts

    def __call__(self, batch: Batch) -> pa.Table:
        """Returns a row of SCHEMA for each video."""
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        read = [row for row in rows if not row["failure"]]
        answers = {id(row): outcome for row, outcome in zip(read, self._caption(read), strict=True)}
        return pa.Table.from_pylist([_finish(row, answers.get(id(row))) for row in rows], schema=SCHEMA)

    def _caption(self, rows: Sequence[Row]) -> list[Found]:
        """Captions all together, or one by one where an engine died of them or refused them."""
        names = [f"{row['file']} {row['sha256']}" for row in rows]
        counts = self._attempts.counts(names) if rows else []
        if rows and not any(counts):
            self._attempts.begin(names)
            outcomes = self._try_caption(rows)
            self._attempts.end(names)
            if not isinstance(outcomes, EngineFault):
                return outcomes
        return [self._caption_alone(*each) for each in zip(rows, names, counts, strict=True)]

    def _caption_alone(self, row: Row, name: str, count: int) -> Found:
        if count >= self._most:
            return EngineCrashed(f"The engine ended {self._most} times while it captioned this video.")
        self._attempts.begin([name])
        outcome = self._try_caption([row])
        self._attempts.end([name])
        return outcome if isinstance(outcome, EngineFault) else outcome[0]

    def _try_caption(self, rows: Sequence[Row]) -> list[Found] | EngineFault:
        videos = [pickle.loads(row["frames"]) for row in rows]
        try:
            return self._engine.describe_and_caption(videos, [self._options] * len(videos), ignore_progress)
        except Exception as error:
            log.exception("the engine met an error", files=[row["file"] for row in rows])
            return EngineFault(f"The engine met an error ({type(error).__name__}).")


def _finish(row: Mapping[str, Any], outcome: Found | None) -> Row:
    answer = Answer.model_validate_json(row["answer"])
    if outcome is None:
        return failure_row(row, answer, pickle.loads(row["failure"]))
    if isinstance(outcome, JobFailure):
        return failure_row(row, answer, outcome)
    return caption_row(row, answer.joined_with(outcome.answer))
