"""How much disk does `make serve` take, and which package takes it?

    python -m benchmarks.install_size [VENV] [--limit MB] [--least MB]

Sums the files of an environment (`.venv` unless named) by the distribution that brought them, as the disk
counts them, compiled Python included. Prints a table with a line for each that takes ``--least`` (10 MB), one
for the others, and one for what no distribution brought. Exits with 1 above ``--limit`` (2000 MB, what the
README promises of a machine without an NVIDIA GPU).

    make setup-serve VENV=out/small TORCH=cpu && python -m benchmarks.install_size out/small
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

MB = 10**6
OTHERS = "(others)"
UNOWNED = "(no package)"


def measure_packages(environment: Path) -> dict[str, int]:
    """Returns the bytes that each distribution of an environment takes, and of what none brought."""
    sizes: dict[str, int] = {}
    seen: set[Path] = set()
    for distribution in distributions(path=[str(_find_site_packages(environment))]):
        files = set(_list_files(distribution)) - seen
        seen |= files
        name = f"{distribution.metadata['Name']} {distribution.version}"
        sizes[name] = sum(map(_measure, files))
    whole = {file for file in environment.rglob("*") if file.is_file() and not file.is_symlink()}
    sizes[UNOWNED] = sum(map(_measure, whole - seen))
    return sizes


def group_small(sizes: Mapping[str, int], least: int) -> dict[str, int]:
    """Returns the sizes, largest first, those below ``least`` bytes in one line."""
    small = [name for name, size in sizes.items() if size < least]
    large = sorted((size, name) for name, size in sizes.items() if size >= least)
    table = {name: size for size, name in reversed(large)}
    return {**table, f"{OTHERS[:-1]}, {len(small)})": sum(sizes[name] for name in small)}


def _find_site_packages(environment: Path) -> Path:
    return next(environment.resolve().glob("lib/python3.*/site-packages"))


def _list_files(distribution: Distribution) -> Iterator[Path]:
    """Lists the distribution's files that are there, and what Python compiled of them."""
    for entry in distribution.files or ():
        file = Path(os.path.normpath(str(entry.locate())))
        if file.is_file():
            yield file
        if file.suffix == ".py":
            yield from (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc")


def _measure(file: Path) -> int:
    """Returns the bytes that a file takes on the disk, as du counts them."""
    return file.stat().st_blocks * 512


def main(
    environment: Annotated[Path, typer.Argument(metavar="VENV")] = Path(".venv"),
    limit: Annotated[int, typer.Option(help="Megabytes above which this fails.")] = 2000,
    least: Annotated[int, typer.Option(help="Megabytes of a package with a line of its own.")] = 10,
) -> None:
    """Prints what an environment takes by package."""
    sizes = measure_packages(environment)
    total = sum(sizes.values())
    table = Table("package", "MB", box=None)
    for name, size in group_small(sizes, least * MB).items():
        table.add_row(name, f"{size / MB:.0f}")
    table.add_row("all", f"{total / MB:.0f}")
    Console().print(table)
    raise typer.Exit(1 if total > limit * MB else 0)


if __name__ == "__main__":
    typer.run(main)
