"""Turns decoded hypotheses into captions, and their attention into plain numbers (models/caption.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch

from extractors.features import WHOLE, Features, Stream, View
from extractors.preprocessing.images import Edges, make_even_edges, map_to_picture
from models.caption import (
    AttentionDocument,
    BoxAttention,
    Caption,
    ExplanationPart,
    GridAttention,
    ScoredWord,
)
from models.captioner import AnyCaptioner, Array, CaptionSteps, as_numpy, rounded, without_nothing
from models.decoding.decode import DecodingOptions, Hypothesis, decode
from models.memory import Memory, StepAttention

#: From this normalised entropy on, a word's weights over time are called spread over the whole clip. Of eight
#: moments the heaviest then has about twice an even share at most, if all others are alike.
SPREAD_ENTROPY = 0.97


@dataclass(frozen=True, eq=False)
class DecodedBatch:
    """Holds a batch of videos as one captioner decoded it.

    hypotheses: for each video, best first. memory: of the captioner whose attention they carry. lead: the
    stream on whose clock and in whose places that attention is. is_alone: whether that captioner wrote
    without others.
    """

    captioner: AnyCaptioner
    memory: Memory
    features: Sequence[Features]
    lead: str
    options: DecodingOptions
    hypotheses: Sequence[Sequence[Hypothesis]]
    is_alone: bool = True

    @classmethod
    def by(
        cls, captioner: AnyCaptioner, features: Sequence[Features], lead: str, options: DecodingOptions
    ) -> Self:
        """Encodes the videos together and decodes them.

        Args:
            captioner: who writes.
            features: the streams of each video.
            lead: the stream whose clock and places its attention is on.
            options: how captions are searched.
        """
        with torch.inference_mode():
            memory = captioner.encode(features)
            return cls(captioner, memory, features, lead, options, decode(captioner, memory, options))

    def captions(self, video: int) -> list[Caption]:
        """Makes the captions of one video, best first; the best one has its attention."""
        best, *others = self.hypotheses[video]
        return [self.caption(video, best), *(self.caption_alone(each) for each in others)]

    def caption(self, video: int, hypothesis: Hypothesis) -> Caption:
        """Makes a caption with its attention of one of a video's hypotheses."""
        caption, steps = self.caption_alone(hypothesis), hypothesis.attention
        if steps is None:
            return caption
        return caption.model_copy(update={"attention": self._attention(caption, steps, video)})

    def caption_alone(self, hypothesis: Hypothesis) -> Caption:
        """Makes a caption without attention of a hypothesis."""
        words = self.captioner.vocabulary.decode(hypothesis.tokens)
        scored = [
            ScoredWord(word=word, logprob=round(logprob, 5))
            for word, logprob in zip(words, hypothesis.logprobs, strict=True)
        ]
        sure = hypothesis.confidence
        return Caption(
            text=join(words),
            score=round(hypothesis.score, 5),
            words=scored,
            confidence=None if sure is None else round(sure, 3),
        )

    def _attention(self, found: Caption, steps: StepAttention, video: int) -> AttentionDocument:
        """Turns the steps' tensors (L, …) into numbers, without the batch's padding."""
        lead = self.features[video][self.lead]
        moments, regions = int(self.memory.moments[video]), _regions(steps, lead)
        times = as_numpy(self.memory.times[video, :moments])
        temporal = as_numpy(steps.temporal[:, :moments])
        write = partial(self._write_again, video) if self.is_alone else None
        words = [each.word for each in found.words]
        taken = CaptionSteps(
            steps, self.memory, video, times, regions, found.text, write, words, self.features[video]
        )
        extras = self.captioner.explain(taken)
        spatial = None
        if steps.spatial is not None:
            weights = as_numpy(steps.spatial[:, :moments, :regions])
            spatial = self._spatial(weights, temporal, lead)
        return attention_document(words, times, temporal, spatial, extras)

    def _spatial(self, weights: Array, temporal: Array, lead: Stream) -> GridAttention | BoxAttention:
        if lead.boxes is not None:
            return box_attention(weights, temporal, as_numpy(lead.boxes))
        side = round(weights.shape[2] ** 0.5)
        if side * side != weights.shape[2]:
            return grid_attention(weights, temporal, (1, weights.shape[2]), lead.view)
        seen = self.captioner.map_edges(self.lead, side)
        return grid_attention(weights, temporal, (side, side), lead.view, (seen, seen))

    def _write_again(self, video: int, memory: Memory) -> str:
        """Decodes one video's caption from another memory of the batch."""
        row = torch.tensor([video], device=memory.times.device)
        alone = self.options.changed(num_captions=1, attention=False)
        with torch.inference_mode():
            ((best, *_),) = decode(self.captioner, memory.select(row), alone)
        return join(self.captioner.vocabulary.decode(best.tokens))


