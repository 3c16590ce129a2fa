"""Options of the command line, the form and OpenAPI are the fields of one model."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from app.api.receiving.fields import read_request
from app.cli.commands import Command
from app.cli.model_options import FieldsOf, expand_fields
from app.cli.videos.caption import caption
from app.errors import UsageError
from app.jobs.options import FORM_FIELDS, CaptionOptions, form_schema


class Walk(BaseModel):
    """A model to make options of."""

    steps: int = Field(3, ge=1, le=9, description="How many.")
    pace: float | str = Field("slow", description="Metres a second, or a word.")
    dogs: list[str] | None = Field(None, alias="dog", description="Who comes along.")
    home: Path | None = Field(None, description="Where it ends.")
    is_long: bool = Field(False, description="Over the hill.")


@dataclass(frozen=True)
class Weather:
    """Options of a dataclass."""

    rain: Annotated[bool, typer.Option("--rain", help="It rains.")] = False


def _run(*arguments: str) -> Any:
    seen: dict[str, Any] = {}

    def go(
        walk: Annotated[Walk, FieldsOf("The walk")],
        sky: Annotated[Weather, FieldsOf()],
        to: Annotated[str, typer.Option()],
    ) -> None:
        seen.update(walk=walk, sky=sky, to=to)

    program = typer.Typer(rich_markup_mode=None)
    program.command(cls=Command)(expand_fields(go))
    run = CliRunner().invoke(program, ["--to", "town", *arguments], env={"COLUMNS": "100"})
    return run, seen


def test_a_models_fields_are_options_with_their_types_and_defaults() -> None:
    _, seen = _run()
    assert seen == {"walk": Walk(), "sky": Weather(), "to": "town"}
    dogs = ("--dog", "Rex", "--dog", "Fips")
    _, seen = _run("--steps", "4", "--pace", "1.5", *dogs, "--home", "inn", "--is-long", "--rain")
    assert seen["walk"].model_dump() == {
        "steps": 4,
        "pace": 1.5,
        "dogs": ["Rex", "Fips"],
        "home": Path("inn"),
        "is_long": True,
    }
    assert seen["sky"].rain


def test_a_value_outside_the_fields_bounds_is_wrong_usage() -> None:
    run, seen = _run("--steps", "10")
    assert (run.exit_code, seen) == (2, {})
    assert "'--steps': Input should be less than or equal to 9" in run.stderr


def test_the_help_has_the_fields_descriptions_below_their_heading() -> None:
    text, _ = _run("--help")
    walk = text.stdout.partition("The walk:")[2].partition("Options:")[0]
    for words in ("--steps", "How many. Default: 3.", "--dog", "--is-long / --no-is-long", "Default: off."):
        assert words in walk
    assert "--rain" not in walk


def test_caption_has_every_option_of_a_job() -> None:
    parameters = inspect.signature(expand_fields(caption)).parameters
    left_out = {"attention"}  # follows from where its pictures go
    assert set(CaptionOptions.model_fields) - left_out <= parameters.keys()
    assert set(FORM_FIELDS) == set(form_schema()) == set(CaptionOptions.model_fields)
    assert read_request({"beam_size": "3"}).options.beam_size == 3
    with pytest.raises(UsageError, match=r"num_captions .6. cannot exceed beam_size"):
        expand_fields(caption)(**dict.fromkeys(parameters) | {"num_captions": 6})


NEW_FIELD = """
from pydantic import Field
import models.decoding.options as declared

class Extended(declared.DecodingOptions):
    warmth: float = Field(0.25, ge=0, le=4, description="How warm words are.")

declared.DecodingOptions = Extended
from typer.testing import CliRunner
from app.api.application import create_app
from app.api.receiving.fields import read_request
from app.cli.main import cli
from app.jobs.options import CaptionOptions
from app.settings import Settings

for command in ("caption", "bulk", "evaluate"):
    assert "--warmth" in CliRunner().invoke(cli, [command, "--help"]).stdout, command
schema = str(create_app(Settings(redis_url="redis://127.0.0.1")).openapi()["paths"]["/caption"])
assert "'warmth': {'default': 0.25, 'description': 'How warm words are.', 'maximum': 4" in schema
assert read_request({"warmth": "2"}).options.warmth == 2
assert CaptionOptions.model_validate_json(CaptionOptions(warmth=3).model_dump_json()).warmth == 3
"""


def test_a_field_that_decoding_gets_is_an_option_everywhere(root: Path) -> None:
    run = subprocess.run([sys.executable, "-c", NEW_FIELD], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_clients_options_are_the_forms() -> None:
    from app.api.receiving.fields import REQUEST_FIELDS
    from reelword.calls import Options

    assert set(Options.__annotations__) == set(REQUEST_FIELDS) - {"url", "file"}
