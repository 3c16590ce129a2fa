"""Prints captioners, a line each or one whole: ``reelword models``.

They are described by app/cli/installed_models.py, or by the running service that has them.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from app.cli.model_options import AsJson, FieldsOf, settings_with
from app.cli.server import Server, ServerChoice
from app.errors import UsageError
from app.terminal import print_table, say

Model = dict[str, Any]
MARKS = ("right", "partly", "wrong")  #: how clips are judged by eye
COUNTS = ("n", *MARKS)  #: of a card's numbers, those that count items
COLUMNS = ("captioner", "clips right / partly / wrong", "a 10 s clip", "size")

models = typer.Typer(invoke_without_command=True)


@models.callback()
def list_models(
    context: typer.Context,
    service: Annotated[ServerChoice, FieldsOf("Where it is done")],
    as_json: AsJson = False,
    sets: Annotated[
        bool, typer.Option("--sets", help="The stream sets that captioners can be fed with, alone.")
    ] = False,
) -> None:
    """List captioners, a line each; show NAME tells the rest of one."""
    if context.invoked_subcommand is not None:
        return
    if sets:
        from app.cli.installed_models import print_sets

        print_sets(settings_with().data, as_json=as_json)
        return
    print_models(_describe(service), as_json=as_json)


@models.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As models lists it.", show_default=False)],
    service: Annotated[ServerChoice, FieldsOf("Where it is done")],
    as_json: AsJson = False,
) -> None:
    """Show a captioner whole: its features, scores by set of data, size, speed and source."""
    _print_model(name, _describe(service), as_json=as_json)


def _describe(service: ServerChoice) -> list[Model]:
    settings = settings_with()
    if (server := service.find(settings)) is not None:
        return ask_models(server)
    from app.cli.installed_models import describe_models

    return describe_models(settings)


def ask_models(server: Server) -> list[Model]:
    """Returns what a running service says of its captioners, in the form of those that are installed."""
    document = server.get("/models").json()
    return [
        {**model, "captioner": model["kind"], "default": model["name"] == document["default"], "error": None}
        for model in document["captioners"]
    ]


def print_models(models: Sequence[Model], *, as_json: bool) -> None:
    """Prints captioners, a line each, or one JSON document; the one that writes by default is marked."""
    if as_json:
        print(json.dumps(models))
    elif models:
        print_table(COLUMNS, [_format_row(each) for each in models])
    else:
        say("There is no captioner: train one with reelword train NAME.")


def _print_model(name: str, models: Sequence[Model], *, as_json: bool) -> None:
    """Prints all that is known of a captioner. Raises UsageError: there is no captioner of that name."""
    by_name = {model["name"]: model for model in models}
    if name not in by_name:
        raise UsageError(f"There is no captioner called {name}; there are: {', '.join(by_name) or 'none'}.")
    if as_json:
        print(json.dumps(by_name[name]))
    else:
        print_table(("member", "value"), list(_format_members(by_name[name])))


def _format_row(model: dict[str, Any]) -> tuple[str, ...]:
    name = f"{model['name']} (default)" if model["default"] else model["name"]
    if model["error"]:
        return name, model["error"], "", ""
    speed = model["speed"]
    seconds = "" if speed is None else f"{speed['feature_seconds'] + speed['caption_seconds']:.1f} s"
    size = f"{model['bytes'] / 1e6:.0f} MB" if "bytes" in model else ""
    return name, _count_clips(model["scores"]), seconds, size


def _count_clips(scores: dict[str, Any]) -> str:
    """Writes how many clips were judged right, partly right and wrong by eye; "" where none were."""
    judged = (each for each in scores.values() if isinstance(each, dict) and {*MARKS} <= each.keys())
    return next((" / ".join(str(each[mark]) for mark in MARKS) for each in judged), "")


def _format_members(model: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the members that have a value, in words."""
    words = {
        "features": [f"{stream}: {network}" for stream, network in model.get("features", {}).items()],
        "extractors": model.get("extractors"),
        "members": model.get("members"),
        "scores": _format_scores(model.get("scores", {})),
        "speed": [f"{name}: {value}" for name, value in (model.get("speed") or {}).items()],
    }
    for name, value in {**model, **words}.items():
        if value not in (None, "", []):
            yield name, "\n".join(value) if isinstance(value, list) else str(value)


def _format_scores(scores: dict[str, Any]) -> list[str]:
    """Writes a line for each set of data: ``flickr8k val: cider 54.1, bleu4 22.3``."""
    lines = []
    for data, metrics in scores.items():
        numbers = metrics.get("metrics", metrics) if isinstance(metrics, dict) else {"score": metrics}
        scalars = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
        parts = [f"{name} {value:.{0 if name in COUNTS else 1}f}" for name, value in scalars.items()]
        lines.append(f"{data}: {', '.join(parts)}")
    return lines
