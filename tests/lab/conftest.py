"""Leaves the laboratory's tests to ``make lab``, but for a short smoke, which is part of ``make test``."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SMOKE = FOLDER / "test_smoke.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER) and item.path != SMOKE:
            item.add_marker("lab")
