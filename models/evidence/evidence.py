"""Finds for each content word of a caption the moment, and in it the place, that the word needs.

With log p(w | v) the log-probability of word w after the words before it, of video v; v_t the video that is
moment t alone, and v_tn the one that is place n of that moment alone (reader.py):

    over moments:  e_w(t) = softmax over t of β · (log p(w | v_t) + γ · mean over w' of log p(w' | v_t))
    over places:   e_w(n) = softmax over n of β' · log p(w | v_tn),  t the moment where e_w(t) is largest

Of a grid v_tn is what is left where a window about cell n is hidden, and the logarithm counts as a loss
(places.py): a cell is too small a picture to be told by itself.

A word that is all along is read at the likeliest of the moments that other words need, since each moment
more is a batch of places more.

w' are the content words before and behind w: words of one phrase are mostly of one moment. That helps too
where a caption tells of two moments in turn, while a mean over all its words would not.

All moments are one batch of teacher-forced passes, and so are all places of all words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.caption import Evidence
from models.captioner import Array, rounded, without_nothing
from models.content_words import mark_content
from models.evidence.places import Places
from models.evidence.reader import CaptionReader, VideoPart
from models.word_maps import normalised_entropy

#: β and γ: docs/results/evidence.md.
SHARPNESS, NEIGHBOURS = 2.0, 0.25
#: From this normalised entropy on a word's evidence names no moment: docs/results/evidence.md.
ALL_ALONG = 0.9
#: From this normalised entropy on its evidence names no place of its moment: docs/results/evidence.md.
NO_PLACE = 0.9


@dataclass(frozen=True, eq=False)
class _PlacesOfWord:
    """Holds what was read of a word's moment."""

    moment: int
    weights: Array  #: (N,), sums to one


def find_evidence(
    reader: CaptionReader, words: Sequence[str], moments: int, places: Places | None
) -> Evidence:
    """Reads a caption of each moment alone, and of each place of the moments that its words need.

    Args:
        reader: Reads the caption.
        words: L, of the caption.
        moments: How many the video has.
        places: Those of its pictures; None where they cannot be shown alone.

    Returns:
        The evidence; nothing for function words.
    """
    content = np.array(mark_content(words), dtype=bool)
    temporal = np.zeros((len(words), moments))
    if content.any():
        parts = [VideoPart(moment) for moment in range(moments)]
        log_probs = reader.read(parts, np.tile(content, (moments, 1))).T[content]
        temporal[content] = _softmax(_add_neighbours(log_probs), SHARPNESS)
    spread = [_names_no_moment(row) for row in temporal]
    chosen = _choose_moments(temporal, spread)
    of_words = {} if places is None or not chosen else _read_places(reader, len(words), chosen, places)
    moments_of_words = [None if spread[word] else chosen.get(word) for word in range(len(words))]
    return _describe(temporal, moments_of_words, of_words, places)


def _describe(
    temporal: Array, moments: list[int | None], of_words: Mapping[int, _PlacesOfWord], places: Places | None
) -> Evidence:
    words, count = range(len(temporal)), temporal.shape[1]
    listed = [_list_moments(of_words.get(word), count) for word in words]
    return Evidence(
        temporal=without_nothing(temporal),
        entropy=[normalised_entropy(row) for row in temporal],
        spread=[_names_no_moment(row) for row in temporal],
        spatial=None if places is None else places.describe(listed),
        moments=moments,
        boxes=[
            None
            if places is None or word not in of_words
            else places.find_box(of_words[word].moment, of_words[word].weights)
            for word in words
        ],
        unplaced=[word in of_words and _are_even(of_words[word].weights) for word in words],
    )


def _names_no_moment(weights: Array) -> bool:
    """Tells whether weights over moments (T,) are too even to name one."""
    entropy = normalised_entropy(weights)
    return entropy is not None and entropy >= ALL_ALONG


def _choose_moments(temporal: Array, spread: Sequence[bool]) -> dict[int, int]:
    """Chooses by content word the moment whose places are read."""
    content = np.flatnonzero(temporal.any(1)).tolist()
    heaviest = {word: int(temporal[word].argmax()) for word in content}
    needed = sorted({heaviest[word] for word in content if not spread[word]})
    needed = needed or [int(temporal.sum(0).argmax())]
    return {
        word: needed[int(temporal[word, needed].argmax())] if spread[word] else heaviest[word]
        for word in content
    }


def _read_places(
    reader: CaptionReader, length: int, chosen: Mapping[int, int], places: Places
) -> dict[int, _PlacesOfWord]:
    """Reads all parts of the moments that any word needs. chosen: by word its moment."""
    parts = [part for moment in sorted({*chosen.values()}) for part in places.list_parts(moment)]
    if not parts:
        return {}
    of_part = np.array([part.moment for part in parts])
    of_chosen = np.stack([of_part == chosen.get(word, -1) for word in range(length)], 1)
    read = reader.read(parts, of_chosen)
    return {
        word: _PlacesOfWord(
            moment, _softmax(places.spread(moment, read[of_chosen[:, word], word]), places.sharpness)
        )
        for word, moment in chosen.items()
        if of_chosen[:, word].any()
    }


def _are_even(places: Array) -> bool:
    """Tells whether weights over places (N,), zero for padding, are too even to name one."""
    entropy = normalised_entropy(places[places > 0])
    return entropy is None or entropy >= NO_PLACE


def _list_moments(of_word: _PlacesOfWord | None, moments: int) -> list[list[float] | None] | None:
    """Lists a word's weights of places by moment, of its own moment alone."""
    if of_word is None:
        return None
    return [rounded(of_word.weights) if moment == of_word.moment else None for moment in range(moments)]


def _add_neighbours(log_probs: Array) -> Array:
    """Adds γ times the mean of the content words before and behind each: (words, T)."""
    total, count = np.zeros_like(log_probs), np.zeros((len(log_probs), 1))
    for place, other in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
        total[place] += log_probs[other]
        count[place] += 1
    together: Array = log_probs + NEIGHBOURS * total / np.maximum(count, 1)
    return together


def _softmax(log_probs: Array, sharpness: float) -> Array:
    """Computes the softmax of β · log p over the last axis."""
    powers = np.exp(sharpness * (log_probs - log_probs.max(-1, keepdims=True)))
    shares: Array = powers / powers.sum(-1, keepdims=True)
    return shares
