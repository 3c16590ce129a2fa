"""Two clips as one film: does a word's heaviest moment lie in the clip that the caption is of?

The captioner is made to say of a film of two neighbouring clips, four frames of each, what it said of one of
them alone. So it is known where its content words belong. A half is a guess, and words that are true of both
clips, as "man" often is, cannot be told from it: what the captioner says of the other clip too is counted
apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from extractors.features import Features, Stream
from models.caption import Weights
from models.captioner import Array, Captioner, as_numpy
from models.content_words import mark_content
from models.evidence.evidence import find_evidence
from models.evidence.reader import FeatureReader
from models.likelihood import teacher_force


@dataclass(frozen=True)
class WordInFilm:
    """Holds where one content word lies in a film of two clips.

    Attributes:
        word: The word.
        is_own: Whether the captioner does not say it of the other clip.
        attention: The share of its attention on the right clip, and whether its heaviest moment lies there;
            None where it has none.
        evidence: The same of its evidence.
        entropy: Of its evidence, normalised.
    """

    word: str
    is_own: bool
    attention: tuple[float, bool] | None
    evidence: tuple[float, bool]
    entropy: float


def place_words(
    captioner: Captioner, videos: Sequence[Features], captions: Sequence[Sequence[str]]
) -> Iterator[WordInFilm]:
    """Places the content words of each clip's caption in the films of it and its neighbours.

    Args:
        captioner: Wrote the captions.
        videos: The clips' streams.
        captions: Of each clip its words.
    """
    clips = list(zip(videos, captions, strict=True))
    for (first, said_first), (second, said_second) in pairwise(clips):
        names = {each.name for each in captioner.inputs} - captioner.optional_streams
        film = {name: join_clips(first[name], second[name]) for name in names}
        yield from _place_caption(captioner, film, 0, (said_first, said_second))
        yield from _place_caption(captioner, film, 1, (said_second, said_first))


def join_clips(first: Stream, second: Stream) -> Stream:
    """Makes a film of every second row of two streams, a second each."""
    values = torch.cat([first.values[::2], second.values[::2]])
    start = np.arange(len(values), dtype=np.float64)
    boxes = (
        None
        if first.boxes is None or second.boxes is None
        else torch.cat([first.boxes[::2], second.boxes[::2]])
    )
    return replace(first, values=values, start=start, end=start + 1, boxes=boxes, mask=None)


def _place_caption(
    captioner: Captioner, film: Features, half: int, captions: tuple[Sequence[str], Sequence[str]]
) -> Iterator[WordInFilm]:
    """Places one caption's words. half: of its clip, 0 or 1. captions: that one, and the other clip's."""
    words, others = captions
    if not words:  # a captioner may end at once, and then there is nothing to read
        return
    tokens = captioner.vocabulary.encode(words)
    lead = film[captioner.inputs[0].name]
    times = np.stack([lead.start, lead.end], 1)
    evidence = find_evidence(FeatureReader(captioner, film, times, tokens), words, len(times), None)
    looked = _attend(captioner, film, tokens)
    for word, is_content in enumerate(mark_content(words)):
        weights, entropy = evidence.temporal[word], (evidence.entropy or [])[word]
        if is_content and weights is not None and entropy is not None:
            attention = looked[word]
            yield WordInFilm(
                words[word],
                words[word] not in others,
                None if attention is None else _weigh_half(attention, half),
                _weigh_half(weights, half),
                entropy,
            )


def _attend(captioner: Captioner, film: Features, tokens: Sequence[int]) -> list[Array | None]:
    """Reads where the captioner looks for each word."""
    with torch.inference_mode():
        forced = teacher_force(captioner, captioner.encode([film]), torch.tensor([list(tokens)]))
    rows = [None if each is None else as_numpy(each.temporal[0]) for each in forced.attentions]
    return [None if row is None or not row.any() else row / row.sum() for row in rows]


def _weigh_half(weights: Weights | Array, half: int) -> tuple[float, bool]:
    """Returns the share on one half of the moments, and whether the heaviest lies there."""
    halves = np.array_split(np.asarray(weights), 2)
    return float(halves[half].sum()), bool(halves[half].max() > halves[1 - half].max())
