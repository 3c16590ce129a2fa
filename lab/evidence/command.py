"""How far may what is said of words and their moments and places be trusted?

    python -m lab evidence --clips FOLDER [--captioner NAME]… [--limit N] [--skip NAME]… [--only PART]…

For each captioner of weights/ that stands alone, evidence beside attention: where content words lie in films
of two clips (joined_clips.py), the pointing game (pointing.py), deletion and insertion (curves.py), and what
evidence costs as a share of the search that it explains. A folder may hold pictures too, for the pointing
game. docs/results/evidence.md has what came out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from app.jobs.options import CaptionOptions
from app.pipeline.loaded_captioners import LoadedCaptioners
from app.settings import Settings
from lab.evidence.clips import Clip, list_videos, open_detector, read_clips
from lab.evidence.curves import Areas, measure_areas
from lab.evidence.joined_clips import WordInFilm, place_words
from lab.evidence.pointing import point
from models.caption import AttentionDocument, Caption
from models.combining.caption_writers import SingleWriter
from models.combining.members import ENSEMBLE, FUSION
from models.decoding.decode import DecodingOptions

RUNS = 3  #: of each clip, of which the fastest counts


class Part(StrEnum):
    """Names what is measured."""

    MOMENTS = "moments"
    POINTING = "pointing"
    CURVES = "curves"
    COST = "cost"


BOTH = DecodingOptions(explanation="both")


def evidence(
    clips: Annotated[Path, typer.Option(help="A folder of videos.")],
    captioner: Annotated[
        list[str] | None, typer.Option(help="One to measure, by default all; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Clips that are read at most.")] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Name of a file to leave out; may be repeated.")
    ] = None,
    only: Annotated[
        list[Part] | None, typer.Option(help="What is measured, by default all; may be repeated.")
    ] = None,
) -> None:
    """Measure evidence beside attention: moments, places, what words lose, and cost."""
    settings = Settings(device="cpu")
    torch.set_num_threads(settings.threads)
    captioners, files = LoadedCaptioners(settings, "cpu"), list_videos(clips, skip or ())[:limit]
    every = [name for name in captioners.captioner_choices.names if name not in (FUSION, ENSEMBLE)]
    read = {}
    for name in captioner or every:
        choice = captioners.captioner_choices.resolve(CaptionOptions(captioner=name))
        source, writer = captioners.feature_source(choice), captioners.writer(choice)
        assert isinstance(writer, SingleWriter)
        if source not in read:
            read[source] = list(read_clips(source, files, open_detector()))
        print("\n".join(measure(name, writer, read[source], only or list(Part))), flush=True)


def measure(
    name: str, writer: SingleWriter, clips: Sequence[Clip], parts: Collection[Part] = tuple(Part)
) -> list[str]:
    """Measures one captioner; returns a line a measurement."""
    captioner = writer.checkpoint.captioner
    captions = [writer.caption([clip.features], BOTH)[0][0] for clip in clips]
    lines = [f"{name}, {len(clips)} clips"]
    if Part.MOMENTS in parts:
        words = [[word.word for word in caption.words] for caption in captions]
        lines += _describe_films(list(place_words(captioner, [clip.features for clip in clips], words)))
    if Part.POINTING in parts:
        lines += _describe_pointing(captions, clips)
    if Part.CURVES in parts:
        lines += _describe_curves(writer, captions, clips)
    if Part.COST in parts:
        lines.append(f"  cost: {measure_cost(writer, clips):.2f} of the search")
    return lines


def _describe_films(films: Sequence[WordInFilm]) -> list[str]:
    unshared = [each for each in films if each.is_own]
    return [
        f"  joined clips, {len(some)} words {which}: heaviest moment in the right clip "
        f"{_mean(each.evidence[1] for each in some)} (attention "
        f"{_mean(each.attention[1] for each in some if each.attention)}), weight there "
        f"{_mean(each.evidence[0] for each in some)} "
        f"({_mean(each.attention[0] for each in some if each.attention)})"
        for some, which in ((films, "in all"), (unshared, "not said of the other clip"))
    ]


def _describe_pointing(captions: Sequence[Caption], clips: Sequence[Clip]) -> list[str]:
    games = {
        kind: [
            each
            for caption, clip in zip(captions, clips, strict=True)
            if caption.attention is not None and clip.things is not None
            for each in point(show(caption.attention), clip.things)
        ]
        for kind, show in (("evidence", _show_evidence), ("attention", _show_attention))
    }
    games |= {"evidence that names a place": [each for each in games["evidence"] if each.names_place]}
    games |= {"evidence that names none": [each for each in games["evidence"] if not each.names_place]}
    return [
        f"  pointing, {kind}: {_mean(each.hit for each in some)} of {len(some)} words, "
        f"chance {_mean(each.chance for each in some)}, the picture's middle "
        f"{_mean(each.middle for each in some)}"
        for kind, some in games.items()
    ]


def _show_evidence(document: AttentionDocument) -> AttentionDocument:
    return document.shown


def _show_attention(document: AttentionDocument) -> AttentionDocument:
    return document.model_copy(update={"evidence": None})


def _describe_curves(
    writer: SingleWriter, captions: Sequence[Caption], clips: Sequence[Clip], seed: int = 0
) -> list[str]:
    captioner, chance = writer.checkpoint.captioner, np.random.default_rng(seed)
    areas: dict[str, list[Areas]] = {"evidence": [], "attention": [], "chance": []}
    for caption, clip in zip(captions, clips, strict=True):
        document = caption.attention
        assert document is not None
        assert document.evidence is not None
        tokens = captioner.vocabulary.encode(document.words)
        content = [word for word in document.shown.drawn_words if document.temporal[word]]
        for kind, rows in (("evidence", document.evidence.temporal), ("attention", document.temporal)):
            weights = {word: np.array(rows[word]) for word in content}
            areas[kind] += measure_areas(captioner, clip.features, tokens, weights)
        drawn = {word: chance.random(len(document.times)) for word in content}
        areas["chance"] += measure_areas(captioner, clip.features, tokens, drawn)
    return [
        f"  {kind}: deletion {_mean(each.deletion for each in some)}, insertion "
        f"{_mean(each.insertion for each in some)} ({len(some)} words)"
        for kind, some in areas.items()
    ]


def measure_cost(writer: SingleWriter, clips: Sequence[Clip]) -> float:
    """Measures processor time of evidence as a share of that of the search.

    Both are run in turn on each clip, and the fastest runs count: others' work on the machine slows both.
    """

    def spend(clip: Clip, options: DecodingOptions) -> float:
        began = time.process_time()
        writer.caption([clip.features], options)
        return time.process_time() - began

    search_only, every = DecodingOptions(explanation="attention"), DecodingOptions()
    runs = np.array([[(spend(c, search_only), spend(c, every)) for _ in range(RUNS)] for c in clips])
    search, both = runs.min(1).sum(0)
    return float((both - search) / search)


def _mean(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{statistics.fmean(listed):.3f}" if listed else "none"
