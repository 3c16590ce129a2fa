"""Golden cases: what public implementations gave for weights and inputs made by golden_rule.py.

A folder of them holds ``manifest.json`` (the cases), ``npz/`` (their outputs), ``params/`` (the public
names and shapes of a network's parameters) and ``sensitivity.json`` (how far a mistake moves an output).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.extractors.golden.rule import made_input, parameter

ROOT = Path(__file__).parents[3]
#: A few cases that the repository carries, with fewer values of each output.
CARRIED = ROOT / "tests" / "golden" / "networks"
#: Boxes and their order follow from sorting scores that are nearly equal.
NOT_COMPARED = ("proposal_", "det_")
TOLERANCE = 1e-4


def folder() -> Path | None:
    """REELWORD_GOLDEN, which must be there, or the folder beside the checkout, or None."""
    named = os.environ.get("REELWORD_GOLDEN")
    if named:
        return Path(named)
    beside = ROOT.parent / "shared" / "golden"
    return beside if beside.is_dir() else None


@dataclass(frozen=True)
class Verdict:
    """One output: the largest difference over the largest value, and whether it is tolerated."""

    output: str
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance

    def __str__(self) -> str:
        return f"{self.output}: off by {self.error:.2g} of the largest value (tolerance {self.tolerance:g})"


@dataclass(frozen=True)
class Filled:
    """Which network a case is of and what fills it: cases with equal ones share the network."""

    network: str
    seed: int
    scales: str
    names: str


@dataclass(frozen=True, eq=False)
class Case:
    """One entry of a manifest. Weights and inputs are made anew at each call."""

    folder: Path
    entry: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.entry["case"])

    @property
    def network(self) -> str:
        return str(self.entry["network"])

    @property
    def compared(self) -> list[str]:
        return [output for output in self.entry["outputs"] if not output.startswith(NOT_COMPARED)]

    @property
    def whole_boxes(self) -> list[str]:
        """Outputs that are boxes to be matched, all of whose values are kept."""
        steps = {name: output["step"] for name, output in self.entry["outputs"].items()}
        return [name for name in ("proposal_boxes", "det_boxes") if steps.get(name) == 1]

    @cached_property
    def filled(self) -> Filled:
        names = self._text("parameters") if "parameters" in self.entry else ""
        digest = hashlib.sha256(names.encode()).hexdigest()
        return Filled(self.network, self.entry["seed"], json.dumps(self._scales), digest)

    @cached_property
    def stored(self) -> dict[str, NDArray[np.generic]]:
        """Outputs as kept: whole, or every so many of their values."""
        with np.load(self.folder / self.entry["file"]) as file:
            return {name: file[output["key"]] for name, output in self.entry["outputs"].items()}

    def weights(self) -> dict[str, Tensor]:
        """The checkpoint by its public names; without those that the rule leaves alone."""
        if "parameters" not in self.entry:
            return {}
        rows = json.loads(self._text("parameters"))
        made = {row[0]: parameter(row[0], row[1], self.entry["seed"], self._scales) for row in rows}
        return {name: torch.from_numpy(value) for name, value in made.items() if value is not None}

    def inputs(self) -> dict[str, Tensor]:
        """Inputs by name; images and videos with their channels first."""
        return {
            name: torch.from_numpy(made_input(i["kind"], i["shape"], i.get("seed", self.entry["seed"])))
            for name, i in self.entry["inputs"].items()
        }

    def said(self, pattern: str, default: str) -> str:
        """A setting that the manifest gives in words: the pattern's group in what it says of the case."""
        words = f"{self.entry.get('notes', '')} {self.entry.get('preprocessing', '')}"
        found = re.search(pattern, words)
        return str(found[1]) if found else default

    def numbers(self, beginning: str) -> list[int]:
        """The numbers in which the names of outputs end that begin so."""
        names = (name.removeprefix(beginning) for name in self.entry["outputs"] if name.startswith(beginning))
        return [int(rest) for rest in names if rest.isdecimal()]

    def tolerance(self, output: str) -> float:
        return float(self.entry["outputs"][output].get("tolerance", self.entry.get("tolerance", TOLERANCE)))

    def judge(self, output: str, got: Tensor) -> Verdict:
        """An output against the stored one; another shape is infinitely wrong."""
        wanted = self.entry["outputs"][output]
        if list(got.shape) != list(wanted["shape"]):
            return Verdict(output, np.inf, self.tolerance(output))
        kept = got.detach().double().numpy().reshape(-1)[:: wanted["step"]]
        difference = np.abs(kept - self.stored[output].reshape(-1).astype(np.float64))
        error = float(difference.max()) / max(wanted["absmax"], 1e-30) if difference.size else 0.0
        # max() passes over nothing: a NaN makes it NaN, which is not within any tolerance
        return Verdict(output, error, self.tolerance(output))

    @property
    def _scales(self) -> list[tuple[str, float]]:
        return [(suffix, factor) for suffix, factor in self.entry.get("scales", [])]

    def _text(self, key: str) -> str:
        return Path(self.folder, self.entry[key]).read_text("utf-8")


def cases(golden: Path) -> list[Case]:
    return [Case(golden, entry) for entry in manifest(golden)["cases"]]


def manifest(golden: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((golden / "manifest.json").read_text("utf-8"))
    return document


def sensitivity(golden: Path) -> dict[str, dict[str, dict[str, float]]]:
    """{case: {mistake: {output: how far it moves}}}; empty where the folder has none."""
    file = golden / "sensitivity.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {}
