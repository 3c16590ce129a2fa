"""Lets pretrained captioners be members of a fusion: they write from frames, and read what others wrote.

A pretrained caption is a text with capitals and marks, ours are words of a vocabulary, and each side reads
the other's in its own way:

* Ours read a pretrained caption's words in lower case, without marks and accents, ``man's`` as ``man 's``. A
  word that they do not know is their <unk>, as in training.
* A pretrained member reads our words joined to a sentence, and spelt as its own captions are: with a capital
  letter and a full stop where its best one of that video has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from extractors.features import Frames
from models.caption import Caption, join_words
from models.combining.reranking import Candidate
from models.decoding.decode import DecodingOptions, Hypothesis
from models.vocabulary import split_words

if TYPE_CHECKING:  # transformers takes seconds to import, and many have no such captioner
    from models.pretrained.captioner import EncodedVideos, WrittenCaption
    from models.pretrained.load import AnyPretrainedCaptioner


@dataclass(frozen=True, eq=False)
class PretrainedOutput:
    """Holds what a pretrained captioner saw of B videos, and its captions of each, best first."""

    captioner: AnyPretrainedCaptioner
    videos: EncodedVideos[Any]
    written: Sequence[Sequence[WrittenCaption]]
    options: DecodingOptions

    @classmethod
    def by(
        cls, captioner: AnyPretrainedCaptioner, videos: Sequence[Frames], options: DecodingOptions
    ) -> Self:
        """Encodes the videos together and captions them.

        Args:
            captioner: who writes.
            videos: their frames.
            options: how captions are searched.

        Raises:
            OptionRefused, NotANumber: as the captioner does.
        """
        encoded = captioner.encode(videos)
        return cls(captioner, encoded, captioner.write(encoded, options), options)

    def candidates(self, name: str, video: int) -> list[Candidate]:
        """Lists what it wrote of one video, its best first."""
        return [
            Candidate(
                name, beam, tuple(split_words(each.text, fold_accents=True)), _scored(each), text=each.text
            )
            for beam, each in enumerate(written.caption for written in self.written[video])
        ]

    def caption(self, video: int, candidate: Candidate, *, with_attention: bool) -> Caption:
        written = self.written[video][candidate.beam]
        if not with_attention:
            return written.caption.model_copy(update={"attention": None})
        return self.captioner.explain(self.videos, video, written, self.options)

    def score(self, competing: Sequence[Sequence[Candidate]]) -> Tensor:
        """Scores captions: (B, N) log-probabilities a word. Raises NotANumber."""
        texts = [[self._spell(each, video) for each in of_video] for video, of_video in enumerate(competing)]
        return torch.tensor(self.captioner.score_texts(self.videos, texts))

    def _spell(self, candidate: Candidate, video: int) -> str:
        """Writes a caption as this captioner would; one that is a pretrained captioner's stays as it is."""
        if candidate.text is not None:
            return candidate.text
        text, own_text = join_words(candidate.words), self.written[video][0].caption.text
        if own_text[:1].isupper():
            text = text[:1].upper() + text[1:]
        return f"{text}." if own_text.endswith(".") else text


def _scored(found: Caption) -> Hypothesis:
    """Makes a candidate of a caption: a pretrained one has no ids of ours, and keeps its attention."""
    logprobs = tuple(word.logprob for word in found.words)
    return Hypothesis((), logprobs, None, found.score, finished=True, attention=None)
