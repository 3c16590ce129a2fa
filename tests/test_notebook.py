"""The notebook runs from its first cell to its last, and what it shows is there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = "docs/first_captioner.ipynb"


def read_cells(root: Path, kind: str) -> list[str]:
    cells = json.loads((root / NOTEBOOK).read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


@pytest.mark.slow
def test_its_cells_run_to_the_end(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root / "docs")
    names: dict[str, Any] = {}
    for number, source in enumerate(read_cells(root, "code")):
        exec(compile(source, f"{NOTEBOOK}, code cell {number}", "exec"), names)
    assert names["scores"]["n"] == 4
    assert names["scores"]["metrics"]["cider"] is not None
    words = {word for entry in names["entries"] for text in entry["captions"] for word in text.split()}
    assert set(names["answer"]["caption"].split()) <= words
    assert min(names["picture"].size) > 100
    looked = names["looked"]
    assert [len(weights) for weights in looked["temporal"]] == [8] * len(looked["words"])
    assert looked["evidence"]["moments"]
    assert "24 clips" in capsys.readouterr().out
    shutil.rmtree(names["OUT"])


def test_it_carries_no_outputs_and_its_links_lead_somewhere(root: Path) -> None:
    for cell in json.loads((root / NOTEBOOK).read_text())["cells"]:
        assert not cell.get("outputs")
    for text in read_cells(root, "markdown"):
        for target, anchor in re.findall(r"\]\(([\w.]+)(?:#([\w-]+))?\)", text):
            page = (root / "docs" / target).read_text()
            headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
            assert not anchor or anchor in anchors, (target, anchor)
