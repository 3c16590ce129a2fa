"""The video-semantic embedding: how it places videos and sentences, and how it learns whose is whose."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from extractors.features import Features
from lab.pictures.embedding import hinge_loss as ranking_loss
from lab.pictures.session import DEMO_EMBEDDING_CONFIG
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.checkpoint import Card, CheckpointError, load_checkpoint, load_embedding, save_checkpoint
from models.inputs import InputStream
from models.vocabulary import EOS, Vocabulary, pad_captions
from tests.models.forced import never_reached
from tests.models.tiny import GRID_INPUT, SPEC, WORDS, heard_videos, stream, tiny_vanilla
from tests.reference.vatex import hinge_loss
from training.recipes.demo_recipes import DEMO

SOUND = InputStream(name="sound", width=3)


def tiny_embedding(**changes: object) -> SemanticEmbedding:
    config = SemanticEmbeddingConfig(streams=(GRID_INPUT, SOUND), words=6, joint=8)
    torch.manual_seed(0)
    return SemanticEmbedding(config.model_copy(update=changes), Vocabulary(WORDS)).eval()


def test_both_sides_are_unit_vectors_and_padding_changes_nothing() -> None:
    embedding = tiny_embedding()
    with torch.no_grad():
        together = embedding.encode(heard_videos())
        alone = torch.cat([embedding.encode([features]) for features in heard_videos()])
        sentences = embedding.encode_sentences(torch.tensor([[4, 5, EOS, -1, -1], [4, 5, 6, 7, EOS]]))
        short = embedding.encode_sentences(torch.tensor([[4, 5, EOS]]))
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(sentences[:1], short)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(sentences.norm(dim=1), torch.ones(2))


def test_loss_is_that_of_the_hardest_negatives() -> None:
    torch.manual_seed(3)
    videos_, sentences = (
        torch.nn.functional.normalize(torch.randn(n, 8, dtype=torch.float64), dim=1) for n in (4, 12)
    )
    wanted = hinge_loss(videos_.numpy(), sentences.numpy(), 0.2)
    assert float(ranking_loss(videos_, sentences, 0.2)) == pytest.approx(wanted)
    assert float(ranking_loss(videos_[:1], sentences[:3], 0.2)) == 0  # no negatives at all


def test_gradient_reaches_every_parameter_of_the_embedding() -> None:
    embedding = tiny_embedding(dropout=0.2).train()

    def loss(batch: int) -> Tensor:
        captions = torch.randint(3, 20, (6, 4), generator=torch.Generator().manual_seed(batch)).tolist()
        sentences = embedding.encode_sentences(pad_captions(captions, 6))
        return ranking_loss(embedding.encode(heard_videos()), sentences, 0.2)

    assert never_reached(embedding, loss) == []


def test_the_embedding_learns_which_caption_is_whose() -> None:
    embedding = tiny_embedding(streams=(GRID_INPUT,), words=16, joint=32).train()
    optimizer = torch.optim.Adam(embedding.parameters(), 1e-2)
    features: list[Features] = [{"grid": stream(2, 4, 6, 300 + i)} for i in range(8)]
    targets = pad_captions([[3 + i, 3 + (3 * i) % 11, 4] for i in range(8)], 6)
    for _ in range(60):
        loss = ranking_loss(embedding.encode(features), embedding.encode_sentences(targets), 0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        relevance = embedding.encode(features) @ embedding.encode_sentences(targets).T
    assert relevance.argmax(1).tolist() == list(range(8))


def test_an_embedding_has_a_checkpoint_that_no_captioner_is_mistaken_for(tmp_path: Path) -> None:
    path, embedding = tmp_path / "embedding.safetensors", tiny_embedding()
    save_checkpoint(path, embedding, Card(embedding.name, {"grid": SPEC}, {}, {}))
    loaded, card = load_embedding(path)
    assert card.captioner == "semantic_embedding"
    assert loaded.config == embedding.config
    torch.testing.assert_close(loaded.encode(heard_videos()), embedding.half().float().encode(heard_videos()))
    with pytest.raises(CheckpointError, match="semantic_embedding"):
        load_checkpoint(path)
    save_checkpoint(path, tiny_vanilla(), Card("vanilla", {"grid": SPEC}, {}, {}))
    with pytest.raises(CheckpointError, match="vanilla"):
        load_embedding(path)


def test_the_demo_embedding_is_small() -> None:
    words = [f"w{i}" for i in range(DEMO.vocabulary_size)]
    embedding = SemanticEmbedding(DEMO_EMBEDDING_CONFIG, Vocabulary(words))
    assert sum(p.numel() for p in embedding.parameters()) < 2_000_000
