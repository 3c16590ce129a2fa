"""Vanilla, temporal and spatial against the slow reference; the embedding, and what it chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Features
from models.captioner import Captioner
from models.checkpoint import Card, CheckpointError, load_checkpoint, load_embedding, save_checkpoint
from models.decoding import DecodingOptions
from models.fusion import (
    Fusion,
    FusionConfig,
    SemanticEmbedding,
    SemanticEmbeddingConfig,
    Spatial,
    SpatialConfig,
    Temporal,
    TwoLayerCaptioner,
    Vanilla,
)
from models.streams import InputStream
from models.vocabulary import BOS, EOS, Vocabulary
from tests.models.forced import close, forced, never_reached, weights_of
from tests.models.tiny import (
    GRID_INPUT,
    SPEC,
    WORDS,
    fusion_config,
    stream,
    tiny_g2l,
    tiny_spatial,
    tiny_temporal,
    tiny_vanilla,
    videos,
)
from tests.reference.fusion import FusionReference, hinge_loss
from tests.reference.layers import Array
from training.losses import caption_loss, pad_captions
from training.recipes import DEMO

CAPTIONS = ([BOS, 4, 9, 4], [BOS, 12, 3, 7])
MOTION, SOUND = InputStream(name="motion", width=4), InputStream(name="sound", width=3)
MAKERS = {"vanilla": tiny_vanilla, "temporal": tiny_temporal, "spatial": tiny_spatial}
ALONE, ALL = fusion_config(motion=None), fusion_config(motion=MOTION, audio=SOUND)
WITHOUT_SOUND = fusion_config(motion=MOTION)


def clips() -> list[Features]:
    """Motion at half the image's rate; the second video is silent."""
    made: list[Features] = []
    for i, features in enumerate(videos((3, 1, 5))):
        rows = (len(features["grid"]) + 1) // 2
        motion = stream(rows, 1, 4, 30 + i)
        motion.start[:], motion.end[:] = 2 * np.arange(rows), 2 * np.arange(rows) + 2
        extra = {} if i == 1 else {"sound": stream(2, 1, 3, 40 + i)}
        made.append({**features, "motion": motion, **extra})
    return made


def image_of(features: Features) -> Array:
    return features["grid"].values.double().mean(1).numpy()


def pooled_of(features: Features, config: FusionConfig) -> Array:
    parts = [image_of(features).mean(0)]
    if config.motion is not None:
        parts.append(features["motion"].values.double().numpy().mean((0, 1)))
    if config.audio is not None:
        heard = features["sound"].values.double().numpy().mean((0, 1)) if "sound" in features else np.zeros(3)
        parts.append(heard)
    return np.concatenate(parts)


