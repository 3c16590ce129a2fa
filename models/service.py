"""Captions from features: what the service, the command line and the evaluation all call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.extractor import AnyExtractor
from extractors.features import Features, Stream, StreamSpec
from models.caption import Attention, Caption, Word
from models.captioner import Memory, StepAttention
from models.checkpoint import Checkpoint, load_checkpoint
from models.decoding import DecodingOptions, Hypothesis, decode
from models.registry import UnknownCaptioner
from models.stream_sets import DEMO, StreamSet, UnknownStream, stream_set

WEIGHTS = Path(__file__).resolve().parent.parent / "weights"


class StreamMismatch(ValueError):
    """The features were made by another network, weights or preprocessing; the message prints both."""


def available(weights: Path = WEIGHTS) -> dict[str, Path]:
    """Captioner name → checkpoint file, for every demo checkpoint that is there."""
    return {path.stem: path for path in sorted(weights.glob("*.safetensors"))}


def load_captioner(name: str, device: torch.device | str = "cpu", weights: Path = WEIGHTS) -> Checkpoint:
    """A demo captioner by name, or any checkpoint by its path.

    Raises UnknownCaptioner, or CheckpointError for a damaged file.
    """
    return load_checkpoint(checkpoint_path(name, weights), device)


def checkpoint_path(name: str, weights: Path = WEIGHTS) -> Path:
    """The file of a demo captioner, or ``name`` itself where it is a checkpoint's path.

    Raises UnknownCaptioner.
    """
    path = available(weights).get(name, Path(name))
    if path.suffix != ".safetensors" or not path.is_file():
        known = ", ".join(available(weights)) or "none (train one with `python -m app train stats`)"
        raise UnknownCaptioner(f"there is no captioner {name!r}; there are: {known}")
    return path


def caption(
    checkpoint: Checkpoint, features: Sequence[Features], options: DecodingOptions
) -> list[list[Caption]]:
    """For each video its best ``options.num_captions`` captions, best first, with attention.

    Raises StreamMismatch where a stream is missing or not what the captioner was trained on.
    """
    for video in features:
        check_streams(checkpoint, video)
    with torch.inference_mode():
        memory = checkpoint.captioner.encode(features)
        per_video = decode(checkpoint.captioner, memory, options)
    lead = next(iter(checkpoint.card.streams))
    return [
        [_caption(checkpoint, hypothesis, memory, video, streams[lead]) for hypothesis in hypotheses]
        for video, (hypotheses, streams) in enumerate(zip(per_video, features, strict=True))
    ]


def check_streams(checkpoint: Checkpoint, features: Features) -> None:
    """Raises StreamMismatch unless each stream's network, weights and preprocessing are the trained ones."""
    for name, wanted in checkpoint.card.streams.items():
        if name not in features:
            raise StreamMismatch(
                f"{checkpoint.card.captioner} needs the stream {name!r}; given: {', '.join(features)}"
            )
        _check(name, features[name].spec, wanted)


def stream_set_of(checkpoint: Checkpoint, asked: str | None = None) -> StreamSet:
    """The part of a stream set that makes what the captioner was trained on.

    asked: the set's name, by default the one that its card names (``demo`` where it names none). Raises
    StreamMismatch where that set makes other streams, UnknownStreamSet.
    """
    name = asked or checkpoint.card.training.get("streams", DEMO.name)
    try:
        return stream_set(name).of(checkpoint.card.streams)
    except UnknownStream as error:
        trained = ", ".join(f"{stream} ({_tag(spec)})" for stream, spec in checkpoint.card.streams.items())
        raise StreamMismatch(f"{checkpoint.card.captioner} was trained on {trained}, but {error}") from error


def check_extractors(checkpoint: Checkpoint, wanted: StreamSet, extractors: Sequence[AnyExtractor]) -> None:
    """Raises StreamMismatch unless the set's extractors are those that the captioner was trained on.

    One that takes others' streams has its identity from them, and is left to ``check_streams``.
    """
    specs = {extractor.name: extractor.spec for extractor in extractors if extractor.spec.weights_sha256}
    for each in wanted.inputs:
        if each.stream in checkpoint.card.streams and each.extractor in specs:
            _check(each.stream, specs[each.extractor], checkpoint.card.streams[each.stream])


def _check(name: str, given: StreamSpec, wanted: StreamSpec) -> None:
    if given.identity != wanted.identity:
        raise StreamMismatch(
            f"stream {name!r} is {_tag(given)}, but the captioner was trained on {_tag(wanted)}"
        )


def _tag(spec: StreamSpec) -> str:
    return f"{spec.network} / {spec.weights_sha256[:12]} / {spec.preprocessing}"


def join(words: Sequence[str]) -> str:
    """Words as a sentence: ``man 's`` is written ``man's``."""
    return " ".join(words).replace(" '", "'")


def _caption(checkpoint: Checkpoint, found: Hypothesis, memory: Memory, video: int, lead: Stream) -> Caption:
    words = checkpoint.captioner.vocabulary.decode(found.tokens)
    pairs = tuple(Word(text, logprob) for text, logprob in zip(words, found.logprobs, strict=True))
    attention = None
    if found.attention is not None:
        attention = _attention(words, found.attention, memory.times[video].cpu().numpy(), lead)
    return Caption(join(words), pairs, found.score, attention)


def _attention(
    words: Sequence[str], steps: StepAttention, times: NDArray[np.float64], lead: Stream
) -> Attention:
    """The steps' tensors (L, …) as numpy, without the batch's padding."""
    frames = len(lead)
    spatial = None if steps.spatial is None else _numpy(steps.spatial[:, :frames])
    regions = 1 if spatial is None else spatial.shape[2]
    side = round(regions**0.5)
    return Attention(
        words=tuple(words),
        times=times[:frames],
        temporal=_numpy(steps.temporal[:, :frames]),
        spatial=spatial,
        grid=(side, side) if lead.boxes is None and side * side == regions else None,
        boxes=None if lead.boxes is None else _numpy(lead.boxes),
        extras={name: _numpy(value) for name, value in steps.extras.items()},
    )


def _numpy(value: Tensor) -> NDArray[np.float64]:
    return value.detach().to("cpu", torch.float64).numpy()
