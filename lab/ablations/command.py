"""Defines ``python -m lab ablate``: its options, and the loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache as remembered
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from lab.ablations.results import AblationPlan, AblationResults
    from lab.ablations.row import AblationJob


def ablate(
    data: Annotated[
        Path | None, typer.Option(help="Folder with the archives and captions that docs/training.md lists.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where results are kept; what is finished there is not run again.")
    ] = Path("runs/ablations"),
    cache: Annotated[Path, typer.Option(help="Where features are kept between runs.")] = Path("data/cache"),
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    device: Annotated[
        str, typer.Option(help="What computes: auto takes a GPU where there is one; cpu, cuda, cuda:1 …")
    ] = "auto",
    only: Annotated[str | None, typer.Option(help="One family alone.")] = None,
    rows: Annotated[str, typer.Option(help="These rows alone, and what they read: a,b,c.")] = "",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of every row; default: the family's.")
    ] = None,
    judged: Annotated[int, typer.Option(min=2, help="Held-out pictures that rows are judged by.")] = 500,
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            help="A captioner whose probabilities every row learns too; may be given several times."
        ),
    ] = None,
    from_nothing: Annotated[
        bool, typer.Option("--from-nothing", help="Without the words of the shipped captioners.")
    ] = False,
    table: Annotated[bool, typer.Option("--table", help="Print what --out holds, and run nothing.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print the rows, and run nothing.")] = False,
) -> None:
    """Train and read the papers' ablations, one row after another; --table prints what was found."""
    from extractors.engines.engine_choice import DeviceUnavailable, open_device
    from lab.ablations.families import FAMILIES
    from lab.ablations.results import AblationPlan, AblationResults, AnotherPlan
    from lab.ablations.row import UnknownRow, list_jobs
    from lab.ablations.tables import format_tables
    from models.captioners.registry import UnknownCaptioner
    from models.checkpoint import CheckpointError
    from models.feature_sources.stream_checks import StreamMismatch
    from training.batches.picture_inputs import read_cards

    results = AblationResults(out)
    try:
        jobs = list_jobs(FAMILIES, only, [name for name in rows.split(",") if name])
        if listed:
            typer.echo("\n".join(f"{job.name:34}{job.row.title}" for job in jobs))
        elif table:
            typer.echo(format_tables(FAMILIES, results.load(jobs)))
        elif data is None:
            raise typer.BadParameter("--data: where are the pictures? docs/training.md says which")
        else:
            plan = AblationPlan(
                steps=steps, judged=judged, teachers=tuple(teacher or ()), words=not from_nothing
            )
            opened = open_device(device)
            read_cards(plan.teachers)  # before the folder has a plan that cannot be followed
            results.follow(plan)
            _run(jobs, results, plan, data, cache, threads, opened)
    except DeviceUnavailable as error:
        raise typer.BadParameter(f"--device: {error.advice}") from error
    except (UnknownRow, AnotherPlan, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    except (UnknownCaptioner, CheckpointError, StreamMismatch) as error:
        raise typer.BadParameter(f"--teacher: {error}") from error


def _run(
    jobs: Sequence[AblationJob],
    results: AblationResults,
    plan: AblationPlan,
    data: Path,
    cache: Path,
    threads: int,
    device: torch.device,
) -> None:
    import torch

    from lab.ablations.corpus import AblationCorpus
    from lab.ablations.row import NotThere
    from lab.ablations.runner import AblationRunner

    torch.set_num_threads(threads)

    @remembered
    def corpus(streams: str) -> AblationCorpus:
        return AblationCorpus.load(streams, data, cache, plan.judged, plan.teachers, device)

    runner = AblationRunner(plan, results, corpus)
    for place, job in enumerate(jobs, 1):
        if results.has(job):
            continue
        typer.echo(f"{place} of {len(jobs)}: {job.name}", err=True)
        try:
            result = runner.run(job)
        except NotThere as error:
            typer.echo(f"{job.name} is left out: {error}", err=True)
            continue
        scores = ", ".join(
            f"{sum(each.cider) / len(each.cider):.1f} on {name}" for name, each in result.scores.items()
        )
        typer.echo(f"{job.name}: CIDEr-D {scores}")
