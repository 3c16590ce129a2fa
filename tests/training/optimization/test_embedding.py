"""The embedding's loss and recall by hand; it learns to find drawn shapes by what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from lab.pictures.embedding import TEMPERATURE, Recall, contrastive_loss, train_embedding
from lab.pictures.picture_batches import CachedNetwork, PictureBatches, TrainingItem
from lab.pictures.picture_inputs import PictureInputs
from lab.pictures.session import WHOLE_PICTURES, CheckpointWriter
from lab.pictures.validation import PictureValidation
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.checkpoint import load_embedding
from models.decoding.options import DecodingOptions
from models.inputs import InputStream
from models.stream_set import DEMO
from models.vocabulary import Vocabulary
from tests.training.killed_training import RECIPE, trainer
from tests.training.tiny_corpus import Averages
from training.optimization.trainer import Trainer
from training.recipes.demo_recipes import UnknownRecipe, find_recipe, read_recipes

CONFIG = SemanticEmbeddingConfig(streams=(InputStream(name="grid", width=8),), words=8, joint=12)
EMBEDDING_RECIPE = RECIPE.model_copy(update={"steps": 60, "validate_every": 60, "learning_rate": 2e-2})


def test_the_contrastive_loss_by_hand() -> None:
    """Two videos, two captions each: of every caption the odds against the other video and its captions."""
    generator = torch.Generator().manual_seed(4)
    videos, sentences = (
        torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=1) for count in (2, 4)
    )
    relevance = ((videos @ sentences.T) / TEMPERATURE).double().exp().tolist()
    losses = []
    for s in range(4):
        video = s // 2
        true, others = relevance[video][s], [relevance[video][o] for o in range(4) if o // 2 != video]
        losses.append(-math.log(true / (true + sum(others))))
        losses.append(-math.log(true / (true + relevance[1 - video][s])))
    assert float(contrastive_loss(videos, sentences)) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


class FixedEmbedding(SemanticEmbedding):
    """Whose vectors are given: a video's by its number, a caption's by its first word."""

    def __init__(self, vocabulary: Vocabulary, videos: torch.Tensor, sentences: torch.Tensor) -> None:
        super().__init__(CONFIG, vocabulary)
        self.given, self.said = videos, sentences

    def encode_batches(self, batches: object) -> torch.Tensor:
        return self.given

    def encode_sentences(self, words: torch.Tensor) -> torch.Tensor:
        return self.said[words[:, 0] - 3]


def test_recall_counts_captions_whose_video_is_found(tiny: Trainer) -> None:
    """Three videos, four captions: one is first, one is second, one ties with the first, one is last."""
    items = [
        TrainingItem(str(i), held_out(tiny)[0].pictures, captions)
        for i, captions in enumerate([(("w0",), ("w1",)), (("w2",),), (("w3",),)])
    ]
    relevance = torch.tensor([[3.0, 2, 1], [2, 3, 1], [1, 2, 2], [2, 3, 1.0]])  # caption × video
    fixed = FixedEmbedding(Vocabulary(["w0", "w1", "w2", "w3"]), torch.eye(3), relevance)
    found = Recall(whole(items), 5).measure(fixed)
    assert found["recall_1"] == 25
    assert found["recall_5"] == found["recall_10"] == 100
    assert found["recall"] == pytest.approx(75)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    folder = tmp_path_factory.mktemp("shapes")
    return trainer(folder, folder / "run", recipe=EMBEDDING_RECIPE)


def whole(items: Sequence[TrainingItem]) -> PictureValidation:
    """The items as they are."""
    return PictureValidation(items, DecodingOptions())


def held_out(tiny: Trainer) -> Sequence[TrainingItem]:
    assert isinstance(tiny.validation, PictureValidation)
    return tiny.validation.items


def test_shapes_are_found_by_what_is_said_of_them(tiny: Trainer) -> None:
    """The best weights are a checkpoint with its card."""
    torch.manual_seed(0)
    embedding = SemanticEmbedding(CONFIG, tiny.batches.vocabulary)
    assert isinstance(tiny.batches, PictureBatches)
    items = tiny.batches.items
    before = Recall(whole(items), 8).measure(embedding)
    inputs = PictureInputs(DEMO, ("grid",), (CachedNetwork(Averages(), 5),))
    checkpoints = CheckpointWriter(tiny.recipe, ("shapes/1",), inputs, tiny.run)
    train_embedding(replace(tiny, save_best=checkpoints.save), embedding)
    after = Recall(whole(items), 8).measure(embedding)
    assert after["recall"] > before["recall"] + 20
    kept, card = load_embedding(tiny.run.best)
    assert card.captioner == "semantic_embedding"
    assert card.streams["grid"] == Averages.spec
    assert card.scores[WHOLE_PICTURES]["recall"] == pytest.approx(
        Recall(tiny.validation, 8).measure(kept)["recall"], abs=5
    )


def test_recipes_are_for_captioners_or_for_the_embedding() -> None:
    assert find_recipe(None, "semantic_embedding").name == "demo-embedding"
    assert find_recipe(None, "g2l").name == "demo"
    assert find_recipe("demo-taught", "g2l") == read_recipes().recipes["demo-taught"]
    with pytest.raises(UnknownRecipe, match="no recipe 'demo-embedding' for stats; there are: demo, "):
        find_recipe("demo-embedding", "stats")
    with pytest.raises(UnknownRecipe, match="no recipe 'demo' for semantic_embedding"):
        find_recipe("demo", "semantic_embedding")
