"""What is kept of a row: a JSON file in the ablations' folder, and the plan that all of them follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from extractors.errors import ReelwordError
from extractors.files import atomic_write
from training.ablations.row import AblationJob


class AnotherPlan(ReelwordError, ValueError):
    """The folder's rows were run by another plan; the message says what to do."""

    code = "another_plan"
    hint = "Choose another folder, or the options that the folder's rows were run with."


class AblationPlan(BaseModel):
    """What must be the same for rows to be comparable. steps: None leaves each family its own.

    judged: how many held-out pictures. teachers: captioners whose probabilities are learned too. words:
    whether rows begin with the shipped captioners' words (word_weights.py), or with nothing, as all did
    before there was a choice.
    """

    model_config = ConfigDict(frozen=True)

    steps: int | None = None
    judged: int = 500
    teachers: tuple[str, ...] = ()
    words: bool = False


class SheetScores(BaseModel):
    """Item by item, in the sheet's order.

    cider: CIDEr-D × 100. looked: by what was measured
    (scoring.py), shares from 0 to 1.
    """

    model_config = ConfigDict(frozen=True)

    captions: tuple[str, ...]
    cider: tuple[float, ...]
    looked: Mapping[str, tuple[float, ...]]


class RowResult(BaseModel):
    """steps: taken, of ``planned``, which are None for a row that is only read. seconds: of training here."""

    model_config = ConfigDict(frozen=True)

    row: str
    seed: int
    steps: int | None
    planned: int | None
    seconds: float
    parameters: int
    sheets: Mapping[str, SheetScores]


@dataclass(frozen=True)
class AblationResults:
    """The folder: plan.json, <row>-<seed>.json of what is finished, and a folder of each trained row."""

    folder: Path

    def follow(self, plan: AblationPlan) -> None:
        """Raises AnotherPlan where the folder's rows were run by another one."""
        path = self.folder / "plan.json"
        if not path.exists():
            with atomic_write(path) as unfinished:
                unfinished.write_text(plan.model_dump_json(indent=1))
        elif (known := AblationPlan.model_validate_json(path.read_text())) != plan:
            raise AnotherPlan(f"{self.folder} holds rows of another plan ({known}): give another --out")

    def has(self, job: AblationJob) -> bool:
        return self._path(job.name).exists()

    def save(self, job: AblationJob, result: RowResult) -> None:
        """The file appears whole or not at all."""
        with atomic_write(self._path(job.name)) as unfinished:
            unfinished.write_text(result.model_dump_json())

    def load(self, jobs: Sequence[AblationJob]) -> dict[str, list[RowResult]]:
        """Row → the results that are there, a seed each."""
        found: dict[str, list[RowResult]] = {}
        for job in jobs:
            if self.has(job):
                result = RowResult.model_validate_json(self._path(job.name).read_text())
                found.setdefault(job.row.name, []).append(result)
        return found

    def run_folder(self, name: str) -> Path:
        return self.folder / name

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
