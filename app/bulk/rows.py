"""Declares a row of the answer, and reads which rows there are already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from app.documents.job import Answer
from extractors.errors import ReelwordError

log = structlog.get_logger(__name__)

#: code, message, hint: of a video that could not be captioned, else null. run: what the caption depends on
#: beside the video. captions: JSON, best first, as in a job. Times in seconds.
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("sha256", pa.string()),
        ("run", pa.string()),
        ("caption", pa.string()),
        ("score", pa.float64()),
        ("captions", pa.string()),
        ("captioner", pa.string()),
        ("weights_sha256", pa.string()),
        ("duration", pa.float64()),
        ("width", pa.int64()),
        ("height", pa.int64()),
        ("frames", pa.int64()),
        ("codec", pa.string()),
        ("sampled", pa.list_(pa.float64())),
        ("warnings", pa.list_(pa.string())),
        ("code", pa.string()),
        ("message", pa.string()),
        ("hint", pa.string()),
    ]
)

Done = frozenset[tuple[str, str]]
"""Files that have their row: path and sha256."""


def caption_row(known: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """Makes the row of a captioned video.

    Args:
        known: ``file``, ``sha256`` and ``run``.
        answer: what was found out about it.
    """
    captions = answer.captions or []
    model = answer.model
    return {
        **_row_of(known, answer),
        "caption": answer.caption,
        "score": captions[0].score if captions else None,
        "captions": "[" + ",".join(each.model_dump_json() for each in captions) + "]",
        "captioner": None if model is None else model.captioner,
        "weights_sha256": None if model is None else model.weights_sha256,
    }


def failure_row(known: Mapping[str, Any], answer: Answer, error: ReelwordError) -> dict[str, Any]:
    """Makes the row of a video that has no caption.

    Args:
        known: ``file``, ``sha256`` and ``run``.
        answer: what is known all the same.
        error: why there is none.
    """
    return {**_row_of(known, answer), **error.document()}


def _row_of(known: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    media = answer.media
    described = {} if media is None else media.model_dump()
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row.update({name: str(known[name]) for name in ("file", "sha256", "run")})
    row.update({name: described.get(name) for name in ("duration", "width", "height", "frames", "codec")})
    row["sampled"] = answer.sampled or []
    row["warnings"] = [warning.code for warning in answer.warnings]
    return row


def find_done(out: Path, run: str) -> Done:
    """Lists the videos whose rows are in a folder, and removes parts that a killed run left half written.

    Args:
        out: folder of parquet files; it need not be there.
        run: digest of options and weights; rows of another run do not count.
    """
    done: set[tuple[str, str]] = set()
    for part in sorted(out.glob("*.parquet")):
        try:
            rows = pq.read_table(part, columns=["file", "sha256", "run"]).to_pylist()
        except (pa.ArrowException, OSError) as error:
            log.warning("a part that is not whole is removed", part=part.name, why=str(error)[:200])
            part.unlink()
            continue
        done.update((row["file"], row["sha256"]) for row in rows if row["run"] == run)
    return frozenset(done)
