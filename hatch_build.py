"""Gives the wheel what it needs: pyproject.toml's groups, at the versions of constraints.txt.

An application is installed as it was tested: what it names itself is pinned.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: What ``make serve`` installs; the other groups are extras of the same name.
SERVED = ("api", "serve", "cli", "embedded")
#: Groups for a checkout alone: its tests and benchmarks, and a library that is built from its repository.
LEFT_OUT = ("test", "peers", "detectron2")


class GroupsHook(MetadataHookInterface):  # type: ignore[misc]  # hatchling is there while a wheel is built
    """Fills in the dependencies and the extras."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds both to the project's metadata, in place."""
        root = Path(self.root)
        groups = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
        pins = _read_pins(root / "constraints.txt")
        pinned = {
            name: sorted(_pin(entry, pins) for entry in entries)
            for name, entries in groups.items()
            if name not in LEFT_OUT
        }
        metadata["dependencies"] = sorted({entry for name in SERVED for entry in pinned.pop(name)})
        metadata["optional-dependencies"] = pinned


def _read_pins(constraints: Path) -> dict[str, str]:
    """Reads name → version."""
    lines = constraints.read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {_normalize(name): version for name, version in pins}


def _pin(entry: str, pins: dict[str, str]) -> str:
    return f"{entry}=={pins[_normalize(entry.partition('[')[0])]}"


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
