"""The count of circles finds them, and there are none here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.house import (
    MEASURING,
    PACKAGES,
    ROOT,
    circles,
    count,
    import_graph,
    list_banned_locals,
    rooms,
)

#: Commands, which explain their options in --help; methods that a base class explains.
EXPLAINED_ELSEWHERE = {
    "app.cli.videos.bulk.bulk",
    "app.cli.videos.extract.extract",
    "app.cli.captioners.push",
    "app.cli.commands.make_context",
    "app.cli.models.list_models",
    "app.cli.models.show",
    "app.cli.service.jobs.list_jobs",
    "app.cli.service.jobs.show",
    "app.cli.service.jobs.purge",
    "app.cli.service.keys.add",
    "app.cli.videos.caption.caption",
    "app.cli.videos.search.search",
    "app.pipeline.loaded_captioners.caption",
    "app.segments.loading.describe_and_caption",
    "app.worker.reading.film_segments.describe_and_caption",
    "app.cli.training.train.train",
    "app.cli.training.evaluate.evaluate",
    "app.cli.training.score.score",
    "app.cli.training.data.check",
    "extractors.video_features.feature_files.write",
    "extractors.video_features.npy_hdf5.write",
}
MOST_FILES = 15  #: of a folder, its __init__.py included


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_in_no_circle(package: str) -> None:
    counted = count(package)
    assert counted.files > 10
    assert (counted.file_circles, counted.room_circles) == ((), ())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_is_a_warehouse(package: str) -> None:
    assert int(count(package).fullest_folder.partition("(")[2].rstrip(")")) <= MOST_FILES


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_what_is_done_and_explain_many_parameters(package: str) -> None:
    counted = count(package)
    assert counted.questions == ()
    assert [name for name in counted.without_args if name not in EXPLAINED_ELSEWHERE] == []


@pytest.mark.parametrize("package", [*PACKAGES, *MEASURING])
def test_no_local_is_called_by_a_participle(package: str) -> None:
    assert count(package).banned_locals == ()


def test_locals_called_by_a_participle_are_found() -> None:
    code = (
        "found = 1\n\ndef f(given):\n    for known in given:\n        found, seen = known\n    return found\n"
    )
    assert list(list_banned_locals("box", ast.parse(code))) == ["box:4 known", "box:5 found"]


def test_circles_are_found_between_files_and_between_rooms(tmp_path: Path) -> None:
    files = {
        "box/left/a.py": "def late():\n    from box.right.b import x\n",
        "box/left/c.py": "y = 1\n",
        "box/right/b.py": "from box.left import c\nx = c.y\n",
        "box/one.py": "import box.two\n",
        "box/two.py": "from box import one, three\n",
        "box/three.py": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from box.one import z\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = import_graph(sorted(tmp_path.rglob("*.py")), tmp_path)
    assert circles(graph) == (("box.one", "box.three", "box.two"),)
    assert circles(rooms(graph, "box")) == (("box.left", "box.right"), ("box.one", "box.three", "box.two"))


def test_no_class_name_stands_in_two_modules() -> None:
    places: dict[str, set[str]] = {}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, set()).add(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
