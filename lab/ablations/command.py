"""Defines ``python -m lab ablate``: its options, and the loop over rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.training.shared_options import Threads
from app.cores import choose_threads


def ablate(
    data: Annotated[
        Path | None, typer.Option(help="Folder with the archives and captions that docs/training.md lists.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where results are kept; what is finished there is not run again.")
    ] = Path("runs/ablations"),
    cache: Annotated[Path, typer.Option(help="Where features are kept between runs.")] = Path("data/cache"),
    threads: Threads = None,
    device: Annotated[
        str, typer.Option(help="What computes: auto takes a GPU where there is one; cpu, cuda, cuda:1 …")
    ] = "auto",
    only: Annotated[str | None, typer.Option(help="One family alone.")] = None,
    rows: Annotated[str, typer.Option(help="These rows alone, and what they read: a,b,c.")] = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps of every row that is trained.")] = 300,
    judged: Annotated[int, typer.Option(min=2, help="Held-out pictures that rows are judged by.")] = 400,
    table: Annotated[bool, typer.Option("--table", help="Print what --out holds, and run nothing.")] = False,
    papers: Annotated[
        bool, typer.Option("--papers", help="Print the commands of the papers' rows at their widths.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print the rows, and run nothing.")] = False,
) -> None:
    """Train and read the papers' ablations, one row after another; --table prints what was found."""
    from extractors.engines.engine_choice import DeviceUnavailable, open_device
    from lab.ablations.paper_rows import list_commands
    from lab.ablations.rows import UnknownRow, list_jobs
    from lab.ablations.runner import AblationRunner, NotThere, load_results, locate_result
    from lab.ablations.tables import format_table
    from training.optimization.run_folder import RunSettings

    if papers:
        typer.echo("\n".join(list_commands()))
        return
    try:
        jobs = list_jobs(only, tuple(name for name in rows.split(",") if name))
        if listed:
            typer.echo("\n".join(f"{job.name:34}{job.row.title}" for job in jobs))
            return
        if table:
            typer.echo(format_table(load_results(out, jobs)))
            return
        if data is None:
            raise typer.BadParameter("--data: where are the pictures? docs/training.md says which")
        settings = RunSettings(out, cache, typer.echo, choose_threads(threads), open_device(device))
        runner = AblationRunner(data, settings, steps, judged)
        for place, job in enumerate(jobs, 1):
            if locate_result(out, job).exists():
                continue
            typer.echo(f"{place} of {len(jobs)}: {job.name}", err=True)
            try:
                scores = runner.run(job).scores
            except NotThere as error:
                typer.echo(f"{job.name} is left out: {error}", err=True)
                continue
            means = (f"{sum(each) / len(each):.1f} on {name}" for name, each in scores.items())
            typer.echo(f"{job.name}: CIDEr-D {', '.join(means)}")
    except DeviceUnavailable as error:
        raise typer.BadParameter(f"--device: {error.advice}") from error
    except (UnknownRow, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
