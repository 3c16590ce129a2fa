"""Writes, reads and finds checkpoints: one safetensors file a captioner, with all that is needed to use it.

Config, vocabulary, the specs of the streams it was trained on, its scores and the ids it was trained
on travel with the weights, because a captioner whose vocabulary got lost is the commonest issue under
public captioners (e.g. rohit-gupta/Video2Language#8, facebookresearch/mmf#175).

The folder of weights is searched by what the files say of themselves, the names of captioners are those of
the files.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from extractors.errors import ReelwordError
from extractors.features import StreamSpec
from extractors.files import atomic_write
from models.captioner import Captioner
from models.captioners.registry import EMBEDDINGS, UnknownCaptioner, captioner_class
from models.captioners.semantic_embedding import SemanticEmbedding
from models.vocabulary import SPECIALS, Vocabulary

FORMAT = "reelword-1"
WEIGHTS = Path(__file__).resolve().parent.parent / "weights"


NetworkT = TypeVar("NetworkT", Captioner, SemanticEmbedding)


class CheckpointError(ReelwordError, ValueError, code="checkpoint_damaged"):
    """The file is no checkpoint of ours, or is damaged; the message says what to do."""

    hint = "Copy the checkpoint again, or train it again: reelword train."


@dataclass(frozen=True)
class Speed:
    """Holds what one caption costs, measured by ``python -m benchmarks.captioners``."""

    feature_seconds: float  #: decoding and features of a 10 s clip
    caption_seconds: float  #: writing its caption, beam 5
    machine: str  #: where it was measured

    @property
    def seconds(self) -> float:
        """Seconds that somebody waits who sends one clip."""
        return self.feature_seconds + self.caption_seconds

    @property
    def captions_per_second(self) -> float:
        """Captions written in a second, once the features are there."""
        return 1 / self.caption_seconds


@dataclass(frozen=True)
class Card:
    """Holds what a checkpoint says of itself."""

    captioner: str  #: the name of its class in the registry
    streams: Mapping[str, StreamSpec]  #: the spec each input must have
    scores: Mapping[str, Any]  #: metric → value ×100 by set
    training: Mapping[str, Any]  #: recipe, steps, hours, data and the ids trained on
    speed: Speed | None = None  #: None where it was not measured


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Holds a loaded captioner with its card and the sha256 of its file."""

    captioner: Captioner
    card: Card
    sha256: str


def save_checkpoint(path: Path, captioner: Captioner | SemanticEmbedding, card: Card) -> None:
    """Writes float16 weights and metadata; the file appears whole or not at all.

    Args:
        path: The file, replaced where it is there.
        captioner: Whose weights, configuration and vocabulary are written.
        card: What the file is to say of itself.

    Raises:
        OSError: The file could not be written.
    """
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
    """Writes the speed into a checkpoint's card and leaves all else as it is. Raises CheckpointError."""
    metadata, weights = _read(path)
    _write(path, weights, {**metadata, "speed": _speed_text(speed)})


def count_parameters(path: Path) -> int:
    """Counts the numbers that a checkpoint holds, by its header. Raises CheckpointError."""
    with _opened(path) as file:
        return sum(math.prod(file.get_slice(key).get_shape()) for key in list(file.keys()))


