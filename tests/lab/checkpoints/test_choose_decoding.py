"""What decoding's two numbers are worth on held-out pictures: each entry is what decoding so would score."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lab.checkpoints import choose_decoding
from lab.checkpoints.choose_decoding import OPTIONS, HeldOutPictures
from models.captioner import AnyCaptioner
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.captioners.stats.network import STaTS, StreamConfig
from models.combining.reranking import DecodedOutput, MemberOutput, Reranker
from models.decoding.decode import decode
from models.inputs import InputStream, order_inputs
from models.vocabulary import Vocabulary
from tests.models.tiny import randomised, stats_config
from tests.training.tiny_corpus import captioned
from training.batches.picture_batches import TrainingItem
from training.batches.pseudo_video import sample_whole, stack_samples
from training.scores.cider import CiderD

GRID = InputStream(name="grid", width=8)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[TrainingItem]:
    return captioned(tmp_path_factory.mktemp("corpus"), 12)


@pytest.fixture(scope="module")
def vocabulary(items: list[TrainingItem]) -> Vocabulary:
    return Vocabulary.from_captions((c for item in items for c in item.captions), size=40)


def captioner(vocabulary: Vocabulary, seed: int) -> STaTS:
    built = STaTS(stats_config(StreamConfig(name="grid", width=8)), vocabulary)
    randomised(built, seed)
    return built.eval()


@pytest.fixture(scope="module")
def fusion(vocabulary: Vocabulary) -> Reranker:
    members: dict[str, AnyCaptioner] = {str(seed): captioner(vocabulary, seed) for seed in (1, 2)}
    torch.manual_seed(5)
    embedding = SemanticEmbedding(SemanticEmbeddingConfig(streams=(GRID,), words=6, joint=8), vocabulary)
    return Reranker(members, embedding.eval())


def score(items: list[TrainingItem], captions: list[list[str]]) -> float:
    scorer = CiderD({item.id: item.captions for item in items})
    return 100 * float(scorer.score([item.id for item in items], captions).mean())


@torch.inference_mode()
def test_the_tables_of_captioners_are_what_decoding_scores(
    items: list[TrainingItem], vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In groups, the last of which is smaller."""
    monkeypatch.setattr(choose_decoding, "GROUP", 5)
    ours, judged = captioner(vocabulary, 10), HeldOutPictures.from_items(items)
    by_penalty, score_by_name_once = judged.score_by_length_penalty(ours), judged.score_by_name_once(ours)
    assert score_by_name_once[True] != score_by_name_once[False]
    choices: list[tuple[dict[str, Any], float]] = [
        ({"length_penalty": penalty}, by_penalty[penalty]) for penalty in (0.0, 1.0)
    ]
    choices += [({"name_once": once}, score_by_name_once[once]) for once in (False, True)]
    for changed, found in choices:
        captions = []
        for item in items:
            memory = ours.encode_batches(order_inputs(ours, stack_samples([sample_whole(item.pictures)])))
            [[best]] = decode(ours, memory, OPTIONS.changed(**changed))
            captions.append(vocabulary.decode(best.tokens))
        assert found == pytest.approx(score(items, captions))


@torch.inference_mode()
def test_the_table_of_likelihood_weights_is_what_fusion_scores(
    items: list[TrainingItem], fusion: Reranker, vocabulary: Vocabulary
) -> None:
    found = HeldOutPictures.from_items(items).score_by_likelihood_weight(fusion)
    batches = stack_samples([sample_whole(item.pictures) for item in items])
    seen: dict[str, MemberOutput] = {}
    for name, member in fusion.members.items():
        taken: Any = member
        memory = taken.encode_batches(order_inputs(member, batches))
        seen[name] = DecodedOutput.by(taken, memory, OPTIONS.changed(num_captions=OPTIONS.beam_size))
    videos = fusion.embedding.encode_batches(order_inputs(fusion.embedding, batches))
    for weight in (0.0, 0.4, 1.6):
        weighed = Reranker(fusion.members, fusion.embedding, weight).rerank(videos, seen)
        captions = [list(each.best.words) for each in weighed]
        assert found[weight] == pytest.approx(score(items, captions))


def test_where_there_is_no_embedding_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_decoding, "find_embedding", lambda: None)
    with pytest.raises(ValueError, match="there is no semantic embedding"):
        choose_decoding.load_shipped_fusion()
