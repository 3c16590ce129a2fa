"""Which converted models are kept: those used last, within the bound, and by one process at a time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from extractors.engines.kept_models import MODEL_FILE, ORPHAN_SECONDS, KeptModel, lock_model, prune_models


def _keep(folder: Path, name: str, size: int, age: float) -> Path:
    """Keeps a model of so many bytes that was used so many seconds ago; returns its note."""
    (folder / name).mkdir(parents=True)
    (folder / name / MODEL_FILE).write_bytes(b"x" * size)
    note = folder / f"note-{name}.json"
    note.write_text(KeptModel(folder=name, sources={}).model_dump_json())
    os.utime(note, (time.time() - age,) * 2)
    return note


def _kept(folder: Path) -> set[str]:
    return {file.parent.name for file in folder.glob(f"*/{MODEL_FILE}")}


def test_those_used_longest_ago_go_first(tmp_path: Path) -> None:
    for name, age in (("new", 1), ("old", 300), ("older", 900)):
        _keep(tmp_path, name, 100, age)
    prune_models(tmp_path, 250)
    assert _kept(tmp_path) == {"new", "old"}
    assert {note.name for note in tmp_path.glob("*.json")} == {"note-new.json", "note-old.json"}
    prune_models(tmp_path, 0)
    assert _kept(tmp_path) == set()


def test_a_model_without_a_note_goes_once_its_writer_must_have_ended(tmp_path: Path) -> None:
    for name in ("young", "orphan"):
        _keep(tmp_path, name, 100, 0).unlink()
    os.utime(tmp_path / "orphan", (time.time() - ORPHAN_SECONDS - 1,) * 2)
    prune_models(tmp_path, 1000)
    assert _kept(tmp_path) == {"young"}


def test_a_folder_that_is_not_there_is_nothing_to_prune(tmp_path: Path) -> None:
    prune_models(tmp_path / "none", 0)


def test_one_converts_while_others_wait(tmp_path: Path) -> None:
    note, order = tmp_path / "cache/note.json", list[str]()

    def follow() -> None:
        with lock_model(note):
            order.append("second")

    with lock_model(note):
        waiting = threading.Thread(target=follow)
        waiting.start()
        time.sleep(0.2)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]


def test_where_nothing_can_be_written_there_is_no_lock_to_wait_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with lock_model(tmp_path / "file/cache/note.json"):
        pass
