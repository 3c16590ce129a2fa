"""The manual cannot drift: each setting, route, command and error has its place in docs/."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from pydantic import AliasChoices

from app.api.application import create_app
from app.api.refusals import RequestError
from app.cli.commands import ListedCommand
from app.cli.main import COMMANDS
from app.errors import JobError
from app.jobs.options import CaptionOptions
from app.settings import Settings
from extractors.errors import leaves
from extractors.media.errors import MediaError
from models.captioners.registry import find_stream_set
from training.datasets.registry import find_data_set
from training.recipes.paper_recipes import find_paper_run, list_paper_runs


def _pages(root: Path) -> dict[str, str]:
    return {page.name: page.read_text() for page in sorted((root / "docs").glob("*.md"))}


def _page(root: Path, name: str) -> str:
    return (root / "docs" / name).read_text()


def _codes(error: type[MediaError] | type[JobError] | type[RequestError]) -> set[str]:
    return {str(vars(leaf)["code"]) for leaf in leaves(error)}


def _rows(page: str) -> set[str]:
    """What the first column of the page's tables has in backticks."""
    return set(re.findall(r"^\| *`([^`]+)`", page, re.MULTILINE))


def _variables() -> list[set[str]]:
    """For each setting the environment variables that it is read from."""
    aliases = [(name, field.validation_alias) for name, field in Settings.model_fields.items()]
    return [
        {str(choice) for choice in alias.choices}
        if isinstance(alias, AliasChoices)
        else {f"REELWORD_{name.upper()}"}
        for name, alias in aliases
    ]


def test_each_setting_is_explained(root: Path) -> None:
    explained = _rows(_page(root, "operate.md"))
    for names in _variables():
        assert names & explained, names


def test_no_setting_is_explained_that_is_gone(root: Path) -> None:
    named = {name for page in _pages(root).values() for name in re.findall(r"REELWORD_[A-Z_]+", page)}
    known = {f"REELWORD_{name.upper()}" for name in Settings.model_fields}
    known.add("REELWORD_GOLDEN")  # of the tests, not of the service
    assert named <= known


def test_each_error_is_explained(root: Path) -> None:
    codes = _codes(RequestError) | _codes(JobError) | _codes(MediaError)
    assert codes <= _rows("\n".join(_pages(root).values()))


def test_error_codes_are_used_once() -> None:
    trees = [_codes(RequestError), _codes(JobError), _codes(MediaError)]
    assert sum(len(tree) for tree in trees) == len(set.union(*trees))


def test_each_route_is_explained(root: Path) -> None:
    page = _page(root, "api.md")
    paths = create_app(Settings(redis_url="redis://127.0.0.1")).openapi()["paths"]
    assert "/caption" in paths
    for path, methods in paths.items():
        for method in methods:
            assert f"{method.upper()} {path}" in page


def test_each_option_is_explained(root: Path) -> None:
    assert set(CaptionOptions.model_fields) <= _rows(_page(root, "api.md"))


def test_each_command_is_explained(root: Path) -> None:
    pages = "\n".join([*_pages(root).values(), (root / "README.md").read_text()])
    for name in COMMANDS:
        assert f"reelword {name}" in pages, name


def _anchors(page: str) -> set[str]:
    """The fragments that the page's headings can be linked by, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_the_pages_lead_somewhere(root: Path) -> None:
    pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("weights/*.md")]
    for page in pages:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
            if link.startswith("https://"):
                continue
            target = (page.parent / link) if link else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor:
                assert anchor in _anchors(target.read_text()), f"{page.name}: {link}#{anchor}"


def test_files_that_are_named_are_there(root: Path) -> None:
    """In the manuals, in comments and docstrings: a name that went with a move sends its reader astray."""
    folders = ("app", "extractors", "models", "training", "lab", "benchmarks", "docs", "tests")
    sources = {file for folder in folders for file in (root / folder).rglob("*.py")}
    names = {file.name for file in sources} | {"sitecustomize.py", "hatch_build.py"}
    texts = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]
    texts += [file for file in sources if file.relative_to(root).parts[0] not in ("tests", "docs")]
    for file in texts:
        for name in re.findall(r"(?<![\w./<-])[\w/]+\.py\b", file.read_text()):
            is_there = (root / name).is_file() if "/" in name else name in names
            assert is_there, f"{file.relative_to(root)} names {name}"


def test_the_papers_commands_are_ones_that_the_program_takes(root: Path) -> None:
    """Parsed by the command line itself, with a recipe that is that captioner's on that set."""
    page = _page(root, "reproduce.md")
    commands = re.findall(r"reelword ([^\n`]+)", page)
    assert commands
    for line in commands:
        name, *arguments = shlex.split(line)
        command = _find_command(name, arguments)
        with command.make_context(name, list(arguments)) as context:
            recipe, captioner = context.params.get("recipe"), context.params.get("captioner")
            if name == "train" and recipe is not None:
                assert find_paper_run(recipe, captioner).recipe.name == recipe, line
            data_set = context.params.get("data_set") or context.params.get("name")
            if name in ("evaluate", "check"):
                find_data_set(str(data_set)).find_protocol(context.params["paper"])
            if context.params.get("streams") is not None:
                find_stream_set(context.params["streams"])
    trained = {
        tuple(re.findall(r"train (\w+) --recipe (\S+)", line)[0])
        for line in commands
        if "train " in line and "--recipe" in line
    }
    rows = {recipe for (recipe, _), run in list_paper_runs().items() if run.row}
    whole = {(who, recipe) for recipe, who in list_paper_runs() if recipe not in rows}
    assert {each for each in trained if each[1] not in rows} == whole
    assert rows <= set(re.findall(r"`(paper-[\w-]+)`", page)), "each row of a table has its recipe beside it"


def _find_command(name: str, arguments: list[str]) -> Any:
    """The command itself, imported."""
    command: Any = ListedCommand(name, f"app.cli.{COMMANDS[name][0]}", COMMANDS[name][1]).load()
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    return command
