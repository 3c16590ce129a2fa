"""Several captioners as one: who competes, who wins, who may write together."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TypeAlias

import pytest
import torch

from models.caption import Caption, MomentsExplanation, TextExplanation, join_words
from models.captioner import Captioner
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.checkpoint import Card, Checkpoint
from models.combining.caption_writers import (
    CANDIDATES,
    AveragedWriter,
    FusedWriter,
    SingleWriter,
    VocabulariesDiffer,
    streams_of,
)
from models.combining.ensemble import Ensemble
from models.combining.reranking import LIKELIHOOD_WEIGHT, TWICE, names_twice
from models.decoding.decode import DecodingOptions, decode
from models.feature_sources.stream_checks import StreamMismatch
from models.vocabulary import Vocabulary
from tests.models.captioners.test_explain import checkpoint
from tests.models.parts import find_any, find_part, list_candidates
from tests.models.tiny import (
    GRID_INPUT,
    SPEC,
    WORDS,
    stats_config,
    tiny_dual_afr,
    tiny_g2l,
    tiny_refocus,
    tiny_stats,
    videos,
)

Members: TypeAlias = dict[str, Captioner]
OPTIONS = DecodingOptions(beam_size=3, max_length=5, explanation="both")


def embedding() -> SemanticEmbedding:
    torch.manual_seed(4)
    config = SemanticEmbeddingConfig(streams=(GRID_INPUT,), words=6, joint=8)
    return SemanticEmbedding(config, Vocabulary(WORDS)).eval()


def fused(**members: Captioner) -> FusedWriter:
    card = Card(SemanticEmbedding.name, {"grid": SPEC}, {}, {})
    return FusedWriter({name: checkpoint(each) for name, each in members.items()}, embedding(), card)


def competed(best: Caption) -> list[SimpleNamespace]:
    return list_candidates(best.attention)


def test_the_beams_of_all_members_compete_and_the_best_is_the_caption() -> None:
    members: Members = {"stats": tiny_stats(), "g2l": tiny_g2l(), "refocus": tiny_refocus()}
    writer = fused(**members)
    each = OPTIONS.changed(num_captions=min(CANDIDATES, OPTIONS.beam_size))
    for video, [best] in enumerate(writer.caption(videos(), OPTIONS)):
        candidates = competed(best)
        assert best.text == candidates[0].text
        merits = [candidate.merit for candidate in candidates]
        assert merits == sorted(merits, reverse=True)
        for candidate in candidates:
            told = candidate.likelihood - TWICE * names_twice(candidate.text.split())
            judged = candidate.relevance + LIKELIHOOD_WEIGHT * told
            assert candidate.merit == pytest.approx(judged, abs=2e-5)  # of what is rounded to five digits
        for name, member in members.items():
            alone = SingleWriter(checkpoint(member)).caption(videos(), each)[video]
            for candidate in candidates:
                if candidate.captioner == name:
                    assert candidate.text == alone[candidate.beam].text
                    assert candidate.score == pytest.approx(alone[candidate.beam].score, abs=1e-4)


def test_the_winners_own_attention_is_told() -> None:
    own = {"stats": "branch", "dual_afr": "layers", "refocus": "key_frames"}
    writer = fused(stats=tiny_stats(), dual_afr=tiny_dual_afr(), refocus=tiny_refocus())
    winners = set()
    for [best] in writer.caption(videos((3, 1, 5, 2, 4)), OPTIONS):
        assert best.attention is not None
        winner = competed(best)[0].captioner
        winners.add(winner)
        told = {name for name, part in own.items() if find_any(best.attention, part) is not None}
        assert told == {winner}
        assert best.attention.words == [word.word for word in best.words]
    assert winners


def test_several_captions_are_the_best_ones() -> None:
    writer = fused(stats=tiny_stats(), g2l=tiny_g2l())
    (captions,) = writer.caption(videos((3,)), OPTIONS.changed(num_captions=3))
    assert [each.text for each in captions] == [each.text for each in competed(captions[0])[:3]]


def test_the_papers_rule_is_an_option_of_the_search() -> None:
    ours = fused(stats=tiny_stats(), g2l=tiny_g2l())
    asked = [best for [best] in ours.caption(videos(), OPTIONS.changed(fusion_rule="relevance"))]
    told = [best for [best] in replace(ours, likelihood_weight=0.0).caption(videos(), OPTIONS)]
    assert [competed(best) for best in asked] == [competed(best) for best in told]
    for best in asked:
        relevances = [candidate.relevance for candidate in competed(best)]
        assert relevances == sorted(relevances, reverse=True)


def test_members_write_one_caption_each_where_they_write_greedily() -> None:
    ours = fused(stats=tiny_stats(), g2l=tiny_g2l())
    for [best] in ours.caption(videos(), DecodingOptions(method="greedy", max_length=5)):
        assert len(competed(best)) <= 2


def test_a_writer_can_be_told_to_count_relevance_alone() -> None:
    """The paper's rule: the same candidates, in another order than ours."""
    ours = fused(stats=tiny_stats(), g2l=tiny_g2l())
    papers = replace(ours, likelihood_weight=0.0)
    by_merit, by_relevance = (
        [competed(best) for [best] in writer.caption(videos(), OPTIONS)] for writer in (ours, papers)
    )
    for candidates in by_relevance:
        assert [each.merit for each in candidates] == [each.relevance for each in candidates]
        assert list(candidates) == sorted(candidates, key=lambda each: -each.relevance)
    texts = [[[each.text for each in of] for of in order] for order in (by_merit, by_relevance)]
    assert texts[0] != texts[1]
    assert [sorted(of) for of in texts[0]] == [sorted(of) for of in texts[1]]


