"""Vanilla, temporal and spatial against the slow reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Features
from models.captioners.vatex.config import SpatialVatexConfig, VatexConfig
from models.captioners.vatex.network import (
    SpatialCaptioner,
    TemporalCaptioner,
    TwoLayerCaptioner,
    VanillaCaptioner,
)
from models.inputs import InputStream
from models.vocabulary import BOS, Vocabulary, pad_captions
from tests.models.forced import close, forced, never_reached, weights_of
from tests.models.tiny import (
    WORDS,
    heard_videos,
    stream,
    tiny_spatial,
    tiny_temporal,
    tiny_vanilla,
    vatex_config,
    videos,
)
from tests.reference.layers import Array
from tests.reference.vatex import VatexReference
from training.optimization.losses import caption_loss

CAPTIONS = ([BOS, 4, 9, 4], [BOS, 12, 3, 7])
MOTION, SOUND = InputStream(name="motion", width=4), InputStream(name="sound", width=3)
MAKERS = {"vanilla": tiny_vanilla, "temporal": tiny_temporal, "spatial": tiny_spatial}
ALONE, ALL = vatex_config(motion=None), vatex_config(motion=MOTION, audio=SOUND)
WITHOUT_SOUND = vatex_config(motion=MOTION)


def image_of(features: Features) -> Array:
    return features["grid"].values.double().mean(1).numpy()


def pooled_of(features: Features, config: VatexConfig) -> Array:
    parts = [image_of(features).mean(0)]
    if config.motion is not None:
        parts.append(features["motion"].values.double().numpy().mean((0, 1)))
    if config.audio is not None:
        heard = features["sound"].values.double().numpy().mean((0, 1)) if "sound" in features else np.zeros(3)
        parts.append(heard)
    return np.concatenate(parts)


def attended_of(name: str, features: Features, config: VatexConfig) -> list[Array]:
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
def test_every_step_agrees_with_the_reference(name: str, config: SpatialVatexConfig) -> None:
    for training in (False, True):
        captioner = MAKERS[name](config, seed=1).train(training)
        features = heard_videos()
        with torch.no_grad():
            steps = forced(captioner, captioner.encode(features), CAPTIONS)
        slow = VatexReference(weights_of(captioner), captioner.config)
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
    apart = tiny_spatial(vatex_config(motion=None, moving_objects=moving), seed=1)
    joined = tiny_spatial(vatex_config(motion=None, objects=InputStream(name="both", width=7)), seed=1)
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
    features = dict(heard_videos()[0])
    del features["motion"]
    with pytest.raises(KeyError, match="motion"):
        tiny_temporal(ALL).encode([features])


@pytest.mark.parametrize("kind", [VanillaCaptioner, TemporalCaptioner])
def test_gradient_reaches_every_parameter_within_ten_batches(
    kind: Callable[[VatexConfig, Vocabulary], TwoLayerCaptioner],
) -> None:
    config = VatexConfig(**ALL.model_dump(exclude={"objects"})).model_copy(
        update={"dropout": 0.3, "tie_words": True}
    )
    torch.manual_seed(0)
    assert never_reached(*trained(kind(config, Vocabulary(WORDS)))) == []


def test_gradient_reaches_every_parameter_of_the_spatial_captioner() -> None:
    torch.manual_seed(0)
    config = ALL.model_copy(update={"dropout": 0.3})
    assert never_reached(*trained(SpatialCaptioner(config, Vocabulary(WORDS)))) == []


def trained(captioner: TwoLayerCaptioner) -> tuple[TwoLayerCaptioner, Callable[[int], Tensor]]:
    captioner.train()

    def loss(batch: int) -> Tensor:
        captions = torch.randint(3, 20, (6, 4), generator=torch.Generator().manual_seed(batch)).tolist()
        memory = captioner.encode(heard_videos())
        return caption_loss(captioner, memory, pad_captions(captions, 6)).cross_entropy

    return captioner, loss


def test_paper_widths_and_one_optimiser_step() -> None:
    torch.manual_seed(0)
    captioner = SpatialCaptioner(SpatialVatexConfig(), Vocabulary([f"w{i}" for i in range(10_000)])).train()
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
