"""Lists the captioners that are installed, and the stream sets that captioners can be fed with:
``python -m app models``.

Captioners are read from their checkpoints' metadata; of a stream set it is said what it lacks here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.errors import UsageError
from app.jobs.captioner_choice import default_captioner
from app.jobs.captioner_info import ABOUT, CaptionerInfo
from app.pipeline.installed_captioners import (
    captioner_info,
    combination_infos,
    pretrained_captioners,
    pretrained_info,
)
from app.settings import Settings
from app.terminal import print_table, say
from extractors.extractor import list_weights
from extractors.pretrained.manifest import find_candidates
from extractors.pretrained.weights_folder import WeightsFolder
from extractors.windows import WindowOptions
from models.checkpoint import CheckpointError, find_embedding, list_checkpoints, read_card
from models.stream_set import DEMO, STREAM_SETS, StreamInput, StreamSet

MARKS = ("right", "partly", "wrong")  #: how clips are judged by eye
COUNTS = ("n", *MARKS)  #: of a card's numbers, those that count items
COLUMNS = ("captioner", "clips right / partly / wrong", "a 10 s clip", "size")


def print_models(settings: Settings, *, as_json: bool) -> None:
    """Prints the captioners that are installed, a line each, or as one JSON document.

    The one that writes where a job names none is marked.
    """
    models = describe_models(settings)
    if as_json:
        print(json.dumps(models))
    elif models:
        print_table(COLUMNS, [_format_row(each) for each in models])
    else:
        say("There is no captioner: train one with python -m app train NAME.")


def print_model(name: str, settings: Settings, *, as_json: bool) -> None:
    """Prints all that is known of a captioner.

    Args:
        name: of the captioner.
        settings: where captioners are.
        as_json: prints one JSON document.

    Raises:
        UsageError: there is no captioner of that name.
    """
    models = {model["name"]: model for model in describe_models(settings)}
    if name not in models:
        raise UsageError(f"There is no captioner called {name}; there are: {', '.join(models) or 'none'}.")
    if as_json:
        print(json.dumps(models[name]))
    else:
        print_table(("member", "value"), list(_format_members(models[name])))


def describe_models(settings: Settings) -> list[dict[str, Any]]:
    """Gathers what the captioners that are installed say of themselves."""
    weights = settings.weights
    files = list_checkpoints(weights)
    infos = {name: info for name, path in files.items() if (info := _read_info(name, path))}
    alone = list(infos.values())
    joint = combination_infos(alone, find_embedding(weights))
    pretrained = {card.name: (card, pretrained_info(card)) for card in pretrained_captioners(settings).list()}
    chosen = settings.captioner or default_captioner([*alone, *(info for _, info in pretrained.values())])
    models = [describe_captioner(name, path, infos.get(name)) for name, path in files.items()]
    models += [_describe_info(info) for info in joint]
    models += [{**_describe_info(info), "bytes": card.size} for card, info in pretrained.values()]
    return [{**each, "default": each["name"] == chosen} for each in models]


def describe_captioner(name: str, path: Path, info: CaptionerInfo | None) -> dict[str, Any]:
    """Gathers what a checkpoint says of itself.

    Args:
        name: what the captioner is called here.
        path: its checkpoint.
        info: what was read of it, None where it cannot be read.

    Returns:
        A member of the JSON document; ``error`` says what is wrong with it.
    """
    own = {"file": str(path), "bytes": path.stat().st_size}
    if info is not None:
        streams = read_card(path).training.get("streams", DEMO.name)
        return {**_describe_info(info), **own, "streams": streams}
    try:
        read_card(path)
        error = f"{path} is damaged; fetch it again."
    except CheckpointError as damage:
        error = str(damage)
    return {"name": name, **own, "error": error}


def _read_info(name: str, path: Path) -> CaptionerInfo | None:
    try:
        return captioner_info(name, path)
    except CheckpointError:
        return None


def _describe_info(info: CaptionerInfo) -> dict[str, Any]:
    return {
        "name": info.name, "captioner": info.kind, "about": ABOUT.get(info.kind, ""),
        "features": {stream: spec["network"] for stream, spec in info.features.items()},
        "extractors": list(info.extractors), "members": list(info.members) or None,
        "parameters": info.parameters, "scores": info.scores,
        "speed": None if info.speed is None else info.speed.model_dump(), "error": None,
        "source": info.source or None, "licence": info.licence or None, "memory": info.memory,
    }  # fmt: skip


def print_sets(data: Path, *, as_json: bool) -> None:
    """Prints the stream sets; ``missing``: weights that are not here, as ``weights get`` calls them."""
    if as_json:
        print(json.dumps([describe_set(each, data) for each in STREAM_SETS.values()]))
        return
    rows = [
        (each.name, each.captioner, "\n".join(map(_format_input, each.inputs)),
         ", ".join(find_missing_weights(each, data)) or "nothing")
        for each in STREAM_SETS.values()
    ]  # fmt: skip
    print_table(("stream set", "for", "streams", "missing here"), rows)


def describe_set(wanted: StreamSet, data: Path) -> dict[str, Any]:
    """Gives a stream set as JSON."""
    return {
        "name": wanted.name,
        "captioner": wanted.captioner,
        "source": wanted.source,
        "streams": [
            {"stream": each.stream, "extractor": each.extractor, "shape": each.shape, "regions": each.regions,
             "use": each.use, "windows": _list_windows(each.windows)}
            for each in wanted.inputs
        ],
        "missing": find_missing_weights(wanted, data),
    }  # fmt: skip


def find_missing_weights(wanted: StreamSet, data: Path) -> list[str]:
    """Names the weights of weights/manifest.toml that the set's extractors want and that are not here."""
    folder = WeightsFolder.of(data)
    names = dict.fromkeys(name for each in wanted.inputs for name in list_weights(each.extractor))
    return [
        name
        for name in names
        if not any(folder.locate(known) for known in find_candidates(name, folder.manifest))
    ]


def _format_input(given: StreamInput) -> str:
    windows = ", ".join(f"{name} {value}" for name, value in _list_windows(given.windows).items())
    use = f" ({given.use})" if given.use else ""
    return f"{given.stream}: {given.shape}{use}{f'; {windows}' if windows else ''}"


def _list_windows(windows: WindowOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(windows).items() if value is not None}


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
    """A line for each set of data: ``flickr8k val: cider 54.1, bleu4 22.3``."""
    lines = []
    for data, metrics in scores.items():
        numbers = metrics.get("metrics", metrics) if isinstance(metrics, dict) else {"score": metrics}
        known = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
        said = [f"{name} {value:.{0 if name in COUNTS else 1}f}" for name, value in known.items()]
        lines.append(f"{data}: {', '.join(said)}")
    return lines
