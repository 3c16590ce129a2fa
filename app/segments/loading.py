"""From a command line's words to films, and to what captions them.

Models are loaded when the first film needs them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from app.errors import CaptionerUnknown, JobFailure, UsageError, sentence
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.installed_captioners import captioner_choices, captioner_infos, pretrained_infos
from app.pipeline.semantic_space import load_semantic_space
from app.segments.film_captioner import FilmCaptioner
from app.settings import Settings
from extractors.files import sha256_of
from extractors.shots.segment import SegmentOptions
from models.captioners.registry import UnknownStreamSet
from models.checkpoint import CheckpointError, find_embedding


@contextmanager
def told_as_usage() -> Iterator[None]:
    """Turns what is wrong with a command's captioner, weights or stream set into UsageError."""
    try:
        yield
    except CaptionerUnknown as failure:  # which lists those that there are
        raise UsageError(str(failure)) from failure
    except JobFailure as failure:
        raise UsageError(failure.advice) from failure
    except (CheckpointError, UnknownStreamSet) as error:
        raise UsageError(sentence(str(error))) from error


def segment_options(text: str, shortest: float = 2.0, longest: float = 20.0) -> SegmentOptions:
    """Reads how films are cut. Raises UsageError where the words mean nothing.

    Args:
        text: ``shots``, ``none``, ``auto`` or seconds.
        shortest: seconds; a cut sooner than that after the last one is passed over.
        longest: seconds; a longer shot is cut there.
    """
    try:
        return SegmentOptions.parse(text, shortest, longest)
    except ValueError as error:
        raise UsageError(sentence(str(error))) from error


def load_film_captioner(
    settings: Settings, options: CaptionOptions, segments: SegmentOptions, engine: Engine | None = None
) -> FilmCaptioner:
    """Makes a film captioner whose journals are told apart by the weights here. Raises UsageError.

    Args:
        segments: how films are cut.
        engine: one that is loaded already.
    """
    return FilmCaptioner(
        load_engine=partial(_load_engine, settings) if engine is None else lambda: engine,
        settings=settings,
        options=options,
        segments=segments,
        weights=_what_decides(settings, options),
        load_space=partial(load_semantic_space, settings),
    )


def _load_engine(settings: Settings) -> Engine:
    with told_as_usage():
        return Engine(settings)


def _what_decides(settings: Settings, options: CaptionOptions) -> list[str]:
    """Lists the captioner that will write, or its members, with digests, and what they look at."""
    with told_as_usage():
        choices = captioner_choices(settings)
        variants = dict.fromkeys((options, options.of_segments)) if choices.alone else ()
        names = dict.fromkeys(name for each in variants for name in choices.resolve(each).writers)
        infos = [*captioner_infos(settings.weights), *pretrained_infos(settings)]
    digests = {info.name: info.weights_sha256 for info in infos}
    facts = [f"{name} {digests[name]}" for name in names]
    embedding = find_embedding(settings.weights)
    facts += [] if embedding is None else [f"embedding {sha256_of(embedding)}"]
    return [*facts, f"frames {settings.frames}", f"streams {settings.streams}"]
