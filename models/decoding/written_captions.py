"""Turns decoded hypotheses into captions, with the evidence and the attention of their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch

from extractors.features import Features, Stream
from extractors.preprocessing.images import STEPS
from models.caption import (
    AttentionDocument,
    BoxAttention,
    Caption,
    Evidence,
    GridAttention,
    ScoredWord,
    join_words,
)
from models.captioner import Array, Captioner, CaptionSteps, as_numpy
from models.decoding.decode import DecodingOptions, Hypothesis, decode
from models.evidence.evidence import find_evidence
from models.evidence.places import find_places
from models.evidence.reader import FeatureReader
from models.memory import Memory, StepAttention
from models.word_maps import attention_document, box_attention, grid_attention, split_times


@dataclass(frozen=True, eq=False)
class DecodedBatch:
    """Holds a batch of videos as one captioner decoded it."""

    captioner: Captioner
    memory: Memory  #: of the captioner whose attention they carry
    features: Sequence[Features]
    lead: str  #: the stream on whose clock and in whose places that attention is
    options: DecodingOptions
    hypotheses: Sequence[Sequence[Hypothesis]]  #: for each video, best first
    author: Captioner | None = None  #: who wrote, where that captioner did not write alone

    @classmethod
    def by(
        cls, captioner: Captioner, features: Sequence[Features], lead: str, options: DecodingOptions
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
        """Makes a caption of one of a video's hypotheses, with evidence and attention as the options say."""
        caption, steps = self.caption_alone(hypothesis), hypothesis.attention
        if steps is None:
            return caption
        document = self._attention(caption, steps, video)
        if self.options.explanation != "attention":
            document = document.model_copy(update={"evidence": self._evidence(hypothesis, document, video)})
        return caption.model_copy(update={"attention": document})

    def caption_alone(self, hypothesis: Hypothesis) -> Caption:
        """Makes a caption without attention of a hypothesis."""
        words = self.captioner.vocabulary.decode(hypothesis.tokens)
        scored = [
            ScoredWord(word=word, logprob=round(logprob, 5))
            for word, logprob in zip(words, hypothesis.logprobs, strict=True)
        ]
        sure = hypothesis.confidence
        return Caption(
            text=join_words(words),
            score=round(hypothesis.score, 5),
            words=scored,
            confidence=None if sure is None else round(sure, 3),
        )

    def _attention(self, found: Caption, steps: StepAttention, video: int) -> AttentionDocument:
        """Turns the steps' tensors (L, …) into numbers, without the batch's padding."""
        lead = self.features[video][self.lead]
        moments, regions = int(self.memory.moments[video]), _regions(steps, lead)
        times = as_numpy(self.memory.times[video, :moments])
        if regions == lead.values.shape[1] and (count := STEPS.get(self.lead)):
            steps, times = steps.split_rows(count), split_times(times, count)
            moments, regions = moments * count, regions // count
        temporal = as_numpy(steps.temporal[:, :moments])
        write = partial(self._write_again, video) if self.author is None else None
        words = [each.word for each in found.words]
        taken = CaptionSteps(
            steps, self.memory, video, times, regions, found.text, write, words, self.features[video]
        )
        extras = self.captioner.explain(taken)
        if self.options.explanation == "evidence":
            return attention_document(words, times, np.zeros_like(temporal), None, extras)
        spatial = None
        if steps.spatial is not None:
            weights = as_numpy(steps.spatial[:, :moments, :regions])
            spatial = self._spatial(weights, temporal, lead)
        return attention_document(words, times, temporal, spatial, extras)

    def _evidence(self, hypothesis: Hypothesis, document: AttentionDocument, video: int) -> Evidence:
        author, features = self.author or self.captioner, self.features[video]
        reader = FeatureReader(author, features, np.array(document.times), hypothesis.tokens)
        places = None if self.lead in STEPS else find_places(features[self.lead])
        return find_evidence(reader, document.words, len(document.times), places)

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
        return join_words(self.captioner.vocabulary.decode(best.tokens))


def _regions(steps: StepAttention, lead: Stream) -> int:
    """Counts the places that are the video's own: a batch is padded to the most boxes of any."""
    if steps.spatial is None:
        return 1
    return int(steps.spatial.shape[2]) if lead.boxes is None else int(lead.boxes.shape[1])
