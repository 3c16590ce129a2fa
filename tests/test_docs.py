"""The manual cannot drift: each setting, route, command and error has its place in docs/."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import AliasChoices
from typer._click.exceptions import UsageError

from app.api.application import create_app
from app.api.refusals import RequestError
from app.cli.commands import ListedCommand
from app.cli.main import COMMANDS
from app.errors import JobError
from app.jobs.options import CaptionOptions
from app.settings import Settings
from extractors.errors import leaves
from extractors.features import Stream
from extractors.media.errors import MediaError
from lab.__main__ import STUDIES
from models.captioners.registry import find_stream_set
from models.checkpoint import WEIGHTS, Card, load_captioner, load_embedding
from models.decoding.options import DecodingOptions
from tests.media import write_video
from training.datasets.registry import find_data_set
from training.recipes.paper_recipes import find_paper_run, list_paper_runs

SIGNS = {">", ">>", "|", "&&", "||", ";", "&"}  #: behind which a command of a shell ends


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


def _find_command(name: str, arguments: list[str], program: str = "app.cli") -> Any:
    """The command itself, imported."""
    module, sentence = (COMMANDS if program == "app.cli" else STUDIES)[name]
    command: Any = ListedCommand(name, f"{program}.{module}", sentence).load()
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        command = command.commands[arguments.pop(0)]
    return command


def _snippets(root: Path, language: str) -> list[tuple[str, str]]:
    """Each snippet of the documents in a language, with its page's name."""
    pages = [root / "README.md", root / "client" / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [
        (page.name, text)
        for page in pages
        for text in re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


def _typed_commands(root: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Each command of the documents' shells: its line, its program's package and its words."""
    for _, text in _snippets(root, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(re.sub(r"[$]\(.*?\)", "", line), comments=True)
            for number, word in enumerate(words):
                if Path(word).name == "reelword" or words[number - 1 : number + 1] == ["-m", "lab"]:
                    program = "lab" if word == "lab" else "app.cli"
                    yield line, program, list(takewhile(lambda each: each not in SIGNS, words[number + 1 :]))
                    break


def test_each_command_in_a_snippet_is_one_that_the_program_takes(root: Path) -> None:
    """Parsed by the command line itself: names, options, how many words and of which kind."""
    typed = list(_typed_commands(root))
    assert len(typed) > 60
    for line, program, (name, *arguments) in typed:
        if name.startswith("-"):
            continue  # the program's own options
        command = _find_command(name, arguments, program)
        try:
            command.make_context(name, list(arguments)).close()
        except UsageError as error:
            pytest.fail(f"{line}: {error}")


def test_each_target_of_make_in_a_snippet_is_there(root: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    groups = set(tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"])
    targets |= {f"setup-{group}" for group in groups}
    for page, text in _snippets(root, "sh"):
        for words in re.findall(r"^(?:\w+=\S+ )*make ([\w -]+?)(?:  #.*)?$", text, re.MULTILINE):
            assert set(words.split()) <= targets, f"{page}: make {words}"


def test_each_import_in_a_snippet_is_there(root: Path) -> None:
    snippets = _snippets(root, "python")
    assert len(snippets) > 10
    for page, text in snippets:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert {each.name for each in node.names} <= vars(module).keys(), f"{page}: {node.module}"


def test_the_decoders_example_decodes(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "clip.mp4")
    monkeypatch.chdir(tmp_path)
    (text,) = (text for page, text in _snippets(root, "python") if page == "decoding.md")
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["decoded"].frames.pixels.shape[0] == len(names["decoded"].frames.pts) == 8


@pytest.mark.slow
def test_the_captioners_examples_caption(root: Path) -> None:
    """Features of two videos as the checkpoints in weights/ read them, without a network that makes them."""
    embedding, card = load_embedding(WEIGHTS / "semantic_embedding.safetensors")
    readers = [(each.captioner, each.card) for each in map(load_captioner, ("g2l", "stats"))]
    times, features = np.arange(8.0), dict[str, Stream]()
    networks: list[tuple[Any, Card]] = [*readers, (embedding, card)]
    for network, of_network in networks:
        for each in network.inputs:
            spec = of_network.streams[each.name]
            features[each.name] = Stream(torch.rand(8, 49, each.width), times, times + 1, spec)
    for page, text in _snippets(root, "python"):
        if page == "models.md":
            names: dict[str, Any] = {"features": [features] * 2, "options": DecodingOptions(beam_size=2)}
            exec(text, names)
            assert [bool(best.text) for best, *_ in names["captions"]] == [True, True]
