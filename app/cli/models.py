"""``reelword models``: prints captioners, a line each or one whole, and stream sets.

Captioners are described by the running service that has them, or here by their checkpoints' metadata.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.model_options import AsJson, FieldsOf, settings_with
from app.cli.server import Server, ServerChoice
from app.errors import UsageError
from app.terminal import print_table, say

if TYPE_CHECKING:
    from app.jobs.captioner_info import CaptionerInfo
    from app.settings import Settings
    from extractors.windows import WindowOptions
    from models.stream_set import StreamSet

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
        _print_sets(settings_with().data, as_json=as_json)
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
    server = service.find(settings)
    return _describe_installed(settings) if server is None else ask_models(server)


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


def _describe_installed(settings: "Settings") -> list[Model]:
    """Describes the captioners that are installed; ``error`` says what is wrong with one that is damaged."""
    from app.pipeline import installed_captioners as installed
    from models.checkpoint import CheckpointError, find_embedding, list_checkpoints, read_card
    from models.stream_set import DEMO

    models: list[Model] = []
    alone: list[CaptionerInfo] = []
    for name, path in list_checkpoints(settings.weights).items():
        file_facts = {"file": str(path), "bytes": path.stat().st_size}
        try:
            alone.append(installed.captioner_info(name, path))
        except CheckpointError:
            models.append({"name": name, **file_facts, "error": _explain_damage(path)})
        else:
            streams = read_card(path).training.get("streams", DEMO.name)
            models.append({**_describe_info(alone[-1]), **file_facts, "streams": streams})
    joint = installed.combination_infos(alone, find_embedding(settings.weights))
    cards = installed.pretrained_captioners(settings).list()
    pretrained = [installed.pretrained_info(card) for card in cards]
    chosen = installed.default_here([*alone, *pretrained], settings)
    models += [_describe_info(info) for info in joint]
    models += [
        {**_describe_info(info), "bytes": card.size} for card, info in zip(cards, pretrained, strict=True)
    ]
    return [{**each, "default": each["name"] == chosen} for each in models]


def _explain_damage(path: Path) -> str:
    from models.checkpoint import CheckpointError, read_card

    try:
        read_card(path)
    except CheckpointError as damage:
        return str(damage)
    return f"{path} is damaged; fetch it again."


def _describe_info(info: "CaptionerInfo") -> Model:
    return {
        "name": info.name, "captioner": info.kind, "about": info.about,
        "features": {stream: spec["network"] for stream, spec in info.features.items()},
        "extractors": list(info.extractors), "members": list(info.members) or None,
        "parameters": info.parameters, "scores": info.scores,
        "speed": None if info.speed is None else info.speed.model_dump(), "error": None,
        "source": info.source or None, "licence": info.licence or None, "memory": info.memory,
    }  # fmt: skip


def _print_sets(data: Path, *, as_json: bool) -> None:
    """Prints the stream sets; ``missing``: weights that are not here, as ``weights get`` calls them."""
    from extractors.pretrained.weights_folder import HUB
    from models.captioners.registry import list_stream_sets
    from models.pretrained.installed import InstalledCaptioners
    from models.stream_set import make_hub_set

    encoders = InstalledCaptioners(data / "weights" / "hub").list()
    of_hubs = [make_hub_set(f"{HUB}{card.name}") for card in encoders]
    sets = [describe_set(each, data) for each in (*list_stream_sets().values(), *of_hubs)]
    if as_json:
        print(json.dumps(sets))
        return
    rows = [
        (each["name"], each["captioner"], "\n".join(map(_format_input, each["streams"])),
         ", ".join(each["missing"]) or "nothing")
        for each in sets
    ]  # fmt: skip
    print_table(("stream set", "for", "streams", "missing here"), rows)


def describe_set(wanted: "StreamSet", data: Path) -> Model:
    """Gives a stream set as JSON."""
    from app.pipeline.installed_captioners import find_missing_weights

    return {
        "name": wanted.name,
        "captioner": wanted.captioner,
        "source": wanted.source,
        "streams": [
            {"stream": each.stream, "extractor": each.extractor, "shape": each.shape, "regions": each.regions,
             "use": each.use, "windows": _list_windows(each.windows)}
            for each in wanted.inputs
        ],
        "missing": find_missing_weights((each.extractor for each in wanted.inputs), data),
    }  # fmt: skip


def _format_input(stream: dict[str, Any]) -> str:
    windows = ", ".join(f"{name} {value}" for name, value in stream["windows"].items())
    use = f" ({stream['use']})" if stream["use"] else ""
    return f"{stream['stream']}: {stream['shape']}{use}{f'; {windows}' if windows else ''}"


def _list_windows(windows: "WindowOptions") -> dict[str, Any]:
    return {name: value for name, value in asdict(windows).items() if value is not None}
