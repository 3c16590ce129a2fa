"""Commands look alike: options of one name say the same below the same headings; shells complete them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.cli.commands import ListedCommand
from app.cli.main import COMMANDS


def commands() -> Iterator[tuple[str, Any]]:
    """Each command that can be called, with its name below the program's."""
    for name, (module, sentence) in COMMANDS.items():
        loaded: Any = ListedCommand(name, f"app.cli.{module}", sentence).load()
        group = getattr(loaded, "commands", {})
        yield from ((f"{name} {each}", command) for each, command in group.items())
        if not group:
            yield name, loaded


def options() -> Iterator[tuple[str, str, str]]:
    """Each option: its first flag, its help, and the command that has it."""
    for name, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                yield parameter.opts[0], parameter.help, name


#: Options that are another thing in each command, or another of the same kind.
HOMONYMS = {
    "--batch", "--captioner", "--format", "--frames", "--jobs", "--limit", "--out", "--references", "--seed",
    "--streams",
}  # fmt: skip


def test_options_of_one_name_begin_with_the_same_words() -> None:
    """Up to the first colon, semicolon or end of a sentence; behind it stands what one command has alone."""
    openings: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for flag, text, command in options():
        openings[flag][re.split(r"[:;,.](?: |$)", text)[0]].append(command)
    assert {flag: found for flag, found in openings.items() if len(found) > 1}.keys() == HOMONYMS


def test_each_option_is_a_sentence_and_tells_its_default_in_one_way() -> None:
    for flag, text, command in options():
        if flag not in ("--help", "--version"):
            assert re.fullmatch(r"[^ ].*[.)…]", text), f"{command} {flag}: {text}"
        assert not re.search(r"default [A-Z]", text), f"{command} {flag}: {text}"


def test_who_is_asked_stands_below_one_heading() -> None:
    headings = {
        parameter.rich_help_panel
        for _, command in commands()
        for parameter in command.params
        if parameter.opts[0] in ("--server", "--local")
    }
    assert headings == {"Where it is done"}


@pytest.fixture
def program(root: Path, tmp_path: Path) -> Path:
    """``reelword``, as it lies on the path of who has it installed."""
    script = tmp_path / "reelword"
    script.write_text(f'#!/bin/sh\ncd {root} && exec {sys.executable} -m app "$@"\n')
    script.chmod(0o755)
    return script


def run(program: Path, *command: str, **environment: str) -> str:
    own = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", **environment}
    run = subprocess.run(command, env=own, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def completions(program: Path, *words: str) -> list[str]:
    """What bash offers behind these words by the script that it is given; the last one is being written."""
    script = f'eval "$(reelword --show-completion bash)"; COMP_WORDS=({" ".join(words)}); '
    script += f"COMP_CWORD={len(words) - 1}; _reelword_completion reelword; "
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    return run(program, "bash", "-c", script, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").split()


def test_bash_completes_commands_and_options(program: Path) -> None:
    assert completions(program, "reelword", "wei") == ["weights"]
    assert completions(program, "reelword", "jobs", "''") == ["list", "show", "requeue", "cancel", "purge"]
    assert "--older-than" in completions(program, "reelword", "jobs", "purge", "--")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_too(program: Path, shell: str) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "reelword wei", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert "weights" in run(program, "reelword", _REELWORD_COMPLETE=f"complete_{shell}", **asked)
