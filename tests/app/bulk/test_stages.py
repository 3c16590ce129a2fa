"""What becomes of videos that harm the engine, and of those that cannot be read, without Ray."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.bulk import stages
from app.bulk.rows import KEY, SCHEMA, DoneVideos, find_done, outcome_row, video_key
from app.bulk.stages import Batch, CaptionVideos, DecodeVideo
from app.documents.job import Answer
from app.errors import UploadMissing
from app.extract.storage import open_location
from app.jobs.options import CaptionOptions
from app.pipeline.caption_files import Outcome
from app.pipeline.engine_protocol import EngineAnswer
from app.settings import Settings
from app.worker.engine.process import EngineDied, EngineRaised
from extractors.media.request import DecodeRequest
from tests.media import write_video

NOTHING = DoneVideos(np.empty(0, KEY))


class ScriptedEngine:
    """Captions words as they are, meets an error at "odd" and dies at "deadly", as EngineProcess tells it."""

    def __init__(self, _: Settings) -> None:
        self.seen: Counter[str] = Counter()
        self.is_alive = False

    def begin(self) -> None:
        self.start()

    def start(self) -> None:
        self.is_alive = True

    def run(self, videos: Sequence[str], *_: object) -> list[EngineAnswer]:
        assert self.is_alive
        self.seen.update(videos)
        self.is_alive = "deadly" not in videos
        if not self.is_alive:
            raise EngineDied("signal 9, SIGKILL")
        if "odd" in videos:
            raise EngineRaised("RuntimeError: the shapes do not fit")
        return [EngineAnswer(Answer(caption=video, captions=[]), None) for video in videos]


@pytest.fixture
def captioning(monkeypatch: pytest.MonkeyPatch) -> CaptionVideos:
    monkeypatch.setattr(stages, "EngineProcess", ScriptedEngine)
    return CaptionVideos(Settings(), CaptionOptions())


def batch(*videos: str) -> Batch:
    rows: list[dict[str, Any]] = [
        {
            "file": f"/{video}.mp4",
            "sha256": video,
            "run": "this",
            "stamp": None,
            "outcome": pickle.dumps(
                Outcome(Answer(), error=UploadMissing("It is not there."))
                if video == "broken"
                else Outcome(Answer(), video)  # type: ignore[arg-type]
            ),
        }
        for video in videos
    ]
    return {name: np.array([row[name] for row in rows], object) for name in rows[0]}


def outcomes(captioning: CaptionVideos, *videos: str) -> dict[str, Any]:
    """Each video's caption, or its code."""
    rows = captioning(batch(*videos)).to_pylist()
    return {row["sha256"]: row["caption"] or row["code"] for row in rows}


def test_a_video_that_kills_the_engine_is_given_up_and_the_others_are_captioned(
    captioning: CaptionVideos,
) -> None:
    told = outcomes(captioning, "a", "deadly", "broken", "b")
    assert told == {"a": "a", "deadly": "engine_crashed", "broken": "upload_missing", "b": "b"}
    assert captioning._engine.seen["deadly"] == 3  # type: ignore[attr-defined]
    assert outcomes(captioning, "a", "b", "broken") == {"a": "a", "b": "b", "broken": "upload_missing"}
    assert outcomes(captioning, "broken") == {"broken": "upload_missing"}


def test_a_video_that_cannot_be_read_keeps_its_error_where_nothing_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "EngineProcess", ScriptedEngine)
    once = CaptionVideos(Settings(attempts=1), CaptionOptions())
    assert outcomes(once, "deadly", "broken") == {"deadly": "engine_crashed", "broken": "upload_missing"}


def test_an_error_of_the_engine_is_one_videos_alone(captioning: CaptionVideos) -> None:
    rows = captioning(batch("a", "odd", "b")).to_pylist()
    assert [row["caption"] or row["code"] for row in rows] == ["a", "engine_error", "b"]
    assert rows[1]["message"] == "The engine met an error (RuntimeError)."


def test_a_name_that_is_no_utf8_is_written_as_text_and_its_file_is_read(tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/caf\xe9.mp4"
    write_video(tmp_path / "a.mp4").rename(os.fsdecode(file))
    decode = DecodeVideo(Settings(), DecodeRequest(), CaptionOptions(), "this", NOTHING)
    with decode.reader.decoder:
        (row,) = decode({"path": file})
    assert row["file"] == f"{tmp_path}/caf\\xe9.mp4"
    assert pickle.loads(row["outcome"]).frames is not None
    assert pa.array([row["file"]]).to_pylist() == [row["file"]]
    done = DoneVideos(np.array([video_key(row["file"], row["sha256"])], KEY))
    assert DecodeVideo(Settings(), DecodeRequest(), CaptionOptions(), "this", done)({"path": file}) == []


def test_what_has_its_row_is_not_read_again_unless_size_or_time_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_video(tmp_path / "a.mp4")
    first = DecodeVideo(Settings(), DecodeRequest(), CaptionOptions(), "this", NOTHING)
    with first.reader.decoder:
        (row,) = first({"path": os.fsencode(file)})
    pq.write_table(
        pa.Table.from_pylist([outcome_row(row, Outcome(Answer()))], schema=SCHEMA), tmp_path / "a.parquet"
    )
    older = pa.Table.from_pylist([outcome_row(row | {"file": "/b.mp4"}, Outcome(Answer()))], schema=SCHEMA)
    pq.write_table(older.drop_columns("stamp"), tmp_path / "b.parquet")  # of a version without stamps
    done = find_done(open_location(str(tmp_path)), "this")
    assert len(done) == 2
    assert done.has("/b.mp4", row["sha256"])
    assert not done.is_unchanged("/b.mp4", row["stamp"])
    digests: list[Path] = []

    def digest(path: Path) -> str:
        digests.append(path)
        return str(row["sha256"])

    monkeypatch.setattr(stages, "sha256_of", digest)
    again = DecodeVideo(Settings(), DecodeRequest(), CaptionOptions(), "this", done)
    assert again({"path": os.fsencode(file)}) == []
    assert digests == []
    os.utime(file, ns=(0, 1))  # touched: its bytes are looked at, and are the same
    assert again({"path": os.fsencode(file)}) == []
    assert digests == [file]


def test_a_file_that_cannot_be_read_has_one_row_and_a_new_one_once_it_can(tmp_path: Path) -> None:
    row = {"path": os.fsencode(tmp_path / "a.mp4")}
    (first,) = DecodeVideo(Settings(), DecodeRequest(), CaptionOptions(), "this", NOTHING)(row)
    assert pickle.loads(first["outcome"]).error.code == "upload_missing"
    told = DoneVideos(np.array([video_key(first["file"], "")], KEY))
    decode = DecodeVideo(Settings(), DecodeRequest(), CaptionOptions(), "this", told)
    assert decode(row) == []
    write_video(tmp_path / "a.mp4")
    with decode.reader.decoder:
        (second,) = decode(row)
    assert second["sha256"]
    assert pickle.loads(second["outcome"]).frames is not None
