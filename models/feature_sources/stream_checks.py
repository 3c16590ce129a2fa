"""Checks that features are those that a captioner was trained on."""

from collections.abc import Sequence

from extractors.errors import ReelwordError
from extractors.extractor import AnyExtractor
from extractors.features import Features, StreamSpec
from models.captioners.registry import UnknownStreamSet, find_stream_set
from models.checkpoint import Card, Checkpoint
from models.feature_sources.feature_source import complete_sampling, describe_spread
from models.stream_set import DEMO, SAVED, StreamSet, UnknownStream
from models.video_category import list_extracted


class StreamMismatch(ReelwordError, ValueError, code="stream_mismatch"):
    """The features were made by another network, weights or preprocessing; the message prints both."""

    hint = "Make the features again with the extractors that the captioner was trained on."


def lead_stream(checkpoint: Checkpoint) -> str:
    """Names the stream whose clock and places a captioner's attention refers to: the first that it takes."""
    return checkpoint.captioner.inputs[0].name


def check_streams(checkpoint: Checkpoint, features: Features) -> None:
    """Checks each stream's network, weights and preprocessing by the trained ones. Raises StreamMismatch."""
    for name, trained in checkpoint.card.streams.items():
        if name not in features and name in checkpoint.captioner.optional_streams:
            continue
        if name not in features:
            raise StreamMismatch(
                f"{checkpoint.card.captioner} needs the stream {name!r}; given: {', '.join(features)}"
            )
        _check(name, features[name].spec, trained)


def select_stream_set(card: Card, asked: str | None = None) -> StreamSet:
    """Finds the part of a stream set that makes what a captioner, or an embedding, was trained on.

    asked: the set's name, by default the one that the card names (``demo`` where it names none). Raises
    StreamMismatch where that set makes other streams, UnknownStreamSet.
    """
    name = asked or card.training.get("streams", DEMO.name)
    if name == SAVED:
        raise StreamMismatch(
            f"{card.captioner} was trained on features that were made elsewhere ({', '.join(card.streams)}), "
            "which no extractor makes: evaluate it with --features"
        )
    try:
        return find_stream_set(name).select(list_extracted(card.streams))
    except UnknownStream as error:
        trained = ", ".join(f"{stream} ({_tag(spec)})" for stream, spec in card.streams.items())
        raise StreamMismatch(f"{card.captioner} was trained on {trained}, but {error}") from error


def list_extractors(card: Card) -> tuple[str, ...]:
    """Lists the extractors that feed a captioner; none where its stream set is not known here."""
    try:
        return tuple(
            find_stream_set(card.training.get("streams", DEMO.name))
            .select(list_extracted(card.streams))
            .extractors
        )
    except (UnknownStreamSet, UnknownStream):
        return ()


def describe_sampling(card: Card, stream: str, frames: int | None = None) -> str | None:
    """Describes how a stream's frames are chosen.

    Args:
        card: Of the captioner that is fed by it.
        stream: Its name.
        frames: How many, where a set spreads them and a service has its own number.

    Returns:
        The words; None where neither the card nor its stream set has it.
    """
    try:
        spread = find_stream_set(card.training.get("streams", DEMO.name)).spread
    except UnknownStreamSet:
        spread = None
    words = None if spread is None else describe_spread(frames or spread)
    return complete_sampling(card.streams[stream].sampling, words) or None


def check_extractors(checkpoint: Checkpoint, wanted: StreamSet, extractors: Sequence[AnyExtractor]) -> None:
    """Checks that a set's extractors are those that the captioner was trained on.

    One that takes others' streams has its identity from them, and is left to ``check_streams``.

    Args:
        checkpoint: The captioner with its card.
        wanted: The stream set.
        extractors: As they were loaded for it.

    Raises:
        StreamMismatch: One has another network, other weights or another preprocessing.
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
