"""Describes the captioners that are installed, and lists the stream sets.

Captioners are described by their checkpoints' metadata, a stream set also by the weights that it lacks here.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.jobs.captioner_info import CaptionerInfo
from app.pipeline import installed_captioners as installed
from app.settings import Settings
from app.terminal import print_table
from extractors.pretrained.weights_folder import HUB
from extractors.windows import WindowOptions
from models.captioners.registry import list_stream_sets
from models.checkpoint import CheckpointError, find_embedding, list_checkpoints, read_card
from models.pretrained.installed import InstalledCaptioners
from models.stream_set import DEMO, StreamSet, make_hub_set


def describe_models(settings: Settings) -> list[dict[str, Any]]:
    """Describes the captioners that are installed; ``error`` says what is wrong with one that is damaged."""
    models: list[dict[str, Any]] = []
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
    try:
        read_card(path)
    except CheckpointError as damage:
        return str(damage)
    return f"{path} is damaged; fetch it again."


def _describe_info(info: CaptionerInfo) -> dict[str, Any]:
    return {
        "name": info.name, "captioner": info.kind, "about": info.about,
        "features": {stream: spec["network"] for stream, spec in info.features.items()},
        "extractors": list(info.extractors), "members": list(info.members) or None,
        "parameters": info.parameters, "scores": info.scores,
        "speed": None if info.speed is None else info.speed.model_dump(), "error": None,
        "source": info.source or None, "licence": info.licence or None, "memory": info.memory,
    }  # fmt: skip


def print_sets(data: Path, *, as_json: bool) -> None:
    """Prints the stream sets; ``missing``: weights that are not here, as ``weights get`` calls them."""
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
        "missing": installed.find_missing_weights((each.extractor for each in wanted.inputs), data),
    }  # fmt: skip


def _format_input(stream: dict[str, Any]) -> str:
    windows = ", ".join(f"{name} {value}" for name, value in stream["windows"].items())
    use = f" ({stream['use']})" if stream["use"] else ""
    return f"{stream['stream']}: {stream['shape']}{use}{f'; {windows}' if windows else ''}"


def _list_windows(windows: WindowOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(windows).items() if value is not None}
