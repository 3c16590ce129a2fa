"""Readers in manifests that users wrote before extractors/ had rooms are still found."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from extractors.pretrained.load import OLD_READERS, reader_of
from extractors.pretrained.manifest import MANIFEST, entry

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
    return reader_of(entry("mine", manifest))


@pytest.mark.parametrize("old", OLD_READERS)
def test_an_old_name_of_a_reader_means_the_reader_of_today(tmp_path: Path, old: str) -> None:
    new = OLD_READERS[old]
    assert new.startswith(old.partition(".")[0])
    functions = {reader.partition(":")[2] for reader in PRESENT.values() if reader.startswith(f"{new}:")}
    assert functions
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    for function in functions:
        reader = _reader(tmp_path / "old", f"{old}:{function}")
        assert callable(reader)
        assert reader is _reader(tmp_path / "new", f"{new}:{function}")


def test_the_manifest_itself_has_names_of_today() -> None:
    modules = {reader.partition(":")[0] for reader in PRESENT.values()}
    assert modules
    assert not modules & set(OLD_READERS)
