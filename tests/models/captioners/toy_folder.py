"""Adds the captioner ``mean``, which nothing knows, as the one folder that it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from models import captioners

FOLDER = Path(__file__).with_name("mean")


def add_folder(place: Path, file: str = "", old: str = "", new: str = "") -> Path:
    """Copies the folder into ``place``; in one of its files ``new`` takes the place of ``old``."""
    folder = shutil.copytree(FOLDER, place / "mean", ignore=shutil.ignore_patterns("__pycache__"))
    if file:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
    return folder


@contextmanager
def registered(place: Path) -> Iterator[None]:
    """The folders in ``place`` are on the search path; what was imported of them is forgotten afterwards."""
    package = f"{captioners.__name__}.mean"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captioners, "__path__", [*captioners.__path__, str(place)])
        yield
        for name in [name for name in sys.modules if name.startswith(package)]:
            del sys.modules[name]
        vars(captioners).pop("mean", None)