def _write(path: Path, weights: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Writes a file that is the same, byte by byte, for the same weights and metadata.

    The library writes metadata in an order of chance, so the head is written again with sorted keys.
    """
    written = save(weights, metadata)
    head_end = 8 + int.from_bytes(written[:8], "little")
    head = json.loads(written[8:head_end])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        file.writelines((len(text).to_bytes(8, "little"), text, memoryview(written)[head_end:]))


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Loads a captioner in float32 and evaluation mode.

    Raises CheckpointError for a file that is missing, damaged, or not written by ``save_checkpoint``.
    """
    captioner, card = _load(path, captioner_class)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Checkpoint(captioner.to(device).eval(), card, digest)


def load_embedding(path: Path, device: torch.device | str = "cpu") -> tuple[SemanticEmbedding, Card]:
    """Loads the video-semantic embedding as ``load_checkpoint`` a captioner. Raises CheckpointError."""
    embedding, card = _load(path, EMBEDDINGS.__getitem__)
    return embedding.to(device).eval(), card


def _load(path: Path, find: Callable[[str], type[NetworkT]]) -> tuple[NetworkT, Card]:
    metadata, weights = _read(path)
    with _explained(path):
        kind = find(metadata["captioner"])
        config = kind.config_class.model_validate_json(metadata["config"])
        captioner = kind(config, Vocabulary(metadata["vocabulary"].split("\n")))
        card = _card(metadata)
        _fill(captioner, weights)
    return captioner, card


def read_kind(path: Path) -> str | None:
    """Reads the name of what a file holds, a captioner's or an embedding's; None where it cannot be read."""
    try:
        return _read(path, with_weights=False)[0].get("captioner")
    except CheckpointError:
        return None


def read_vocabulary_digest(path: Path) -> str:
    """Reads sixteen hexadecimal digits that are alike where the words are. Raises CheckpointError."""
    metadata, _ = _read(path, with_weights=False)
    with _explained(path):
        return hashlib.sha256(metadata["vocabulary"].encode()).hexdigest()[:16]


def read_card(path: Path) -> Card:
    """Reads the card alone, without building the network. Raises CheckpointError."""
    metadata, _ = _read(path, with_weights=False)
    with _explained(path):
        return _card(metadata)


def read_config(path: Path) -> BaseModel:
    """Reads the configuration alone, without building the network. Raises CheckpointError."""
    metadata, _ = _read(path, with_weights=False)
    with _explained(path):
        name = metadata["captioner"]
        kind = EMBEDDINGS.get(name) or captioner_class(name)
        return kind.config_class.model_validate_json(metadata["config"])


def list_checkpoints(weights: Path = WEIGHTS) -> dict[str, Path]:
    """Lists the captioners of a folder, name → file.

    What a file holds is read in it; one that cannot be read is listed, and refused where it is loaded.
    """
    files = sorted(weights.glob("*.safetensors"))
    return {path.stem: path for path in files if read_kind(path) not in EMBEDDINGS}


def find_embedding(weights: Path = WEIGHTS) -> Path | None:
    """Finds the file of the semantic embedding that chooses among captions, whatever it is called."""
    files = sorted(weights.glob("*.safetensors"))
    return next((path for path in files if read_kind(path) in EMBEDDINGS), None)


def find_checkpoint(name: str, weights: Path = WEIGHTS) -> Path:
    """Finds the file of a captioner of the folder; ``name`` itself where it is a checkpoint's path.

    Raises UnknownCaptioner.
    """
    path = list_checkpoints(weights).get(name, Path(name))
    if path.suffix != ".safetensors" or not path.is_file():
        names = ", ".join(list_checkpoints(weights)) or "none (train one with `reelword train stats`)"
        missing = f"no file {name}" if path.suffix else f"no captioner {name!r}"
        raise UnknownCaptioner(f"there is {missing}; there are: {names}")
    return path


def load_captioner(name: str, device: torch.device | str = "cpu", weights: Path = WEIGHTS) -> Checkpoint:
    """Loads a captioner of the folder by its name, or any checkpoint by its path.

    Args:
        name: Of the file without its ending, or a path.
        device: Where the captioner is to compute.
        weights: The folder.

    Returns:
        The captioner in float32 and evaluation mode, with its card.

    Raises:
        UnknownCaptioner: There is no such file.
        CheckpointError: It is damaged, or no checkpoint.
    """
    return load_checkpoint(find_checkpoint(name, weights), device)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns whatever is wrong inside a readable file into a CheckpointError."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} does not fit its own description ({error}); fetch it again, or update Reelword."
        ) from error


def _read(path: Path, with_weights: bool = True) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    with _opened(path) as file:
        metadata = file.metadata() or {}
        weights = {key: file.get_tensor(key) for key in list(file.keys())} if with_weights else {}
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no Reelword checkpoint; train one with `reelword train`.")
    return metadata, weights


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
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
    expected = _unshared(captioner).keys()
    if differing := sorted(set(expected) ^ weights.keys()):
        raise ValueError(f"missing or superfluous: {', '.join(differing[:3])}")
    captioner.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