def test_a_batch_is_fused_as_each_video_alone() -> None:
    writer = fused(stats=tiny_stats(), g2l=tiny_g2l())
    together = writer.caption(videos(), OPTIONS)
    assert [best.text for [best] in together] == [
        writer.caption([video], OPTIONS)[0][0].text for video in videos()
    ]


def test_an_ensemble_writes_what_its_average_decodes_and_looks_as_its_first_member() -> None:
    members: Members = {"g2l": tiny_g2l(), "stats": tiny_stats(), "refocus": tiny_refocus()}
    writer = AveragedWriter({name: checkpoint(each) for name, each in members.items()})
    ensemble = Ensemble(list(members.values()))
    wanted = decode(ensemble, ensemble.encode(videos()), OPTIONS)
    for frames, [best], hypotheses in zip((3, 1, 5), writer.caption(videos(), OPTIONS), wanted, strict=True):
        assert best.text == join_words(ensemble.vocabulary.decode(hypotheses[0].tokens))
        assert best.attention is not None
        together = find_part(best.attention, "members", TextExplanation)
        assert together.items == ["g2l", "stats", "refocus"]
        assert together.caption is not None
        assert together.caption.startswith("g2l, stats and refocus agreed on every word.")
        assert find_part(best.attention, "selected", MomentsExplanation).words is not None
        assert [len(row or ()) for row in best.attention.temporal] == [frames] * len(best.words)


def test_what_refocus_writes_alone_is_no_ensembles() -> None:
    writer = AveragedWriter({"refocus": checkpoint(tiny_refocus()), "stats": checkpoint(tiny_stats())})
    ((best,),) = writer.caption(videos((3,)), OPTIONS)
    frames = find_part(best.attention, "key_frames", MomentsExplanation).caption
    assert frames is not None
    assert [each.text for each in frames] == [None, None]


def test_members_of_other_words_have_no_average_but_can_compete() -> None:
    other = tiny_stats()
    other.vocabulary = Vocabulary([*WORDS[:-1], "other"])
    pair = {"stats": checkpoint(tiny_stats()), "other": checkpoint(other)}
    with pytest.raises(VocabulariesDiffer, match="stats and other were trained on different vocabularies"):
        AveragedWriter(pair)
    assert fused(stats=tiny_stats(), other=other).caption(videos((2,)), OPTIONS)[0][0].text


def test_one_name_for_two_streams_is_refused_with_both() -> None:
    own = checkpoint(tiny_stats(stats_config()))
    card = replace(own.card, streams={"grid": replace(SPEC, network="another", weights_sha256="1" * 64)})
    with pytest.raises(StreamMismatch, match=r"'grid' of stats is made by another \(1{12}\), .* random"):
        streams_of([own.card, card])
    assert AveragedWriter({"a": own, "b": own}).streams == SingleWriter(own).streams == {"grid": SPEC}
    with pytest.raises(StreamMismatch):
        _ = AveragedWriter({"a": own, "b": Checkpoint(own.captioner, card, own.sha256)}).streams
