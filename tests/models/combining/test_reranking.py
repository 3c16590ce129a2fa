"""Who wins among the captions of several: relevance by the embedding, and likelihood by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest
import torch

from extractors.features import Features
from models.captioner import Captioner
from models.combining import reranking
from models.combining.reranking import (
    LIKELIHOOD_WEIGHT,
    TWICE,
    Candidate,
    DecodedOutput,
    names_twice,
    rank_candidates,
)
from models.decoding.decode import DecodingOptions, Hypothesis, decode
from models.decoding.written_captions import DecodedBatch
from models.likelihood import teacher_force
from models.vocabulary import EOS, Vocabulary
from tests.models.captioners.test_semantic_embedding import tiny_embedding
from tests.models.tiny import (
    WORDS,
    heard_videos,
    tiny_g2l,
    tiny_refocus,
    tiny_stats,
    tiny_temporal,
)

Members: TypeAlias = dict[str, Captioner]
OPTIONS = DecodingOptions(beam_size=5, max_length=6)


def pair() -> Members:
    return {"temporal": tiny_temporal(), "g2l": tiny_g2l(seed=3)}


def seen(member: Captioner, features: Sequence[Features], counts: Sequence[int]) -> DecodedOutput:
    """As many captions of each video as ``counts`` says."""
    with torch.no_grad():
        memory = member.encode(features)
    written = decode(member, memory, OPTIONS.changed(num_captions=max(counts)))
    cut = [each[:count] for each, count in zip(written, counts, strict=True)]
    return DecodedOutput(DecodedBatch(member, memory, features, member.inputs[0].name, OPTIONS, cut))


def rank(
    members: Members, features: Sequence[Features], counts: Sequence[int], weight: float = LIKELIHOOD_WEIGHT
) -> list[list[Candidate]]:
    embedding = tiny_embedding()
    with torch.no_grad():
        outputs = {name: seen(member, features, counts) for name, member in members.items()}
        return rank_candidates(embedding, embedding.encode(features), outputs, weight)


def likelihood_of(member: Captioner, features: Features, words: Sequence[str]) -> float:
    """Log-probability a word, the end counted, of one caption of one video alone."""
    ids = [*member.vocabulary.encode(words), EOS]
    with torch.no_grad():
        forced = teacher_force(member, member.encode([features]), torch.tensor([ids]))
    return sum(float(log_p) for log_p in forced.log_p[0]) / len(ids)


def judged_slowly(members: Members, features: Features, candidate: Candidate) -> tuple[float, float]:
    """(relevance, likelihood) of one candidate."""
    embedding = tiny_embedding()
    ids = torch.tensor([[*embedding.vocabulary.encode(candidate.words), EOS]])
    with torch.no_grad():
        relevance = embedding.encode([features])[0] @ embedding.encode_sentences(ids)[0]
    each = [likelihood_of(member, features, candidate.words) for member in members.values()]
    return float(relevance), sum(each) / len(each)


def marks(fused: list[Candidate]) -> list[tuple[float, float, float]]:
    return [(each.relevance, each.likelihood, each.merit) for each in fused]


def test_each_candidate_is_judged_by_the_embedding_and_by_all_members() -> None:
    """Also by those who did not write it; and each is of the words that its writer chose."""
    members, features = pair(), heard_videos()
    found = rank(members, features, [3] * len(features))
    for video, fused in zip(features, found, strict=True):
        assert {c.captioner for c in fused} == {"temporal", "g2l"}
        assert len({c.words for c in fused}) == len(fused)
        for c in fused:
            relevance, likelihood = judged_slowly(members, video, c)
            assert c.relevance == pytest.approx(relevance, abs=1e-5)
            assert c.likelihood == pytest.approx(likelihood, abs=1e-5)
            told = likelihood - TWICE * names_twice(c.words)
            assert c.merit == pytest.approx(relevance + LIKELIHOOD_WEIGHT * told, abs=1e-5)
            assert c.words == tuple(members[c.captioner].vocabulary.decode(c.hypothesis.tokens))


def test_captions_of_other_videos_and_other_lengths_change_nothing() -> None:
    """Videos have different numbers of candidates and of frames, captions of words."""
    members = {**pair(), "refocus": tiny_refocus(), "stats": tiny_stats(seed=2)}
    features, counts = heard_videos(), (1, 5, 3)
    together = rank(members, features, counts)
    assert len({len(fused) for fused in together}) == 3
    assert len({len(c.words) for fused in together for c in fused}) > 1
    for video, count, fused in zip(features, counts, together, strict=True):
        (alone,) = rank(members, [video], [count])
        assert [c.words for c in fused] == [c.words for c in alone]
        torch.testing.assert_close(torch.tensor(marks(fused)), torch.tensor(marks(alone)))
        for c in fused:
            assert c.likelihood == pytest.approx(judged_slowly(members, video, c)[1], abs=1e-5)


@pytest.mark.parametrize(("weight", "by"), [(0.0, 0), (0.5, 2), (1e4, 1)])
def test_the_greatest_merit_wins(weight: float, by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of 0 is the paper's rule, the most relevant; a great one leaves likelihood alone."""
    monkeypatch.setattr(reranking, "names_twice", lambda words: False)
    for fused in rank(pair(), heard_videos(), (5, 5, 5), weight):
        merits = [c.merit for c in fused]
        assert merits == sorted(merits, reverse=True)
        order = [each[by] for each in marks(fused)]
        assert order == sorted(order, reverse=True)
        for relevance, likelihood, merit in marks(fused):
            assert merit == pytest.approx(relevance + weight * likelihood)
            assert likelihood < 0


