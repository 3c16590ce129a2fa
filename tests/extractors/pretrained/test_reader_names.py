"""Readers in manifests that users wrote for earlier versions are still found."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from extractors.pretrained.load import OLD_READERS, find_reader
from extractors.pretrained.manifest import MANIFEST, find_entry

PRESENT = {
    name: table["reader"] for name, table in tomllib.loads(MANIFEST.read_text()).items() if "reader" in table
}
ENTRY = """
[mine]
source = "file"
path = "mine.pt"
where = "a page of mine"
licence = "mine"
paper = "none"
preprocessing = "none"
keys = "ours"
reader = "{reader}"
"""


def _reader(folder: Path, name: str) -> object:
    manifest = folder / "manifest.toml"
    manifest.write_text(ENTRY.format(reader=name))
    return find_reader(find_entry("mine", manifest))


@pytest.mark.parametrize("old", OLD_READERS)
def test_an_old_name_of_a_reader_means_the_reader_of_today(tmp_path: Path, old: str) -> None:
    new = OLD_READERS[old]
    assert new.startswith("extractors.")
    present = {reader for reader in PRESENT.values() if reader == new or reader.startswith(f"{new}:")}
    assert present
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    for reader in present:
        found = _reader(tmp_path / "old", old + reader.removeprefix(new))
        assert callable(found)
        assert found is _reader(tmp_path / "new", reader)


def test_the_manifest_itself_has_names_of_today() -> None:
    names = {name for reader in PRESENT.values() for name in (reader, reader.partition(":")[0])}
    assert names
    assert not names & set(OLD_READERS)
