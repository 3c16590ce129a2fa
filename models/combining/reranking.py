"""Chooses the best of several captioners' captions (section 2.3 of the paper of models/captioners/vatex/).

What all captioners wrote competes. Where we differ from the paper:

* All beams of all captioners are candidates, not the best of each; captions that read alike count once.
* The paper's winner is the most relevant one by the semantic embedding. Ours has the greatest merit:
  relevance, plus how likely all captioners together find the caption, a weight times the mean over them of
  its log-probability a word. Each sees what the others miss, and the embedding knows no grammar. A weight of
  0 is the paper's rule; docs/results/demo-checkpoints.md has what the difference is worth.
* A caption that names a thing twice ("a motorcycle on a motorcycle") loses by it: the captioners fall into
  that together, and the embedding likes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from models.caption import Caption
from models.captioners.semantic_embedding import SemanticEmbedding
from models.decoding.constraints import FUNCTION_WORDS
from models.decoding.decode import Hypothesis
from models.decoding.written_captions import DecodedBatch
from models.likelihood import teacher_force
from models.vocabulary import pad_captions

#: What a mean log-probability counts against a cosine: docs/results/demo-checkpoints.md, on held-out
#: pictures.
LIKELIHOOD_WEIGHT = 0.5
#: What naming a thing twice takes from a mean log-probability; any more makes no difference.
TWICE = 0.5


@dataclass(frozen=True, eq=False)
class Candidate:
    """Holds a caption that competes."""

    captioner: str  #: whose it is
    beam: int  #: its place among theirs, 0 the best
    words: tuple[str, ...]  #: without an end, as they are compared with other captions'
    hypothesis: Hypothesis  #: as its captioner decoded it
    relevance: float = 0.0  #: the cosine of caption and video
    likelihood: float = 0.0  #: log-probability a word, its end counted, the mean over all captioners
    merit: float = 0.0  #: what it is ranked by
    text: str | None = None  #: as a pretrained captioner wrote it, with its capitals and marks; None of ours

    def with_scores(self, relevance: float, likelihood: float, weight: float) -> Self:
        """Adds the scores to a candidate that was not scored yet.

        Args:
            relevance: The cosine of caption and video.
            likelihood: Log-probability a word, the mean over all captioners.
            weight: What the likelihood counts against the relevance.
        """
        merit = relevance + weight * (likelihood - TWICE * names_twice(self.words))
        return replace(self, relevance=relevance, likelihood=likelihood, merit=merit)


def names_twice(words: Sequence[str]) -> bool:
    """Finds out whether a word that names something stands in the caption more than once."""
    naming = [word for word in words if word not in FUNCTION_WORDS]
    return len(naming) > len(set(naming))


class MemberOutput(Protocol):
    """Holds what one member wrote of B videos: it makes captions of that, and judges what others wrote."""

    def candidates(self, name: str, video: int) -> list[Candidate]:
        """Lists what it wrote of one video, its best first, not yet scored; ``name`` is the member's."""

    def score(self, competing: Sequence[Sequence[Candidate]]) -> Tensor:
        """Scores captions, for each video equally many: (B, N) log-probabilities a word, on the CPU."""

    def caption(self, video: int, candidate: Candidate, *, with_attention: bool) -> Caption:
        """Makes the caption that a candidate of its own stands for.

        Args:
            video: its place among the B.
            candidate: one that this member wrote.
            with_attention: whether the caption has it.
        """


@dataclass(frozen=True, eq=False)
class DecodedOutput:
    """Holds what one of our captioners decoded."""

    batch: DecodedBatch

    def candidates(self, name: str, video: int) -> list[Candidate]:
        decoded = enumerate(self.batch.hypotheses[video])
        vocabulary = self.batch.captioner.vocabulary
        return [Candidate(name, beam, tuple(vocabulary.decode(each.tokens)), each) for beam, each in decoded]

    def score(self, competing: Sequence[Sequence[Candidate]]) -> Tensor:
        """Scores captions: (B, N) log-probabilities a word; a word that it does not know is its <unk>."""
        captioner, memory = self.batch.captioner, self.batch.memory
        encoded = [captioner.vocabulary.encode(each.words) for of_video in competing for each in of_video]
        forced = teacher_force(captioner, memory, pad_captions(encoded).to(memory.times.device))
        return (forced.log_p.sum(1) / forced.valid.sum(1)).view(len(competing), -1).cpu()

    def caption(self, video: int, candidate: Candidate, *, with_attention: bool) -> Caption:
        if with_attention:
            return self.batch.caption(video, candidate.hypothesis)
        return self.batch.caption_alone(candidate.hypothesis)


def rank_candidates(
    embedding: SemanticEmbedding, videos: Tensor, outputs: Mapping[str, MemberOutput], weight: float
) -> list[list[Candidate]]:
    """Ranks what members wrote, each caption judged by the embedding and by all members.

    Args:
        embedding: Judges how well a caption fits a video.
        videos: (B, joint) as it embedded them.
        outputs: What members wrote, by their names; of captions that read alike the first one's counts.
        weight: What a mean log-probability a word counts against a cosine.

    Returns:
        For each video its candidates, the best first.
    """
    competing = [_collect_candidates(outputs, video) for video in range(len(videos))]
    relevances = _score_relevance(embedding, videos, competing)
    likelihoods = _score_likelihood(outputs, competing)
    ranked = []
    for candidates, relevant, likely in zip(competing, relevances, likelihoods, strict=True):
        # of captions padded to the most that any video has, a video's own come first
        scores = zip(relevant.tolist(), likely.tolist()[: len(candidates)], strict=True)
        scored = [each.with_scores(*two, weight) for each, two in zip(candidates, scores, strict=True)]
        ranked.append(sorted(scored, key=lambda each: -each.merit))
    return ranked


def _collect_candidates(outputs: Mapping[str, MemberOutput], video: int) -> list[Candidate]:
    """Collects one video's candidates, not yet scored; one that reads like an earlier one is left out."""
    by_words: dict[tuple[str, ...], Candidate] = {}
    for name, output in outputs.items():
        for candidate in output.candidates(name, video):
            by_words.setdefault(candidate.words, candidate)
    return list(by_words.values())


def _score_relevance(
    embedding: SemanticEmbedding, videos: Tensor, competing: Sequence[Sequence[Candidate]]
) -> tuple[Tensor, ...]:
    """Computes each video's cosines with its candidates; words unknown to the embedding are its <unk>."""
    counts = [len(candidates) for candidates in competing]
    captions = [embedding.vocabulary.encode(each.words) for candidates in competing for each in candidates]
    sentences = embedding.encode_sentences(pad_captions(captions).to(videos.device))
    every = (sentences * videos.repeat_interleave(torch.tensor(counts).to(videos.device), 0)).sum(1)
    return torch.split(every, counts)


def _score_likelihood(
    outputs: Mapping[str, MemberOutput], competing: Sequence[Sequence[Candidate]]
) -> Tensor:
    """Returns (B, most candidates): log-probability a word, the mean over members."""
    most = max(len(candidates) for candidates in competing)
    filled = [[*candidates, *[candidates[0]] * (most - len(candidates))] for candidates in competing]
    return torch.stack([output.score(filled) for output in outputs.values()]).mean(0)
