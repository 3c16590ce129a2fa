"""Rows of parquet in a folder and in a store that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.bulk.rows import SCHEMA, drop_doubles, find_done
from app.extract.storage import Location, _file_system, open_location
from tests.app.extract.object_store import ObjectStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore().serving() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        _file_system.cache_clear()
        yield running
        _file_system.cache_clear()


def part(*rows: tuple[str, str, str], run: str = "this") -> pa.Table:
    """Rows of file, sha256 and caption, which is null where that is empty."""
    made: list[dict[str, Any]] = [
        dict.fromkeys(SCHEMA.names) | {"file": file, "sha256": sha256, "run": run, "caption": caption or None}
        for file, sha256, caption in rows
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def captions(out: Location) -> list[tuple[str, str | None]]:
    tables = [pq.read_table(path, filesystem=out.files).to_pylist() for path in out.list_files()]
    return sorted((row["file"], row["caption"]) for rows in tables for row in rows)


@pytest.fixture(params=["folder", "store"])
def out(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> Location:
    store.objects["rows/.keep"] = b""
    return open_location(str(tmp_path) if request.param == "folder" else "s3://rows/captions")


def test_each_video_keeps_one_row(out: Location) -> None:
    parts = {
        "1": part(("a", "1", "a dog"), ("b", "", "")),  # b could not be read
        "2": part(("b", "2", "a cat"), ("c", "3", "a cow"), ("d", "", "")),
        "3": part(("c", "3", "a cow")),  # by a worker whose driver was dead
        "4": part(("c", "4", "another film of this name")),
        "5": part(("a", "1", "of other options"), run="another"),
    }
    for name, table in parts.items():
        pq.write_table(table, f"{out.path}/{name}.parquet", filesystem=out.files)
    assert drop_doubles(out, "this") == 2
    assert captions(out) == sorted(
        [
            ("a", "a dog"), ("a", "of other options"), ("b", "a cat"), ("c", "a cow"),
            ("c", "another film of this name"), ("d", None),
        ]
    )  # fmt: skip
    assert drop_doubles(out, "this") == 0
    done = find_done(out, "this")
    assert [done.has(*each) for each in (("a", "1"), ("c", "4"), ("d", ""), ("b", ""), ("a", "2"))] == [
        True, True, True, False, False,
    ]  # fmt: skip
