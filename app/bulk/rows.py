"""Declares a row of the answer, and reads which rows there are already."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog
from numpy.typing import NDArray

from app.extract.storage import Location
from app.pipeline.caption_files import Outcome
from extractors.files import atomic_write

KEY = np.dtype("S16")

log = structlog.get_logger(__name__)

#: What says which videos have their row; parts of earlier versions have no stamps.
KEYS = pa.schema([(name, pa.string()) for name in ("file", "sha256", "run", "stamp")])
#: code, message, hint: of a video that could not be captioned, else null. run: what the caption depends on
#: beside the video. stamp: of app/extract/inputs.py, null where there is none. captions: JSON, best first,
#: as in a job. Times in seconds.
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
        ("stamp", pa.string()),
    ]
)


@dataclass(frozen=True, eq=False)
class DoneVideos:
    """Holds which videos have their row, by 16 bytes each: every decoder of a cluster has a copy."""

    keys: NDArray[np.bytes_]  #: (N,), sorted, of paths with their sha256
    #: The same of paths with their stamps.
    stamps: NDArray[np.bytes_] = field(default_factory=lambda: np.empty(0, KEY))

    def __len__(self) -> int:
        return len(self.keys)

    def has(self, file: str, sha256: str) -> bool:
        """Returns whether a file with these bytes has a row; sha256 is "" where it could not be read."""
        return _is_among(self.keys, video_key(file, sha256))

    def is_unchanged(self, file: str, stamp: str | None) -> bool:
        """Returns whether a file with this stamp has a row: it need not be read to know."""
        return stamp is not None and _is_among(self.stamps, video_key(file, stamp))


def _is_among(keys: NDArray[np.bytes_], key: bytes) -> bool:
    place = int(np.searchsorted(keys, np.array(key, KEY)))
    return place < len(keys) and bool(keys[place] == np.array(key, KEY))


def outcome_row(facts: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Makes the row of a video.

    Args:
        facts: ``file``, ``sha256``, ``run`` and ``stamp``.
        outcome: its caption, or why it has none.
    """
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row.update({name: facts[name] for name in KEYS.names})
    answer = outcome.answer
    media = {} if answer.media is None else answer.media.model_dump()
    row.update({name: media.get(name) for name in ("duration", "width", "height", "frames", "codec")})
    row["sampled"] = answer.sampled or []
    row["warnings"] = [warning.code for warning in answer.warnings]
    if outcome.error is not None:
        return {**row, **outcome.error.document()}
    captions, model = answer.captions or [], answer.model
    return {
        **row,
        "caption": answer.caption,
        "score": captions[0].score if captions else None,
        "captions": "[" + ",".join(each.model_dump_json() for each in captions) + "]",
        "captioner": None if model is None else model.captioner,
        "weights_sha256": None if model is None else model.weights_sha256,
    }


def find_done(out: Location, run: str) -> DoneVideos:
    """Finds videos with a row of this run, if the folder is there, and removes parts half written."""
    keys, stamps = [np.empty(0, KEY)], [np.empty(0, KEY)]
    for _, table in _parts(out, run):
        keys.append(np.array([video_key(*row) for row in _files_of(table)], KEY))
        stamped = zip(table["file"].to_pylist(), table["stamp"].to_pylist(), strict=True)
        stamps.append(np.array([video_key(file, stamp) for file, stamp in stamped if stamp], KEY))
    return DoneVideos(*(np.unique(np.concatenate(each)) for each in (keys, stamps)))


def drop_doubles(out: Location, run: str) -> int:
    """Writes the parts anew that have second rows of a video in this run, and returns how many it dropped.

    There are two of a video that one run could not read and a later one could, and where workers of a run
    whose driver had been killed wrote while the next one had begun.
    """
    seen: set[bytes] = set()
    files = (row for _, table in _parts(out, run) for row in _files_of(table))
    was_read = {video_key(file, "") for file, sha256 in files if sha256}
    dropped = 0
    for part, table in _parts(out, run):
        twice = []
        for file, sha256 in _files_of(table):
            key = video_key(file, sha256)
            twice.append(key in seen or (not sha256 and key in was_read))
            seen.add(key)
        if any(twice):
            _write_without(out, part, run, twice)
            dropped += sum(twice)
    return dropped


def _parts(out: Location, run: str) -> Iterator[tuple[str, pa.Table]]:
    """Yields the path of each part with file and sha256 of the run's rows."""
    for part in out.list_files():
        if not part.endswith(".parquet"):
            continue
        try:
            table = pq.read_table(part, schema=KEYS, filesystem=out.files)
        except (pa.ArrowException, OSError) as error:
            if not out.is_local:  # a store has objects whole or not at all: it did not answer
                raise
            log.warning("a part that is not whole is removed", part=part, why=str(error)[:200])
            out.files.delete_file(part)
            continue
        yield part, table.filter(pc.equal(table["run"], run))


def _write_without(out: Location, part: str, run: str, twice: list[bool]) -> None:
    table = pq.read_table(part, filesystem=out.files)
    marks = iter(twice)
    kept = [each.as_py() != run or not next(marks) for each in table["run"]]
    rest = table.filter(pa.array(kept))
    if not len(rest):
        out.files.delete_file(part)
    elif out.is_local:
        with atomic_write(Path(part)) as file:
            pq.write_table(rest, file)
    else:
        pq.write_table(rest, part, filesystem=out.files)


def video_key(file: str, sha256: str) -> bytes:
    """Makes 16 bytes of a path and its bytes' digest, which is empty where they could not be read."""
    return hashlib.blake2b(f"{file}\0{sha256}".encode(), digest_size=16).digest()


def _files_of(table: pa.Table) -> list[tuple[str, str]]:
    """Reads each row's file and sha256, which is empty where the file could not be read."""
    return list(zip(table["file"].to_pylist(), table["sha256"].to_pylist(), strict=True))
