"""Decodes and captions rows: the two kinds of actors that Ray Data runs, many decoders for an engine.

A video that cannot be captioned continues as a row with its code. What passes between the two are frames as
bytes; the captioning side gives them to a worker's engine process together, and outlives one that dies.
"""

import os
import pickle
import time
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
from app.worker.engine.process import EngineDied, EngineProcess, EngineRaised
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


class CaptionVideos:
    """Captions several videos a call with one engine, a process of its own that is started anew when it dies.

    settings: of the engine; how often a video is tried of which it dies, as a job is. options: who writes has
    been chosen in them.
    """

    def __init__(self, settings: Settings, options: CaptionOptions) -> None:
        self._engine, self._options, self._most = EngineProcess(settings), options, settings.attempts
        self._engine.begin()

    def __call__(self, batch: Batch) -> pa.Table:
        """Returns a row of SCHEMA for each video."""
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        read = [row for row in rows if not row["failure"]]
        answers = {id(row): outcome for row, outcome in zip(read, self._caption(read), strict=True)}
        return pa.Table.from_pylist([_finish(row, answers.get(id(row))) for row in rows], schema=SCHEMA)

    def _caption(self, rows: Sequence[Row]) -> list[Found]:
        """Captions all together, or one by one where the engine died of them or met an error."""
        try:
            return self._run(rows) if rows else []
        except (EngineDied, EngineRaised):
            return [self._caption_alone(row) for row in rows]

    def _caption_alone(self, row: Row) -> Found:
        for _ in range(1, self._most):  # it was tried with the others
            try:
                return self._run([row])[0]
            except EngineDied as death:
                log.warning("the engine ended", file=row["file"], how=str(death))
            except EngineRaised as error:
                return EngineFault(f"The engine met an error ({str(error).partition(':')[0]}).")
        return EngineCrashed(f"The engine ended {self._most} times while it captioned this video.")

    def _run(self, rows: Sequence[Row]) -> list[Found]:
        self._engine.start()
        videos = [pickle.loads(row["frames"]) for row in rows]
        return self._engine.run(videos, [self._options] * len(videos), ignore_progress)


def _finish(row: Mapping[str, Any], outcome: Found | None) -> Row:
    answer = Answer.model_validate_json(row["answer"])
    if outcome is None:
        return failure_row(row, answer, pickle.loads(row["failure"]))
    if isinstance(outcome, JobFailure):
        return failure_row(row, answer, outcome)
    return caption_row(row, answer.joined_with(outcome.answer))
