"""``python -m app models``: the captioners that are installed, read from their checkpoints' metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from models.checkpoint import CheckpointError, read_card
from models.service import available

MIB = 2**20


def print_models(weights: Path, *, as_json: bool) -> None:
    """The captioners in a folder, as a table or as one JSON document."""
    found = [describe(name, path) for name, path in available(weights).items()]
    if as_json:
        print(json.dumps(found))
    elif found:
        Console().print(_table(found))
    else:
        print("There is no captioner: train one with python -m app train stats.")


def describe(name: str, path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself; ``error`` where it cannot be read."""
    size = path.stat().st_size
    try:
        card = read_card(path)
    except CheckpointError as error:
        return {"name": name, "file": str(path), "bytes": size, "error": str(error)}
    features = {stream: spec.network for stream, spec in card.streams.items()}
    return {
        "name": name, "file": str(path), "bytes": size, "captioner": card.captioner, "features": features,
        "scores": card.scores, "error": None,
    }  # fmt: skip


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table("captioner", "features", "size", "scores (×100)")
    for model in found:
        size = f"{model['bytes'] / MIB:.1f} MiB"
        if model["error"]:
            table.add_row(model["name"], model["error"], size, "")
            continue
        features = ", ".join(f"{stream} ({network})" for stream, network in model["features"].items())
        table.add_row(model["name"], features, size, "\n".join(_scores(model["scores"])))
    return table


def _scores(scores: dict[str, Any]) -> list[str]:
    """A line for each set of data: ``flickr8k val: cider 54.1, bleu4 22.3``."""
    lines = []
    for data, metrics in scores.items():
        numbers = metrics.get("metrics", metrics) if isinstance(metrics, dict) else {"score": metrics}
        said = [f"{name} {value:.1f}" for name, value in numbers.items() if isinstance(value, int | float)]
        lines.append(f"{data}: {', '.join(said)}")
    return lines
