"""Decodes and captions rows: the two kinds of actors that Ray Data runs, many decoders for an engine.

A video that cannot be captioned continues as a row with its error. What passes between the two is pickled;
the captioning side gives frames to a worker's engine process together, and outlives one that dies.
"""

import os
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray

from app.bulk.rows import SCHEMA, DoneVideos, outcome_row
from app.documents.job import Answer
from app.errors import EngineCrashed, EngineFault, JobFailure, UploadMissing
from app.extract.inputs import local_copy, stamp_of
from app.fetching.fetch import FetchLimits
from app.jobs.options import CaptionOptions
from app.pipeline.caption_files import FileReader, Outcome, caption_together
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, ignore_progress, load_engine
from app.settings import Settings
from app.worker.engine.process import EngineDied, EngineProcess, EngineRaised
from extractors.errors import ReelwordError
from extractors.features import Footage
from extractors.files import sha256_of, write_path
from extractors.media.request import DecodeRequest

Row = dict[str, Any]
Batch = dict[str, NDArray[np.object_]]

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
        self.reader, self._fetch_limits = FileReader(settings, request, options), FetchLimits.of(settings)
        self._run, self._done = run, done

    def __call__(self, row: Row) -> list[Row]:
        """Returns the row with its frames, or none where it is done."""
        path, sha256 = os.fsdecode(row["path"]), ""
        file, stamp = write_path(path), stamp_of(path)
        if self._done.is_unchanged(file, stamp):
            return []
        try:
            with local_copy(path, self._fetch_limits) as copy:
                sha256 = sha256_of(copy)
                if self._done.has(file, sha256):
                    return []
                outcome = self.reader.read(copy)
        except OSError as error:
            outcome = Outcome(Answer(), error=UploadMissing(f"The file cannot be read: {error}."))
        except ReelwordError as error:
            outcome = Outcome(Answer(), error=error)
        if not sha256 and self._done.has(file, ""):  # unreadable before, too
            return []
        facts = {"file": file, "stamp": stamp, "sha256": sha256, "run": self._run}
        return [{**facts, "outcome": pickle.dumps(outcome, 5)}]


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
        outcomes = [pickle.loads(row["outcome"]) for row in rows]
        try:
            outcomes = caption_together(outcomes, self._caption)
        except (EngineDied, EngineRaised):
            outcomes = [each if each.error is not None else self._caption_alone(each) for each in outcomes]
        captioned = [outcome_row(*each) for each in zip(rows, outcomes, strict=True)]
        return pa.Table.from_pylist(captioned, schema=SCHEMA)

    def _caption_alone(self, video: Outcome) -> Outcome:
        for _ in range(1, self._most):  # it was tried with the others
            try:
                return caption_together([video], self._caption)[0]
            except EngineDied as death:
                log.warning("the engine ended", how=str(death))
            except EngineRaised as error:
                fault = EngineFault(f"The engine met an error ({str(error).partition(':')[0]}).")
                return replace(video, error=fault)
        crashed = EngineCrashed(f"The engine ended {self._most} times while it captioned this video.")
        return replace(video, error=crashed)

    def _caption(self, videos: Sequence[Footage]) -> Sequence[EngineAnswer | JobFailure]:
        self._engine.start()
        return self._engine.run(videos, [self._options] * len(videos), ignore_progress)
