"""One safetensors file a captioner: weights, and in its metadata all that is needed to use and judge them.

Config, vocabulary, the specs of the streams it was trained on, its scores and the ids it was trained
on travel with the weights, because a captioner whose vocabulary got lost is the commonest issue under
public captioners (e.g. rohit-gupta/Video2Language#8, facebookresearch/mmf#175).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from extractors.errors import ReelwordError
from extractors.features import StreamSpec
from extractors.files import atomic_write
from models.captioner import AnyCaptioner
from models.captioners.registry import EMBEDDINGS, captioner_class
from models.captioners.semantic_embedding import SemanticEmbedding
from models.vocabulary import SPECIALS, Vocabulary

FORMAT = "reelword-1"


class CheckpointError(ReelwordError, ValueError):
    """The file is no checkpoint of ours, or is damaged; the message says what to do."""

    code = "checkpoint_damaged"
    hint = "Copy the checkpoint again, or train it again: python -m app train."


@dataclass(frozen=True)
class Speed:
    """What one caption costs, measured by ``python -m benchmarks.captioners``.

    feature_seconds: decoding and features of a 10 s clip. caption_seconds: writing its caption, beam 5.
    machine: where it was measured.
    """

    feature_seconds: float
    caption_seconds: float
    machine: str

    @property
    def seconds(self) -> float:
        """What somebody waits who sends one clip."""
        return self.feature_seconds + self.caption_seconds

    @property
    def captions_per_second(self) -> float:
        """Once the features are there."""
        return 1 / self.caption_seconds


@dataclass(frozen=True)
class Card:
    """What a checkpoint says of itself.

    streams: the spec each input must have. scores: metric → value ×100 by set. training: recipe, steps,
    hours, data and the ids trained on. speed: None where it was not measured.
    """

    captioner: str
    streams: Mapping[str, StreamSpec]
    scores: Mapping[str, Any]
    training: Mapping[str, Any]
    speed: Speed | None = None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A loaded captioner with its card and the sha256 of its file."""

    captioner: AnyCaptioner
    card: Card
    sha256: str


def save_checkpoint(path: Path, captioner: AnyCaptioner | SemanticEmbedding, card: Card) -> None:
    """Write float16 weights and metadata; the file appears whole or not at all."""
    weights = {
        name: value.detach()
        .to("cpu", torch.float16 if value.is_floating_point() else value.dtype)
        .contiguous()
        for name, value in _unshared(captioner).items()
    }
    metadata = {
        "format": FORMAT,
        "captioner": card.captioner,
        "config": captioner.config.model_dump_json(),
        "vocabulary": "\n".join(captioner.vocabulary.words[len(SPECIALS) :]),
        "streams": json.dumps({name: asdict(spec) for name, spec in card.streams.items()}),
        "scores": json.dumps(card.scores),
        "training": json.dumps(card.training),
        "speed": _speed_text(card.speed),
    }
    _write(path, weights, metadata)


def record_speed(path: Path, speed: Speed) -> None:
    """Writes it into a checkpoint's card and leaves all else as it is. Raises CheckpointError."""
    metadata, weights = _read(path)
    _write(path, weights, {**metadata, "speed": _speed_text(speed)})


def parameters(path: Path) -> int:
    """How many numbers a checkpoint holds, by its header. Raises CheckpointError."""
    return sum(math.prod(shape) for shape in _shapes(path))


def _write(path: Path, weights: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    with atomic_write(path) as unfinished:
        save_file(weights, unfinished, metadata)


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """A captioner in float32 and evaluation mode.

    Raises CheckpointError for a file that is missing, damaged, or not written by ``save_checkpoint``.
    """
    captioner, card = _load(path, captioner_class)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Checkpoint(captioner.to(device).eval(), card, digest)


def load_embedding(path: Path, device: torch.device | str = "cpu") -> tuple[SemanticEmbedding, Card]:
    """The video-semantic embedding, as ``load_checkpoint`` gives a captioner. Raises CheckpointError."""
    embedding, card = _load(path, EMBEDDINGS.__getitem__)
    return embedding.to(device).eval(), card


def _load(path: Path, find: Callable[[str], type[Any]]) -> tuple[Any, Card]:
    metadata, weights = _read(path)
    with _explained(path):
        kind = find(metadata["captioner"])
        config = kind.config_class.model_validate_json(metadata["config"])
        captioner = kind(config, Vocabulary(metadata["vocabulary"].split("\n")))
        card = _card(metadata)
        _fill(captioner, weights)
    return captioner, card


def kind_of(path: Path) -> str | None:
    """The name of what a file holds, a captioner's or an embedding's; None where it cannot be read."""
    try:
        return _read(path, with_weights=False)[0].get("captioner")
    except CheckpointError:
        return None


def vocabulary_digest(path: Path) -> str:
    """Sixteen hexadecimal digits that captioners share who know the same words. Raises CheckpointError."""
    metadata, _ = _read(path, with_weights=False)
    with _explained(path):
        return hashlib.sha256(metadata["vocabulary"].encode()).hexdigest()[:16]


def read_card(path: Path) -> Card:
    """The card alone, without building the network."""
    metadata, _ = _read(path, with_weights=False)
    with _explained(path):
        return _card(metadata)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever is wrong inside a readable file, as a CheckpointError."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} does not fit its own description ({error}); fetch it again, or update Reelword."
        ) from error


def _read(path: Path, with_weights: bool = True) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in list(file.keys())} if with_weights else {}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint ({error}); fetch it again.") from error
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no Reelword checkpoint; train one with `python -m app train`.")
    return metadata, weights


def _shapes(path: Path) -> list[list[int]]:
    try:
        with safe_open(path, "pt") as file:
            return [file.get_slice(key).get_shape() for key in list(file.keys())]
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint ({error}); fetch it again.") from error


def _card(metadata: Mapping[str, str]) -> Card:
    streams = {name: StreamSpec(**spec) for name, spec in json.loads(metadata["streams"]).items()}
    speed = json.loads(metadata.get("speed", "null"))  # older files have none
    return Card(
        metadata["captioner"],
        streams,
        json.loads(metadata["scores"]),
        json.loads(metadata["training"]),
        None if speed is None else Speed(**speed),
    )


def _speed_text(speed: Speed | None) -> str:
    return json.dumps(None if speed is None else asdict(speed))


def _unshared(captioner: nn.Module) -> dict[str, torch.Tensor]:
    """The state without second names of one tensor (tied words), which safetensors does not hold."""
    seen: set[int] = set()
    return {
        name: value
        for name, value in captioner.state_dict().items()
        if value.data_ptr() not in seen and not seen.add(value.data_ptr())  # type: ignore[func-returns-value]
    }


def _fill(captioner: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    wanted = _unshared(captioner).keys()
    if differing := sorted(set(wanted) ^ weights.keys()):
        raise ValueError(f"missing or superfluous: {', '.join(differing[:3])}")
    captioner.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
