"""Turns decoded hypotheses into captions with attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch

from extractors.features import Features, Stream
from extractors.preprocessing.cell_edges import Edges, map_to_picture
from models.caption import Attention, Caption, Word
from models.captioner import AnyCaptioner, CaptionSteps, Memory, StepAttention, as_numpy
from models.decoding.decode import DecodingOptions, Hypothesis, decode


@dataclass(frozen=True, eq=False)
class DecodedBatch:
    """hypotheses: for each video, best first. memory: of the captioner whose attention they carry.

    lead: the stream on whose clock and in whose places that attention is.
    """

    captioner: AnyCaptioner
    memory: Memory
    features: Sequence[Features]
    lead: str
    options: DecodingOptions
    hypotheses: Sequence[Sequence[Hypothesis]]

    @classmethod
    def by(
        cls, captioner: AnyCaptioner, features: Sequence[Features], lead: str, options: DecodingOptions
    ) -> Self:
        """Encodes the videos together and decodes them."""
        with torch.inference_mode():
            memory = captioner.encode(features)
            return cls(captioner, memory, features, lead, options, decode(captioner, memory, options))

    def captions(self, video: int) -> list[Caption]:
        """All of one video, best first."""
        return [self.caption(video, hypothesis) for hypothesis in self.hypotheses[video]]

    def caption(self, video: int, hypothesis: Hypothesis) -> Caption:
        """One of a video's hypotheses as a caption."""
        words = self.captioner.vocabulary.decode(hypothesis.tokens)
        pairs = tuple(Word(text, logprob) for text, logprob in zip(words, hypothesis.logprobs, strict=True))
        attention = None
        if hypothesis.attention is not None:
            attention = self._attention(words, hypothesis.attention, video)
        return Caption(join(words), pairs, hypothesis.score, attention)

    def _attention(self, words: Sequence[str], steps: StepAttention, video: int) -> Attention:
        """The steps' tensors (L, …) as numpy, without the batch's padding."""
        lead = self.features[video][self.lead]
        moments, regions = int(self.memory.moments[video]), _regions(steps, lead)
        times = as_numpy(self.memory.times[video, :moments])
        extras = self.captioner.explain(CaptionSteps(steps, self.memory, video, times, regions))
        if self._earlier is not None:
            extras = replace(extras, step_1=self._earlier[video], step_2=join(words))
        grid = _grid(regions) if lead.boxes is None else None
        return Attention(
            words=tuple(words),
            times=times,
            temporal=as_numpy(steps.temporal[:, :moments]),
            spatial=None if steps.spatial is None else as_numpy(steps.spatial[:, :moments, :regions]),
            grid=grid,
            boxes=None if lead.boxes is None else as_numpy(lead.boxes),
            extras=extras,
            view=lead.view,
            edges=None if grid is None else self._edges(grid[0], lead),
        )

    def _edges(self, side: int, lead: Stream) -> tuple[Edges, Edges]:
        """Where the rows and the columns of a square map lie in the whole picture."""
        left, top, right, bottom = lead.view
        seen = self.captioner.map_edges(self.lead, side)
        return map_to_picture(seen, top, bottom), map_to_picture(seen, left, right)

    @cached_property
    def _earlier(self) -> list[str] | None:
        """For each video the caption of the captioner's earlier pass, where it has one."""
        memory = self.captioner.earlier_memory(self.memory)
        if memory is None:
            return None
        alone = replace(self.options, num_captions=1, attention=False)
        with torch.inference_mode():
            found = decode(self.captioner, memory, alone)
        return [join(self.captioner.vocabulary.decode(best.tokens)) for best, *_ in found]


def join(words: Sequence[str]) -> str:
    """Words as a sentence: ``man 's`` is written ``man's``."""
    return " ".join(words).replace(" '", "'")


def _regions(steps: StepAttention, lead: Stream) -> int:
    """How many places are the video's own: a batch is padded to the most boxes of any."""
    if steps.spatial is None:
        return 1
    return int(steps.spatial.shape[2]) if lead.boxes is None else int(lead.boxes.shape[1])


def _grid(regions: int) -> tuple[int, int] | None:
    side = round(regions**0.5)
    return (side, side) if side * side == regions else None
