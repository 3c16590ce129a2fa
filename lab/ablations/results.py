"""Keeps the results of rows, a JSON file each, in the ablations' folder, with the plan that all follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from extractors.errors import ReelwordError
from extractors.files import atomic_write
from lab.ablations.row import AblationJob


class AnotherPlan(ReelwordError, ValueError):
    """The folder's rows were run by another plan; the message says what to do."""

    code = "another_plan"
    hint = "Choose another folder, or the options that the folder's rows were run with."


class AblationPlan(BaseModel):
    """The numbers that must be the same for rows to be comparable. steps: None leaves each family its own.

    judged: how many held-out pictures. teachers: captioners whose probabilities are learned too. words:
    whether rows begin with the shipped captioners' words (word_weights.py), or with nothing, as all did
    before there was a choice.
    """

    model_config = ConfigDict(frozen=True)

    steps: int | None = None
    judged: int = 500
    teachers: tuple[str, ...] = ()
    words: bool = False


class EvalSetScores(BaseModel):
    """Scores item by item, in the order of the held-out pictures.

    cider: CIDEr-D × 100. attention_shares: by what was measured (scoring.py), from 0 to 1; "looked" in files.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    captions: tuple[str, ...]
    cider: tuple[float, ...]
    attention_shares: Mapping[str, tuple[float, ...]] = Field(alias="looked")


class RowResult(BaseModel):
    """A row's result.

    steps: taken, None for a row that is only read. seconds: of training here."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    row: str
    seed: int
    steps: int | None
    seconds: float
    parameters: int
    scores: Mapping[str, EvalSetScores] = Field(alias="sheets")


@dataclass(frozen=True)
class AblationResults:
    """The folder: plan.json, <row>-<seed>.json of what is finished, and a folder of each trained row."""

    folder: Path

    def follow(self, plan: AblationPlan) -> None:
        """Notes the plan, or checks that it is the folder's. Raises AnotherPlan."""
        path = self.folder / "plan.json"
        if not path.exists():
            with atomic_write(path) as unfinished:
                unfinished.write_text(plan.model_dump_json(indent=1))
        elif (earlier := AblationPlan.model_validate_json(path.read_text())) != plan:
            raise AnotherPlan(f"{self.folder} holds rows of another plan ({earlier}): give another --out")

    def has(self, job: AblationJob) -> bool:
        """Tells whether a job is finished."""
        return self._path(job.name).exists()

    def save(self, job: AblationJob, result: RowResult) -> None:
        """Writes a result; the file appears whole or not at all."""
        with atomic_write(self._path(job.name)) as unfinished:
            unfinished.write_text(result.model_dump_json(by_alias=True))

    def load(self, jobs: Sequence[AblationJob]) -> dict[str, list[RowResult]]:
        """Reads the results that are there: row → one a seed."""
        results: dict[str, list[RowResult]] = {}
        for job in jobs:
            if self.has(job):
                result = RowResult.model_validate_json(self._path(job.name).read_text())
                results.setdefault(job.row.name, []).append(result)
        return results

    def run_folder(self, name: str) -> Path:
        """Returns the folder of a trained row."""
        return self.folder / name

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
