"""Who wins among the captions of several: relevance by the embedding, and likelihood by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest
import torch

from extractors.features import Features
from models.captioner import AnyCaptioner
from models.combining import reranking
from models.combining.reranking import (
    LIKELIHOOD_WEIGHT,
    TWICE,
    Candidate,
    DecodedOutput,
    RankedCandidates,
    Reranker,
    names_twice,
)
from models.decoding.decode import DecodingOptions, Hypothesis, decode
from models.likelihood import teacher_force
from models.vocabulary import EOS, Vocabulary
from tests.models.captioners.test_semantic_embedding import tiny_embedding
from tests.models.tiny import (
    WORDS,
    heard_videos,
    tiny_g2l,
    tiny_refocus,
    tiny_spatial,
    tiny_stats,
    tiny_temporal,
)

Members: TypeAlias = dict[str, AnyCaptioner]
OPTIONS = DecodingOptions(beam_size=5, max_length=6)


def pair() -> Members:
    return {"temporal": tiny_temporal(), "g2l": tiny_g2l(seed=3)}


def seen(member: AnyCaptioner, features: Sequence[Features], counts: Sequence[int]) -> DecodedOutput:
    """As many captions of each video as ``counts`` says."""
    with torch.no_grad():
        memory = member.encode(features)
    written = decode(member, memory, OPTIONS.changed(num_captions=max(counts)))
    return DecodedOutput(member, memory, [each[:count] for each, count in zip(written, counts, strict=True)])


def chosen(fusion: Reranker, features: Sequence[Features], counts: Sequence[int]) -> list[RankedCandidates]:
    with torch.no_grad():
        by_member = {name: seen(member, features, counts) for name, member in fusion.members.items()}
        return fusion.rerank(fusion.embedding.encode(features), by_member)


def likelihood_of(member: AnyCaptioner, features: Features, words: Sequence[str]) -> float:
    """Log-probability a word, the end counted, of one caption of one video alone."""
    ids = [*member.vocabulary.encode(words), EOS]
    with torch.no_grad():
        forced = teacher_force(member, member.encode([features]), torch.tensor([ids]))
    return sum(float(log_p) for log_p in forced.log_p[0]) / len(ids)


def judged_slowly(fusion: Reranker, features: Features, candidate: Candidate) -> tuple[float, float]:
    """(relevance, likelihood) of one candidate."""
    ids = torch.tensor([[*fusion.embedding.vocabulary.encode(candidate.words), EOS]])
    with torch.no_grad():
        relevance = fusion.embedding.encode([features])[0] @ fusion.embedding.encode_sentences(ids)[0]
    each = [likelihood_of(member, features, candidate.words) for member in fusion.members.values()]
    return float(relevance), sum(each) / len(each)


def marks(fused: RankedCandidates) -> list[tuple[float, float, float]]:
    return [(each.relevance, each.likelihood, each.merit) for each in fused.candidates]


def test_each_candidate_is_judged_by_the_embedding_and_by_all_members() -> None:
    """Also by those who did not write it; and each is of the words that its writer chose."""
    fusion, features = Reranker(pair(), tiny_embedding()), heard_videos()
    found = fusion.caption(features, OPTIONS, candidates=3)
    for video, fused in zip(features, found, strict=True):
        assert {c.captioner for c in fused.candidates} == {"temporal", "g2l"}
        assert len({c.words for c in fused.candidates}) == len(fused.candidates)
        for c in fused.candidates:
            relevance, likelihood = judged_slowly(fusion, video, c)
            assert c.relevance == pytest.approx(relevance, abs=1e-5)
            assert c.likelihood == pytest.approx(likelihood, abs=1e-5)
            told = likelihood - TWICE * names_twice(c.words)
            assert c.merit == pytest.approx(relevance + LIKELIHOOD_WEIGHT * told, abs=1e-5)
            assert c.words == tuple(fusion.members[c.captioner].vocabulary.decode(c.hypothesis.tokens))


def test_captions_of_other_videos_and_other_lengths_change_nothing() -> None:
    """Videos have different numbers of candidates and of frames, captions of words."""
    members = {**pair(), "refocus": tiny_refocus(), "stats": tiny_stats(seed=2)}
    fusion, features = Reranker(members, tiny_embedding()), heard_videos()
    counts = (1, 5, 3)
    together = chosen(fusion, features, counts)
    assert len({len(fused.candidates) for fused in together}) == 3
    assert len({len(c.words) for fused in together for c in fused.candidates}) > 1
    for video, count, fused in zip(features, counts, together, strict=True):
        (alone,) = chosen(fusion, [video], [count])
        assert [c.words for c in fused.candidates] == [c.words for c in alone.candidates]
        torch.testing.assert_close(torch.tensor(marks(fused)), torch.tensor(marks(alone)))
        for c in fused.candidates:
            assert c.likelihood == pytest.approx(judged_slowly(fusion, video, c)[1], abs=1e-5)


@pytest.mark.parametrize(("weight", "by"), [(0.0, 0), (0.5, 2), (1e4, 1)])
def test_the_greatest_merit_wins(weight: float, by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of 0 is the paper's rule, the most relevant; a great one leaves likelihood alone."""
    monkeypatch.setattr(reranking, "names_twice", lambda words: False)
    fusion = Reranker(pair(), tiny_embedding(), weight)
    for fused in fusion.caption(heard_videos(), OPTIONS):
        merits = [c.merit for c in fused.candidates]
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
        weight: [
            fused.best.words
            for fused in Reranker(pair(), tiny_embedding(), weight).caption(heard_videos(), OPTIONS)
        ]
        for weight in (0.0, 1e4)
    }
    assert winners[0.0] != winners[1e4]