def attended_of(name: str, features: Features, config: FusionConfig) -> list[Array]:
    """V^t or V^o, what a mask hides left out."""
    if name == "vanilla":
        return []
    if name == "temporal":
        motion = features["motion"].values.double().numpy()[:, 0]
        return [
            frame if config.motion is None else np.concatenate([frame, motion[t // 2]])
            for t, frame in enumerate(image_of(features))
        ]
    boxes = features["boxes"]
    assert boxes.mask is not None
    return list(boxes.values.double().numpy()[boxes.mask.numpy()])


@pytest.mark.parametrize("config", [ALONE, WITHOUT_SOUND, ALL], ids=["image", "image, motion", "all"])
@pytest.mark.parametrize("name", MAKERS)
def test_every_step_agrees_with_the_reference(name: str, config: SpatialConfig) -> None:
    for training in (False, True):
        captioner = MAKERS[name](config, seed=1).train(training)
        features = clips()
        with torch.no_grad():
            steps = forced(captioner, captioner.encode(features), CAPTIONS)
        slow = FusionReference(weights_of(captioner), captioner.config)
        for row in range(6):
            video = features[row // 2]
            attended = attended_of(name, video, config)
            expected = slow.caption(pooled_of(video, config), attended, CAPTIONS[row % 2])
            for (log_probs, attention), wanted in zip(steps, expected, strict=True):
                assert attention is not None
                close(log_probs[row], wanted.log_probs)
                if name == "temporal":
                    close(attention.temporal[row, : len(wanted.alpha)], wanted.alpha)
                    assert attention.spatial is None
                elif name == "spatial":
                    assert attention.spatial is not None
                    seen = video["boxes"].mask
                    assert seen is not None
                    in_frames = np.zeros(seen.shape)
                    in_frames[seen.numpy()] = wanted.alpha
                    close(attention.temporal[row, : len(seen)], in_frames.sum(1))
                    in_frame = in_frames / in_frames.sum(1, keepdims=True)
                    close(attention.spatial[row, : len(seen)], in_frame)


def test_objects_of_two_maps_are_one_stream_of_both() -> None:
    """The motion network's boxes at half the rate: each frame takes the nearer ones."""
    moving = InputStream(name="moving", width=2)
    apart = tiny_spatial(fusion_config(motion=None, moving_objects=moving), seed=1)
    joined = tiny_spatial(fusion_config(motion=None, objects=InputStream(name="both", width=7)), seed=1)
    assert apart.embed_memory.weight.shape == joined.embed_memory.weight.shape
    given: list[Features] = []
    for i, features in enumerate(videos((4, 2))):
        boxes, rows = features["boxes"], len(features["boxes"]) // 2
        slow = stream(rows, 3, 2, 50 + i)
        slow.start[:], slow.end[:] = 2 * np.arange(rows), 2 * np.arange(rows) + 2
        both = torch.cat([boxes.values, slow.values.repeat_interleave(2, 0)], 2)
        given.append({**features, "moving": slow, "both": replace(boxes, values=both)})
    for (ours, _), (theirs, _) in zip(
        *(forced(each, each.encode(given), CAPTIONS) for each in (apart, joined)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_vanilla_looks_at_all_frames_alike() -> None:
    captioner = tiny_vanilla()
    _, attention = forced(captioner, captioner.encode(videos((3, 1))), CAPTIONS)[0]
    assert attention is not None
    assert attention.spatial is None
    torch.testing.assert_close(attention.temporal[0], torch.full((3,), 1 / 3))
    torch.testing.assert_close(attention.temporal[2], torch.tensor([1.0, 0, 0]))


def test_only_sound_may_be_missing() -> None:
    features = dict(clips()[0])
    del features["motion"]
    with pytest.raises(KeyError, match="motion"):
        tiny_temporal(ALL).encode([features])


@pytest.mark.parametrize("kind", [Vanilla, Temporal])
def test_gradient_reaches_every_parameter_within_ten_batches(
    kind: Callable[[FusionConfig, Vocabulary], TwoLayerCaptioner],
) -> None:
    config = FusionConfig(**ALL.model_dump(exclude={"objects"})).model_copy(
        update={"dropout": 0.3, "tie_words": True}
    )
    torch.manual_seed(0)
    assert never_reached(*trained(kind(config, Vocabulary(WORDS)))) == []


def test_gradient_reaches_every_parameter_of_the_spatial_captioner() -> None:
    torch.manual_seed(0)
    config = ALL.model_copy(update={"dropout": 0.3})
    assert never_reached(*trained(Spatial(config, Vocabulary(WORDS)))) == []


def trained(captioner: TwoLayerCaptioner) -> tuple[TwoLayerCaptioner, Callable[[int], Tensor]]:
    captioner.train()

    def loss(batch: int) -> Tensor:
        captions = torch.randint(3, 20, (6, 4), generator=torch.Generator().manual_seed(batch)).tolist()
        memory = captioner.encode(clips())
        return caption_loss(captioner, memory, pad_captions(captions, 6)).cross_entropy

    return captioner, loss


def test_paper_widths_and_one_optimiser_step() -> None:
    torch.manual_seed(0)
    captioner = Spatial(SpatialConfig(), Vocabulary([f"w{i}" for i in range(10_000)])).train()
    optimizer = torch.optim.Adam(captioner.parameters(), lr=5e-4)
    features = {s.name: stream(2, 1, s.width, i) for i, s in enumerate(captioner.config.streams)}
    features["mask_rcnn_roi"] = stream(2, 10, 4096, 9, boxes=True)
    targets = pad_captions([[5, 6, 7], [8, 9]], 20)

    def loss() -> Tensor:
        torch.manual_seed(1)
        return caption_loss(captioner, captioner.encode([features]), targets).cross_entropy

    before = loss()
    assert float(before.detach()) == pytest.approx(np.log(10_003), rel=0.15)
    before.backward()
    optimizer.step()
    assert loss() < before


# The embedding


def tiny_embedding(**changes: object) -> SemanticEmbedding:
    config = SemanticEmbeddingConfig(streams=(GRID_INPUT, SOUND), words=6, joint=8)
    torch.manual_seed(0)
    return SemanticEmbedding(config.model_copy(update=changes), Vocabulary(WORDS)).eval()


def test_both_sides_are_unit_vectors_and_padding_changes_nothing() -> None:
    embedding = tiny_embedding()
    with torch.no_grad():
        together = embedding.encode(clips())
        alone = torch.cat([embedding.encode([features]) for features in clips()])
        sentences = embedding.sentences(torch.tensor([[4, 5, EOS, -1, -1], [4, 5, 6, 7, EOS]]))
        short = embedding.sentences(torch.tensor([[4, 5, EOS]]))
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(sentences[:1], short)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(sentences.norm(dim=1), torch.ones(2))


def test_loss_is_that_of_the_hardest_negatives() -> None:
    embedding = tiny_embedding()
    torch.manual_seed(3)
    videos_, sentences = (
        torch.nn.functional.normalize(torch.randn(n, 8, dtype=torch.float64), dim=1) for n in (4, 12)
    )
    wanted = hinge_loss(videos_.numpy(), sentences.numpy(), 0.2)
    assert float(embedding.loss(videos_, sentences)) == pytest.approx(wanted)
    assert float(embedding.loss(videos_[:1], sentences[:3])) == 0  # no negatives at all


def test_gradient_reaches_every_parameter_of_the_embedding() -> None:
    embedding = tiny_embedding(dropout=0.2).train()

    def loss(batch: int) -> Tensor:
        captions = torch.randint(3, 20, (6, 4), generator=torch.Generator().manual_seed(batch)).tolist()
        return embedding.loss(embedding.encode(clips()), embedding.sentences(pad_captions(captions, 6)))

    assert never_reached(embedding, loss) == []


def test_the_embedding_learns_which_caption_is_whose() -> None:
    embedding = tiny_embedding(streams=(GRID_INPUT,), words=16, joint=32).train()
    optimizer = torch.optim.Adam(embedding.parameters(), 1e-2)
    features: list[Features] = [{"grid": stream(2, 4, 6, 300 + i)} for i in range(8)]
    targets = pad_captions([[3 + i, 3 + (3 * i) % 11, 4] for i in range(8)], 6)
    for _ in range(60):
        loss = embedding.loss(embedding.encode(features), embedding.sentences(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        relevance = embedding.encode(features) @ embedding.sentences(targets).T
    assert relevance.argmax(1).tolist() == list(range(8))


def test_an_embedding_has_a_checkpoint_that_no_captioner_is_mistaken_for(tmp_path: Path) -> None:
    path, embedding = tmp_path / "embedding.safetensors", tiny_embedding()
    save_checkpoint(path, embedding, Card(embedding.name, {"grid": SPEC}, {}, {}))
    loaded, card = load_embedding(path)
    assert card.captioner == "semantic_embedding"
    assert loaded.config == embedding.config
    torch.testing.assert_close(loaded.encode(clips()), embedding.half().float().encode(clips()))
    with pytest.raises(CheckpointError, match="semantic_embedding"):
        load_checkpoint(path)
    save_checkpoint(path, tiny_vanilla(), Card("vanilla", {"grid": SPEC}, {}, {}))
    with pytest.raises(CheckpointError, match="vanilla"):
        load_embedding(path)


def test_the_demo_embedding_is_small() -> None:
    words = [f"w{i}" for i in range(DEMO.vocabulary_size)]
    embedding = SemanticEmbedding(SemanticEmbeddingConfig.demo(), Vocabulary(words))
    assert sum(p.numel() for p in embedding.parameters()) < 2_000_000


# The fusion


def test_the_most_relevant_of_all_candidates_wins() -> None:
    members: dict[str, Captioner] = {"temporal": tiny_temporal(), "g2l": tiny_g2l(seed=3)}
    fusion = Fusion(members, tiny_embedding())
    features = clips()
    found = fusion.caption(features, DecodingOptions(beam_size=4, max_length=5), candidates=3)
    for i, fused in enumerate(found):
        assert {c.captioner for c in fused.candidates} == {"temporal", "g2l"}
        assert len({c.words for c in fused.candidates}) == len(fused.candidates)
        relevance = [c.relevance for c in fused.candidates]
        assert relevance == sorted(relevance, reverse=True)
        for c in fused.candidates:
            ids = torch.tensor([[*fusion.embedding.vocabulary.encode(c.words), EOS]])
            with torch.no_grad():
                product = fusion.embedding.encode([features[i]])[0] @ fusion.embedding.sentences(ids)[0]
            assert c.relevance == pytest.approx(float(product), abs=1e-5)
            assert c.words == tuple(members[c.captioner].vocabulary.decode(c.hypothesis.tokens))


def test_the_winner_carries_the_scores_of_all() -> None:
    fusion = Fusion({"a": tiny_temporal(), "b": tiny_spatial(seed=5)}, tiny_embedding())
    (fused,) = fusion.caption(clips()[2:], DecodingOptions(beam_size=5, max_length=5))
    best = fused.best
    assert best.words == fused.candidates[0].words
    assert best.hypothesis.attention is not None
    scores = best.hypothesis.attention.extras["candidates"]
    assert scores.shape == (len(best.words), len(fused.candidates))
    if len(best.words):
        torch.testing.assert_close(scores[0], torch.tensor([c.relevance for c in fused.candidates]))


def test_a_caption_that_two_members_write_counts_once() -> None:
    fusion = Fusion({"a": tiny_temporal(), "again": tiny_temporal()}, tiny_embedding())
    for fused in fusion.caption(clips(), DecodingOptions(beam_size=2, max_length=5), candidates=2):
        assert len(fused.candidates) == 2
        assert {c.captioner for c in fused.candidates} == {"a"}


def test_a_fusion_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Fusion({}, tiny_embedding())
    with pytest.raises(ValueError, match="num_captions"):
        Fusion({"a": tiny_temporal()}, tiny_embedding()).caption(clips(), DecodingOptions(beam_size=2))
