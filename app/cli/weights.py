"""``reelword weights``: lists, fetches, takes in and checks the networks' published weights.

Exit codes: 0 all well, 1 something failed, 2 wrong usage. What draws and downloads is imported when needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.model_options import AsJson, settings_with
from app.terminal import complain, print_table, say
from extractors.media.errors import MissingFile
from extractors.pretrained.errors import ManifestDamaged, UnknownWeights, WeightsError, WeightsMissing
from extractors.pretrained.manifest import WeightsEntry, find_entry, read_manifest
from extractors.pretrained.weights_folder import COMMAND, HUB, FileCheck, FoundWeights, WeightsFolder

if TYPE_CHECKING:
    from extractors.pretrained.download import Downloader
    from models.pretrained.installed import InstalledCaptioners, ModelFacts

Names = Annotated[
    list[str], typer.Argument(metavar="NAME", help="As weights list has it.", show_default=False)
]
#: How the table says where a file comes from.
SOURCES: Mapping[str, str] = {
    "package": "package",
    "url": "URL",
    "file": "you bring it",
    "repository": "repository",
}

weights = typer.Typer(no_args_is_help=True)


@weights.command("list")
def list_weights(as_json: AsJson = False) -> None:
    """List the weights of weights/manifest.toml and the encoders hub:NAME that are here."""
    folder, rows = _open(), []
    for entry in read_manifest(folder.manifest):
        file = folder.locate(entry)  # verify checks what is in it
        rows.append({**entry.model_dump(mode="json"), "file": None if file is None else str(file)})
    encoders = _open_encoders()
    for card in encoders.list():
        facts = {"source": card.source, "bytes": card.size, "licence": card.facts.licence or "?"}
        name, place = f"{HUB}{card.name}", str(encoders.path(card.name))
        rows.append({"name": name, "network": card.facts.architecture, **facts, "file": place})
    if as_json:
        print(json.dumps(rows))
    else:
        print_table(
            ("name", "of", "source", "size", "here", "licence"), [_format_row(entry) for entry in rows]
        )


@weights.command()
def get(names: Names) -> None:
    """Download weights into the data folder; what broke off goes on where it stopped."""
    from extractors.pretrained.download import fetch_weights

    offline = settings_with().offline

    def bring(entry: WeightsEntry, folder: WeightsFolder) -> FoundWeights:
        with _show_bar(entry) as downloader:
            return fetch_weights(entry, folder, downloader, _make_check(entry), offline=offline)

    _do_each(names, _open(), bring)


@weights.command()
def add(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A file you have; of hub:NAME a folder, or OWNER/NAME.", show_default=False
        ),
    ],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="Whose weights it is.")],
) -> None:
    """Copy a file of weights into the data folder, once the network can be built from it."""
    if name.startswith(HUB):
        _add_encoder(str(file), name)
        return
    if not file.is_file():
        raise MissingFile(f"There is no file {file}.")
    _do_each([name], _open(), lambda entry, folder: folder.add(file, entry, _make_check(entry)))


@weights.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
) -> None:
    """Check every byte of the weights and encoders that are here, or of those that are named."""
    from app.cli.captioners import each_card

    def check(entry: WeightsEntry, folder: WeightsFolder) -> FoundWeights:
        file = folder.locate(entry)
        if file is None:
            raise WeightsMissing(folder.describe_remedy(entry))
        return folder.check(entry, file)

    here, encoders = _open(), _open_encoders()
    if not names:
        names = [entry.name for entry in read_manifest(here.manifest) if here.locate(entry) is not None]
        names += [f"{HUB}{card.name}" for card in encoders.list()]
    if not names:
        print("There are no weights here: reelword weights list shows what can be had.")
    of_hubs = [name.removeprefix(HUB) for name in names if name.startswith(HUB)]
    failed = each_card(of_hubs, encoders.verify)
    _do_each([name for name in names if not name.startswith(HUB)], here, check, failed=failed)


def _open() -> WeightsFolder:
    """Opens the folder, with a manifest that can be read."""
    settings = settings_with()
    folder = WeightsFolder(settings.data, settings.manifest)
    try:
        read_manifest(folder.manifest)
    except ManifestDamaged as error:
        complain(error.advice)
        raise SystemExit(2) from error
    return folder


def _open_encoders() -> InstalledCaptioners:
    """Opens the folder of encoders ``hub:NAME``, which are kept as pretrained captioners are."""
    from models.pretrained.installed import InstalledCaptioners

    return InstalledCaptioners(settings_with().data / "weights" / "hub")


def _add_encoder(source: str, name: str) -> None:
    """Brings an encoder ``hub:NAME`` here from a folder or a hub. Raises PretrainedError, WeightsError.

    Args:
        source: the folder, or ``OWNER/NAME[@REVISION]``.
        name: what its extractor is called.
    """
    from app.cli.captioners import describe

    offline = settings_with().offline
    card = _open_encoders().add(source, _try_encoder, name=name.removeprefix(HUB), offline=offline)
    say(f"{name}: {describe(card)}")


def _try_encoder(folder: Path) -> ModelFacts:
    """Reads what a folder holds, and looks at a frame with it."""
    from extractors.catalog.hub_encoders import read_encoder
    from extractors.extractor import ExtractorOptions
    from models.pretrained.folder import count_parameters, make_facts, weight_files
    from models.pretrained.load import GREY

    encoder = read_encoder(folder.name, folder)
    encoder.make(folder.name, ExtractorOptions(engine="torch")).extract([GREY])
    return make_facts(folder, "encoder", encoder.kind, sum(map(count_parameters, weight_files(folder))))


def _make_check(entry: WeightsEntry) -> FileCheck:
    """Builds the network, for which torch is loaded; most commands do without."""

    def probe(file: Path) -> None:
        from extractors.pretrained.load import check_loads

        check_loads(entry, file)

    return probe


def _do_each(
    names: Sequence[str],
    folder: WeightsFolder,
    work: Callable[[WeightsEntry, WeightsFolder], FoundWeights],
    *,
    failed: int = 0,
) -> None:
    """Does it for each name; a failure costs that one alone, and is listed at the end.

    failed: the exit code if none fails. Raises Exit.
    """
    try:
        entries = [find_entry(name, folder.manifest) for name in names]
    except UnknownWeights as unknown:
        complain(str(unknown))
        raise typer.Exit(2) from unknown
    failures: list[tuple[str, WeightsError]] = []
    for entry in entries:
        try:
            say(_format_found(work(entry, folder)))
        except WeightsError as error:
            failures.append((entry.name, error))
    for name, failure in failures:
        # some sentences name the very command; what the hint adds would be less
        hint = "" if COMMAND in str(failure) else f" {failure.remedy}"
        complain(f"{name}: {failure}{hint} [{failure.code}]")
    raise typer.Exit(1 if failures else failed)


def _format_found(weights: FoundWeights) -> str:
    """Writes one line: where the file is and how far it can be trusted."""
    trust = f"sha256 {weights.sha256[:12]}…"
    if weights.pinned and weights.entry.sha256 is not None:
        trust = f"sha256 {weights.sha256}, of which {weights.entry.sha256} is published; pinned here"
    elif weights.pinned:
        trust = f"sha256 {weights.sha256}, published nowhere; pinned here as seen first"
    return f"{weights.entry.name}: {weights.file} ({trust})"


@contextmanager
def _show_bar(entry: WeightsEntry) -> Iterator[Downloader]:
    """Makes a downloader that shows how far it is, on standard error, on a terminal only."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from extractors.pretrained.download import Downloader

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(entry.name, total=entry.bytes)
        yield Downloader(
            progress=lambda done, total: progress.update(task, completed=done, total=total or entry.bytes)
        )


def _format_row(row: dict[str, Any]) -> tuple[str, ...]:
    """Licences in a word or two; the rest of what is said of them is in the manifest and in the JSON."""
    source = SOURCES.get(row["source"], "hub or folder")
    size = "?" if row["bytes"] is None else f"{row['bytes'] / 1e6:.0f} MB"
    here = "yes" if row["file"] else "no"
    serves = "" if row["network"] == row["name"] else row["network"]
    return row["name"], serves, source, size, here, row["licence"].partition(" (")[0]
