"""Publishes a captioner that was trained here, with its card, on a model hub.

A repository has a checkpoint as ``reelword.safetensors``, or an adapter's files, and README.md beside it;
``captioners add`` brings either elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import ModelCard

from app.errors import UsageError
from app.pipeline.installed_captioners import pretrained_captioners
from app.settings import Settings
from models.checkpoint import find_checkpoint, read_card
from models.pretrained.adapters.card import CHECKPOINT
from models.pretrained.hub import CARD, upload
from models.pretrained.installed import CARD as FACTS


def publish(name: str, repository: str, licence: str | None, settings: Settings) -> str:
    """Uploads a captioner and its card.

    Args:
        name: Of a checkpoint or its path, or of an installed adapter.
        repository: ``OWNER/NAME`` of the hub, made where it is not there.
        licence: Of the weights, as hubs name it; None for what the card says.
        settings: Where captioners lie.

    Returns:
        The commit.

    Raises:
        UsageError: It is a pretrained captioner as it came.
        UnknownCaptioner, CheckpointError, PretrainedError: It is not there, damaged, or cannot be sent.
    """
    files = _list_adapter(name, settings) or _list_checkpoint(find_checkpoint(name, settings.weights))
    readme = files.pop(CARD)
    card = ModelCard(readme.decode() if isinstance(readme, bytes) else readme.read_text("utf-8"))
    card.data["license"] = licence or card.data.get("license")
    return upload({**files, CARD: str(card).encode()}, repository)


def _list_adapter(name: str, settings: Settings) -> dict[str, Path | bytes]:
    """Lists what an installed adapter is made of; nothing where no pretrained captioner has the name."""
    installed = pretrained_captioners(settings)
    if name not in (card.name for card in installed.list()):
        return {}
    card, folder = installed.verify(name), installed.path(name)
    if card.base is None:
        raise UsageError(f"{name} came from {card.source} as it is: what was trained here is pushed.")
    return {each: folder / each for each in (*card.files, FACTS, CARD)}


def _list_checkpoint(path: Path) -> dict[str, Path | bytes]:
    """Lists a checkpoint and the text beside it, or one of what the file says of itself."""
    text = path.with_suffix(".md")
    return {CHECKPOINT: path, CARD: text if text.is_file() else _describe_checkpoint(path)}


def _describe_checkpoint(path: Path) -> bytes:
    card = read_card(path)
    training: Mapping[str, object] = {name: each for name, each in card.training.items() if name != "ids"}
    facts = json.dumps({"scores": card.scores, "training": training}, indent=1)
    title = f"# {path.stem}\n\nA captioner of Reelword, {card.captioner}:"
    return f"---\nlibrary_name: reelword\n---\n\n{title}\n\n```json\n{facts}\n```\n".encode()