def join(words: Sequence[str]) -> str:
    """Joins words to a sentence: ``man 's`` is written ``man's``."""
    return " ".join(words).replace(" '", "'")


def _regions(steps: StepAttention, lead: Stream) -> int:
    """Counts the places that are the video's own: a batch is padded to the most boxes of any."""
    if steps.spatial is None:
        return 1
    return int(steps.spatial.shape[2]) if lead.boxes is None else int(lead.boxes.shape[1])


def attention_document(
    words: Sequence[str],
    times: Array,
    temporal: Array,
    spatial: GridAttention | BoxAttention | None,
    extras: Sequence[ExplanationPart] = (),
) -> AttentionDocument:
    """Puts together where a captioner looked.

    Args:
        words: L, of the caption.
        times: (T, 2), start and end of each moment in seconds.
        temporal: (L, T), each row sums to one; zeros for a word that had no attention.
        spatial: weights of places within each moment; None where a captioner attends to time alone.
        extras: what the captioner shows beside.
    """
    entropies = [normalised_entropy(row) for row in temporal]
    return AttentionDocument(
        words=list(words),
        times=rounded(times, 4),
        parts=rounded(parts_of_clip(times), 4),
        temporal=without_nothing(temporal),
        entropy=entropies,
        spread=[value is not None and value >= SPREAD_ENTROPY for value in entropies],
        spatial=spatial,
        extras=list(extras),
    )


def grid_attention(
    weights: Array,
    temporal: Array,
    grid: tuple[int, int],
    view: View = WHOLE,
    edges: tuple[Edges, Edges] | None = None,
) -> GridAttention:
    """Makes a document of weights over the cells of a grid.

    Args:
        weights: (L, T, N), sums to one over the N cells, row by row.
        temporal: (L, T), zeros for a word that had no attention.
        grid: rows and columns; their product is N.
        view: the part of the frame that the network saw, x0 y0 x1 y1 in [0, 1].
        edges: where rows and columns begin and end in [0, 1] of the view; None where they tile it evenly.
    """
    rows, columns = grid
    left, top, right, bottom = view
    of_rows, of_columns = edges or (make_even_edges(rows), make_even_edges(columns))
    return GridAttention(
        kind="grid",
        rows=rows,
        columns=columns,
        weights=_by_word(weights, temporal),
        view=rounded(view, 4),
        row_edges=rounded(map_to_picture(of_rows, top, bottom)),
        column_edges=rounded(map_to_picture(of_columns, left, right)),
    )


def box_attention(weights: Array, temporal: Array, boxes: Array) -> BoxAttention:
    """Makes a document of weights over boxes.

    Args:
        weights: (L, T, N), sums to one over the N boxes.
        temporal: (L, T), zeros for a word that had no attention.
        boxes: (T, N, 4), x0 y0 x1 y1 in [0, 1] of the picture.
    """
    return BoxAttention(kind="boxes", weights=_by_word(weights, temporal), boxes=rounded(boxes, 4))


def _by_word(weights: Array, temporal: Array) -> list[list[list[float]] | None]:
    """Makes nested lists; None for a word that had no attention."""
    pairs = zip(weights, temporal, strict=True)
    return [rounded(of_word) if np.any(over_time) else None for of_word, over_time in pairs]


def parts_of_clip(times: Array) -> Array:
    """Finds the part of the clip that each moment stands for, (T, 2) seconds, from the moments' own times.

    A sampled frame lies in the middle of its part, while its time runs from its own begin to the next one's:
    such moments follow each other without a gap and the first begins after 0. Their parts meet half way
    between two frames. Windows, and frames taken from the very begin on, cover their parts as they are.
    """
    begins, ends = times[:, 0], times[:, 1]
    follow_each_other = np.allclose(begins[1:], ends[:-1], atol=1e-3)
    if len(times) == 0 or begins[0] <= 0 or not follow_each_other:
        return times
    meetings = (begins[1:] + begins[:-1]) / 2
    return np.stack([np.r_[0.0, meetings], np.r_[meetings, ends[-1]]], 1)


def normalised_entropy(weights: Array) -> float | None:
    """Divides the entropy of a word's weights by that of even ones: 0 for one moment alone, 1 for all alike.

    None where there is nothing to spread over: no attention, or a single moment.
    """
    if len(weights) < 2 or not np.any(weights):
        return None
    some = weights[weights > 0]
    return round(float(-(some * np.log(some)).sum() / np.log(len(weights))), 4)
