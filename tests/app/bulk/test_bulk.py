"""Collections captioned by Ray Data on this machine, with an engine without models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.bulk.rows import find_done
from app.errors import UsageError
from app.extract.inputs import list_videos
from app.extract.storage import open_location
from tests.media import write_video

pytestmark = pytest.mark.slow

SECONDS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    for name in ("a.mp4", "deeper/b.mp4"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_video(folder / name)
    (folder / "broken.mp4").write_bytes(b"no video at all")
    return folder


def run_bulk(root: Path, source: Path, out: Path, data: Path, *options: str) -> tuple[int, str]:
    """Exit code, and what it says last."""
    code, said = run_and_read(root, source, out, data, *options)
    return code, said[-1]


def run_and_read(root: Path, source: Path, out: Path, data: Path, *options: str) -> tuple[int, list[str]]:
    """Exit code, and all lines that it says."""
    settings = {
        "REELWORD_DATA": str(data),
        "REELWORD_ENGINE": "benchmarks.crash.colours:Sleeping",
        "OMP_NUM_THREADS": "1",
    }
    run = subprocess.run(
        [sys.executable, "-m", "app", "bulk", str(source), "--out", str(out), *options],
        cwd=root,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    said = run.stderr.strip().splitlines()
    assert said, run.stdout
    return run.returncode, said


def rows_of(out: Path) -> dict[str, dict[str, Any]]:
    """File name → its row; each has one."""
    rows = [row for part in out.glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    found = {Path(row["file"]).name: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_each_video_has_a_row_and_a_second_run_does_what_is_new(
    root: Path, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "captions.parquet"
    code, lines = run_and_read(root, folder, out, tmp_path)
    assert code == 1  # one has a code instead of a caption
    assert lines[-2] == f"{folder / 'broken.mp4'}: not_a_video"
    assert lines[-1].startswith("3 videos: 2 captioned, 1 with a code")
    assert not [line for line in lines if " INFO " in line.replace("\t", " ")]
    rows = rows_of(out)
    assert {name: row["caption"] for name, row in rows.items()} == {
        "a.mp4": "a colour",
        "b.mp4": "a colour",
        "broken.mp4": None,
    }
    assert rows["broken.mp4"]["code"] == "not_a_video"
    assert rows["broken.mp4"]["hint"]
    assert rows["a.mp4"]["width"] > 0
    assert rows["a.mp4"]["sampled"]

    write_video(folder / "c.mp4")
    (out / "half.parquet").write_bytes(b"PAR1 and no more")
    code, said = run_bulk(root, folder, out, tmp_path)
    assert said.startswith("4 videos: 3 captioned, 1 with a code")
    assert said.endswith("3 were done before.")
    assert set(rows_of(out)) == {"a.mp4", "b.mp4", "broken.mp4", "c.mp4"}


def test_rows_of_other_options_do_not_count_as_done(tmp_path: Path) -> None:
    import pyarrow as pa

    from app.bulk.rows import SCHEMA

    row = dict.fromkeys(SCHEMA.names) | {"file": "/a.mp4", "sha256": "1" * 64, "run": "this"}
    pq.write_table(pa.Table.from_pylist([row], schema=SCHEMA), tmp_path / "part.parquet")
    folder = open_location(str(tmp_path))
    assert find_done(folder, "this").has("/a.mp4", "1" * 64)
    assert not find_done(folder, "this").has("/a.mp4", "2" * 64)
    assert len(find_done(folder, "another")) == 0
    assert len(find_done(open_location(str(tmp_path / "nowhere")), "this")) == 0


def test_a_list_names_files_beside_it_and_addresses(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.mp4\n\nmemory://bucket/b.mp4\na.mp4\n", "utf-8-sig")
    assert list_videos(str(tmp_path / "list.txt")) == [str(tmp_path / "a.mp4"), "memory://bucket/b.mp4"]


def test_addresses_are_listed_by_their_file_system() -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    for name in (
        "/bucket/a.mp4",
        "/bucket/deeper/b.mkv",
        "/bucket/notes.txt",
        "/bucket/._a.mp4",
        "/bucket/.x/c.mp4",
    ):
        files.pipe_file(name, b"")
    found = list_videos("memory://bucket")
    assert [address.removeprefix("memory:///") for address in found] == [
        "bucket/a.mp4",
        "bucket/deeper/b.mkv",
    ]
    assert list_videos("memory://bucket/a.mp4") == ["memory://bucket/a.mp4"]


def test_a_folder_that_is_not_there_is_said_before_ray_starts(root: Path, tmp_path: Path) -> None:
    code, lines = run_and_read(root, tmp_path / "gone", tmp_path / "out", tmp_path)
    assert (code, lines) == (2, [f"There is no file or folder called {tmp_path / 'gone'}."])


@pytest.mark.parametrize(
    "source", ["gone", "gone.txt", "nowhere", "empty.txt", "memory://nowhere", "nosuch://bucket"]
)
def test_a_source_without_videos_is_said(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n")
    Path("nowhere").mkdir()
    with pytest.raises(UsageError):
        list_videos(source)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")  # Ray of itself
def test_without_an_address_ray_is_started_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to itself Ray waits for the last cluster of this machine, dead or not."""
    from app.bulk import caption_collection

    given: list[Any] = []
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **options: given.append(options["address"]))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    caption_collection.start_ray(None)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    caption_collection.start_ray(None)
    caption_collection.start_ray("auto")
    assert given == ["local", "head:6379", "auto"]