@pytest.mark.parametrize(
    ("caption", "twice"),
    [
        ("a man riding a motorcycle on a motorcycle", True),
        ("a man in a white shirt and a white shirt", True),
        ("a man and a woman in the snow in the mountains", False),
        ("two dogs are playing with a dog", False),
        ("", False),
    ],
)
def test_a_thing_named_twice_costs_likelihood_and_the_papers_rule_does_not_mind(
    caption: str, twice: bool
) -> None:
    words = tuple(caption.split())
    assert names_twice(words) is twice
    candidate = Candidate("g2l", 0, words, Hypothesis((), (), 0.0, 0.0, True, None))
    assert candidate.with_scores(0.3, -1.0, 0.4).merit == pytest.approx(0.3 - 0.4 * (1 + TWICE * twice))
    assert candidate.with_scores(0.3, -1.0, 0.0).merit == 0.3


def test_the_weight_decides_who_wins() -> None:
    """So that each of the orders above is one of its own."""
    winners = {
        weight: [fused[0].words for fused in rank(pair(), heard_videos(), (5, 5, 5), weight)]
        for weight in (0.0, 1e4)
    }
    assert winners[0.0] != winners[1e4]


def test_members_of_other_vocabularies_read_each_others_captions_in_their_own_ids() -> None:
    """A word that one of them lacks is its unknown word."""
    other = tiny_g2l(seed=3)
    other.vocabulary = Vocabulary(["another", *WORDS[:0:-1]])
    members: Members = {"temporal": tiny_temporal(), "other": other}
    features = heard_videos()
    found = rank(members, features, (5, 5, 5))
    words = {word for fused in found for c in fused for word in c.words}
    assert words & {"another", WORDS[0]}
    for video, fused in zip(features, found, strict=True):
        assert {c.captioner for c in fused} == {"temporal", "other"}
        for c in fused:
            relevance, likelihood = judged_slowly(members, video, c)
            assert c.relevance == pytest.approx(relevance, abs=1e-5)
            assert c.likelihood == pytest.approx(likelihood, abs=1e-5)


def test_a_caption_that_two_members_write_counts_once() -> None:
    members: Members = {"a": tiny_temporal(), "again": tiny_temporal()}
    features = heard_videos()
    found = rank(members, features, (2, 2, 2))
    for video, fused in zip(features, found, strict=True):
        assert len(fused) == 2
        assert {c.captioner for c in fused} == {"a"}
        for c in fused:
            assert c.likelihood == pytest.approx(likelihood_of(tiny_temporal(), video, c.words), abs=1e-5)
