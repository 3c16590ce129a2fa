"""Which of several captioners' captions wins (section 2.3 of the paper of models/captioners/vatex.py).

What all captioners wrote competes. Where we differ from the paper:

* All beams of all captioners are candidates, not the best of each; captions that read alike count once.
* The paper's winner is the most relevant one by the semantic embedding. Ours has the greatest merit:
  relevance, plus how likely all captioners together find the caption, a weight times the mean over them of
  its log-probability a word. Each sees what the others miss, and the embedding knows no grammar. A weight of
  0 is the paper's rule; docs/results/demo-checkpoints.md has what the difference is worth.
* A caption that names a thing twice ("a motorcycle on a motorcycle") loses by it: the captioners fall into
  that together, and the embedding likes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from extractors.features import Features
from models.captioner import AnyCaptioner, Memory
from models.captioners.semantic_embedding import SemanticEmbedding
from models.decoding.constraints import FUNCTION_WORDS
from models.decoding.decode import DecodingOptions, Hypothesis, decode
from models.inputs import Batch, inputs_of
from models.likelihood import teacher_forced
from models.vocabulary import EOS, Vocabulary

#: What a mean log-probability counts against a cosine: training/tools/choose_decoding.py, on held-out
#: pictures.
LIKELIHOOD_WEIGHT = 0.5
#: What naming a thing twice takes from a mean log-probability; any more makes no difference.
TWICE = 0.5


@dataclass(frozen=True, eq=False)
class Candidate:
    """A caption that competes: whose it is, and its place among theirs (0 = best).

    relevance: the cosine of caption and video. likelihood: log-probability a word, its end counted, the mean
    over all captioners. merit: what it is ranked by.
    """

    captioner: str
    beam: int
    words: tuple[str, ...]
    hypothesis: Hypothesis
    relevance: float = 0.0
    likelihood: float = 0.0
    merit: float = 0.0

    def with_scores(self, relevance: float, likelihood: float, weight: float) -> Self:
        merit = relevance + weight * (likelihood - TWICE * names_twice(self.words))
        return replace(self, relevance=relevance, likelihood=likelihood, merit=merit)


def names_twice(words: Sequence[str]) -> bool:
    """Whether a word that names something stands in the caption more than once."""
    naming = [word for word in words if word not in FUNCTION_WORDS]
    return len(naming) > len(set(naming))


@dataclass(frozen=True, eq=False)
class Fused:
    """All candidates of one video, the best first."""

    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The winner. Its attention, where it has one, carries all merits as ``candidates`` (L, n)."""
        best = self.candidates[0]
        looked = best.hypothesis.attention
        if looked is None:
            return best
        merits = torch.tensor([candidate.merit for candidate in self.candidates])
        extras = {**looked.extras, "candidates": merits.expand(len(best.words), -1)}
        return replace(best, hypothesis=replace(best.hypothesis, attention=replace(looked, extras=extras)))


@dataclass(frozen=True, eq=False)
class MemberOutput:
    """What one member read of the videos, and what it decoded for each."""

    memory: Memory
    written: Sequence[Sequence[Hypothesis]]


class Fusion:
    """Any captioners, of any vocabularies, and the embedding that chooses with them among what they write."""

    def __init__(
        self,
        members: Mapping[str, AnyCaptioner],
        embedding: SemanticEmbedding,
        likelihood_weight: float = LIKELIHOOD_WEIGHT,
    ) -> None:
        if not members:
            raise ValueError("a fusion needs at least one captioner")
        self.members, self.embedding, self.weight = members, embedding, likelihood_weight

    def caption(
        self, features: Sequence[Features], options: DecodingOptions, candidates: int = 5
    ) -> list[Fused]:
        """``candidates`` captions of each member compete. Raises ValueError where ``options`` allow fewer."""
        options = replace(options, num_captions=candidates)
        with torch.no_grad():
            seen = {
                name: _member_output(member, member.encode(features), options)
                for name, member in self.members.items()
            }
            return self.rerank(self.embedding.encode(features), seen)

    def from_batches(self, batches: Mapping[str, Batch], options: DecodingOptions) -> list[Fused]:
        """The same of one batch a stream; all beams of each member compete."""
        members: Mapping[str, Any] = self.members
        options = replace(options, num_captions=options.beam_size)
        seen = {
            name: _member_output(member, member.encode_batches(inputs_of(member, batches)), options)
            for name, member in members.items()
        }
        videos = self.embedding.encode_batches(inputs_of(self.embedding, batches))
        return self.rerank(videos, seen)

    def rerank(self, videos: Tensor, seen: Mapping[str, MemberOutput]) -> list[Fused]:
        """videos: (B, joint) embedded; seen: by member."""
        competing = [
            self._distinct({name: of_member.written[i] for name, of_member in seen.items()})
            for i in range(len(videos))
        ]
        relevances, likelihoods = self._relevance(videos, competing), self._likelihood(seen, competing)
        found = []
        for of_video, relevant, likely in zip(competing, relevances, likelihoods, strict=True):
            # of captions padded to the most that any video has, a video's own come first
            marks = zip(relevant.tolist(), likely.tolist()[: len(of_video)], strict=True)
            judged = [each.with_scores(*two, self.weight) for each, two in zip(of_video, marks, strict=True)]
            found.append(Fused(tuple(sorted(judged, key=lambda each: -each.merit))))
        return found

    def _distinct(self, decoded: Mapping[str, Sequence[Hypothesis]]) -> list[Candidate]:
        """One video's candidates, not yet judged; a caption that reads like an earlier one is left out."""
        found: dict[tuple[str, ...], Candidate] = {}
        for name, hypotheses in decoded.items():
            for beam, hypothesis in enumerate(hypotheses):
                words = tuple(self.members[name].vocabulary.decode(hypothesis.tokens))
                found.setdefault(words, Candidate(name, beam, words, hypothesis))
        return list(found.values())

    def _relevance(self, videos: Tensor, competing: Sequence[Sequence[Candidate]]) -> tuple[Tensor, ...]:
        """For each video the cosines of its candidates."""
        counts = [len(of_video) for of_video in competing]
        captions = [each.words for of_video in competing for each in of_video]
        sentences = self.embedding.sentences(
            _padded_ids(captions, self.embedding.vocabulary).to(videos.device)
        )
        every = (sentences * videos.repeat_interleave(torch.tensor(counts).to(videos.device), 0)).sum(1)
        return torch.split(every, counts)

    def _likelihood(
        self, seen: Mapping[str, MemberOutput], competing: Sequence[Sequence[Candidate]]
    ) -> Tensor:
        """(B, most candidates): log-probability a word, the mean over members."""
        most = max(len(of_video) for of_video in competing)
        captions = [
            each.words
            for of_video in competing
            for each in [*of_video, *[of_video[0]] * (most - len(of_video))]
        ]
        found = []
        for name, member in self.members.items():
            memory = seen[name].memory
            targets = _padded_ids(captions, member.vocabulary).to(next(member.parameters()).device)
            forced = teacher_forced(member, memory, targets)
            found.append((forced.log_p.sum(1) / forced.valid.sum(1)).view(-1, most).cpu())
        return torch.stack(found).mean(0)


def _member_output(member: AnyCaptioner, memory: Memory, options: DecodingOptions) -> MemberOutput:
    return MemberOutput(memory, decode(member, memory, options))


def _padded_ids(captions: Sequence[Sequence[str]], vocabulary: Vocabulary) -> Tensor:
    """(S, longest) word ids, each caption's end behind it, padded by -1."""
    rows = [[*vocabulary.encode(words), EOS] for words in captions]
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [-1] * (longest - len(row)) for row in rows])