def test_members_of_other_vocabularies_read_each_others_captions_in_their_own_ids() -> None:
    """A word that one of them lacks is its unknown word."""
    other = tiny_g2l(seed=3)
    other.vocabulary = Vocabulary(["another", *WORDS[:0:-1]])
    fusion = Reranker({"temporal": tiny_temporal(), "other": other}, tiny_embedding())
    features = heard_videos()
    found = fusion.caption(features, OPTIONS)
    words = {word for fused in found for c in fused.candidates for word in c.words}
    assert words & {"another", WORDS[0]}
    for video, fused in zip(features, found, strict=True):
        assert {c.captioner for c in fused.candidates} == {"temporal", "other"}
        for c in fused.candidates:
            relevance, likelihood = judged_slowly(fusion, video, c)
            assert c.relevance == pytest.approx(relevance, abs=1e-5)
            assert c.likelihood == pytest.approx(likelihood, abs=1e-5)


def test_the_winner_carries_the_merits_of_all() -> None:
    """By relevance alone, for likelihood likes a caption without a word best."""
    fusion = Reranker({"a": tiny_temporal(), "b": tiny_spatial(seed=5)}, tiny_embedding(), 0.0)
    (fused,) = fusion.caption(heard_videos()[2:], OPTIONS)
    best = fused.best
    assert best.words == fused.candidates[0].words
    assert best.hypothesis.attention is not None
    carried = best.hypothesis.attention.extras["candidates"]
    assert carried.shape == (len(best.words), len(fused.candidates))
    assert len(best.words)
    torch.testing.assert_close(carried[0], torch.tensor([c.merit for c in fused.candidates]))


def test_a_caption_that_two_members_write_counts_once() -> None:
    members: Members = {"a": tiny_temporal(), "again": tiny_temporal()}
    features = heard_videos()
    found = Reranker(members, tiny_embedding()).caption(features, OPTIONS, candidates=2)
    for video, fused in zip(features, found, strict=True):
        assert len(fused.candidates) == 2
        assert {c.captioner for c in fused.candidates} == {"a"}
        for c in fused.candidates:
            assert c.likelihood == pytest.approx(likelihood_of(tiny_temporal(), video, c.words), abs=1e-5)


def test_a_fusion_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Reranker({}, tiny_embedding())
    with pytest.raises(ValueError, match="num_captions"):
        Reranker({"a": tiny_temporal()}, tiny_embedding()).caption(
            heard_videos(), DecodingOptions(beam_size=2)
        )
