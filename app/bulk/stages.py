"""Decodes and captions rows: the two kinds of actors that Ray Data runs, many decoders for an engine.

A video that cannot be captioned goes on as a row with its code. What passes between the two are frames as
bytes; the captioning side gives them to the engine together.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.bulk.rows import SCHEMA, Done, caption_row, failure_row
from app.bulk.videos import local_copy
from app.documents.job import Answer
from app.errors import JobFailure, UploadMissing
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineInfo, ignore_progress, load_engine, media_answer
from app.settings import Settings
from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.files import sha256_of
from extractors.media.request import DecodeRequest, Limits

Row = dict[str, Any]
Batch = dict[str, NDArray[np.object_]]


def describe_engine(settings: Settings) -> EngineInfo:
    """Says what an engine would be: where the models are, once for all decoders."""
    return load_engine(settings).warm_up()


class DecodeVideo:
    """Reads one video a call.

    settings: limits of decoding. request: the frames that the captioner looks at. run: digest of options and
    weights. done: what has its row already and is passed over.
    """

    def __init__(self, settings: Settings, request: DecodeRequest, run: str, done: Done) -> None:
        self._decoder = Decoder(settings.decoder)
        self._limits = Limits(seconds=settings.decode_seconds, memory=settings.decode_memory)
        self._request, self._run, self._done = request, run, done

    def __call__(self, row: Row) -> list[Row]:
        """Returns the row with its frames, or none where it is done."""
        file = str(row["file"])
        known = {"file": file, "sha256": "", "run": self._run, "answer": "{}", "frames": b"", "failure": b""}
        try:
            with local_copy(file) as path:
                known["sha256"] = sha256_of(path)
                if (file, known["sha256"]) in self._done:
                    return []
                began = time.perf_counter()
                decoded = self._decoder.decode(path, self._request, self._limits)
        except OSError as error:
            known["failure"] = pickle.dumps(UploadMissing(f"The file cannot be read: {error}."))
        except ReelwordError as error:
            known["failure"] = pickle.dumps(error)
        else:
            answer = media_answer(decoded, time.perf_counter() - began)
            known |= {"answer": answer.model_dump_json(), "frames": pickle.dumps(decoded.footage, 5)}
        return [known]


class CaptionVideos:
    """Captions several videos a call with one engine, which is loaded once.

    settings: of the engine. options: who writes has been chosen in them.
    """

    def __init__(self, settings: Settings, options: CaptionOptions) -> None:
        self._engine, self._options = load_engine(settings), options

    def __call__(self, batch: Batch) -> pa.Table:
        """Returns a row of SCHEMA for each video."""
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        read = [row for row in rows if not row["failure"]]
        videos = [pickle.loads(row["frames"]) for row in read]
        found = self._engine.describe_and_caption(videos, [self._options] * len(videos), ignore_progress)
        answers = {id(row): answer for row, answer in zip(read, found, strict=True)} if videos else {}
        return pa.Table.from_pylist([_finish(row, answers.get(id(row))) for row in rows], schema=SCHEMA)


def _finish(row: Mapping[str, Any], found: Any) -> Row:
    known = Answer.model_validate_json(row["answer"])
    if found is None:
        return failure_row(row, known, pickle.loads(row["failure"]))
    if isinstance(found, JobFailure):
        return failure_row(row, known, found)
    return caption_row(row, known.joined_with(found.answer))
