"""What the demo checkpoint's attention looks at: the picture on an empty ground, the shot a caption is of.

Pictures are of Flickr8k's validation split, which no checkpoint of ours is trained on. Habits that do not
depend on the input cannot pass: each picture is pasted into all four quadrants, and each caption is
compared with the captions of the other shots of the same video. A uniform map fails every test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import ttest_1samp

from extractors.catalog.tuned_pair import TUNED_GRID, TunedPair
from extractors.extractor import ExtractorOptions
from extractors.features import Features, Frames, Stream
from models.caption import AttentionDocument, Caption, GridAttention, WeightsExplanation
from models.checkpoint import Checkpoint, load_captioner
from models.combining.caption_writers import SingleWriter
from models.decoding.decode import DecodingOptions
from tests.models.parts import find_part
from training.batches.archives import read_items, read_pictures

COUNT, SHOTS, SIDE, HALF = 48, 4, 224, 112
NEAR, FAR = (1, 1, 1, 0.5, 0, 0, 0), (0, 0, 0, 0.5, 1, 1, 1)  # shares of seven cells in either half
LEVEL = 0.01
Map = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gallery:
    """Pictures with their features and the captions that the checkpoint gives them."""

    checkpoint: Checkpoint
    extractor: TunedPair
    pictures: list[NDArray[np.uint8]]
    streams: list[Stream]
    captions: list[Caption]


@pytest.fixture(scope="module")
def gallery(shared: Path) -> Gallery:
    items = read_items(shared / "data/flickr8k_captions.json", "val")[::20][:COUNT]
    found = dict(read_pictures(shared / "data/flickr8k_val.tar", [item.files[0] for item in items]))
    pictures = [resized(found[item.files[0]], SIDE) for item in items]
    checkpoint = load_captioner("stats")
    extractor = TunedPair(ExtractorOptions())
    features = extractor.extract([video([picture]) for picture in pictures])
    own = SingleWriter(checkpoint).caption(features, DecodingOptions())
    streams = [streams[TUNED_GRID] for streams in features]
    return Gallery(checkpoint, extractor, pictures, streams, [best for [best] in own])


def resized(picture: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(picture).resize((side, side)))


def video(pictures: list[NDArray[np.uint8]]) -> Frames:
    return Frames(np.stack(pictures), np.arange(len(pictures), dtype=np.float64), float(len(pictures)))


def mass(weights: Map, quadrant: int) -> float:
    """Mean over words (…, 49) of the mass in a quarter; a cell on its edge counts by its share."""
    down, right = divmod(quadrant, 2)
    inside = np.outer((NEAR, FAR)[down], (NEAR, FAR)[right]).ravel()
    return float((weights @ inside).mean())


@pytest.fixture(scope="module")
def pasted(gallery: Gallery) -> list[AttentionDocument]:
    """Attention over grey with a quarter-sized picture, each in the four quadrants in turn."""
    videos = []
    for picture in gallery.pictures:
        for quadrant in range(4):
            down, right = divmod(quadrant, 2)
            ground = np.full((SIDE, SIDE, 3), 127, np.uint8)
            ground[down * HALF :, right * HALF :][:HALF, :HALF] = resized(picture, HALF)
            videos.append(video([ground]))
    options = DecodingOptions(explanation="both")
    captions = SingleWriter(gallery.checkpoint).caption(gallery.extractor.extract(videos), options)
    return [best.attention for [best] in captions if best.attention is not None]


def masses(maps: list[Map]) -> list[float]:
    """For each picture the mass in its quadrant, mean over the four: 0.25 for any map that never moves."""
    each = np.array([mass(e, i % 4) for i, e in enumerate(maps)])
    return [float(value) for value in each.reshape(-1, 4).mean(1)]


def grounded(found: list[float]) -> bool:
    """Whether the mean over pictures is above the chance of a quarter, at the 1 % level."""
    above = np.array(found) - 0.25
    return bool(np.ptp(above) > 1e-6) and ttest_1samp(above, 0, alternative="greater").pvalue < LEVEL


def test_a_uniform_or_unmoving_map_is_not_grounded() -> None:
    uniform = [np.full((5, 49), 1 / 49)] * (4 * COUNT)
    assert masses(uniform) == pytest.approx([0.25] * COUNT)
    assert not grounded(masses(uniform))
    corner = [np.eye(49)[:1]] * (4 * COUNT)
    assert not grounded(masses(corner))


def test_spatio_temporal_attention_finds_the_picture(pasted: list[AttentionDocument]) -> None:
    maps = [find_part(attention, "st_spatial", WeightsExplanation).words for attention in pasted]
    assert grounded(masses([np.asarray(each) for each in maps]))


@pytest.mark.parametrize("kind", ["attention", "evidence"])
def test_a_map_finds_the_picture(pasted: list[AttentionDocument], kind: str) -> None:
    maps = []
    for attention in pasted:
        document = attention.shown if kind == "evidence" else attention
        assert isinstance(document.spatial, GridAttention)
        weights = [word[0] for word in document.spatial.weights if word is not None]
        maps.append(np.asarray(weights, np.float64))
    assert grounded(masses(maps))


def forced(checkpoint: Checkpoint, features: Features, text: Caption) -> Map:
    """(T,): mean temporal attention over the words of ``text``, each given the words before it."""
    captioner = checkpoint.captioner
    with torch.inference_mode():
        memory = captioner.encode([features])
        state, word = captioner.start(memory, 1), captioner.first_word(memory, 1)
        seen = []
        for token in captioner.vocabulary.encode([w.word for w in text.words]):
            _, state, attention = captioner.step(state, word, memory)
            assert attention is not None
            seen.append(attention.temporal[0].double())
            word = word.new_tensor([token])
    return np.asarray(torch.stack(seen).mean(0))


def attention_on_shots(gallery: Gallery) -> Map:
    """(groups, S, S): S pictures are one video's shots; row i is the mass on each under caption i."""
    groups = []
    start = np.arange(SHOTS, dtype=np.float64)
    for first in range(0, COUNT, SHOTS):
        values = torch.cat([stream.values for stream in gallery.streams[first : first + SHOTS]])
        shots = {TUNED_GRID: replace(gallery.streams[first], values=values, start=start, end=start + 1)}
        texts = gallery.captions[first : first + SHOTS]
        groups.append([forced(gallery.checkpoint, shots, text) for text in texts])
    return np.array(groups)


def p_value(on_shots: Map, rng: np.random.Generator) -> float:
    """Share of 2,000 random assignments of captions to shots, within each video, as good as the true one."""
    diagonal = np.arange(SHOTS)
    true = on_shots[:, diagonal, diagonal].mean()
    chance = []
    for _ in range(2000):
        turned = rng.permuted(np.tile(diagonal, (len(on_shots), 1)), axis=1)
        chance.append(np.take_along_axis(on_shots, turned[:, :, None], 2).mean())
    return float(np.mean(np.array(chance) >= true - 1e-12))


def test_uniform_or_unmoving_attention_passes_no_permutation() -> None:
    rng = np.random.default_rng(0)
    assert p_value(np.full((12, SHOTS, SHOTS), 1 / SHOTS), rng) == 1
    assert p_value(np.tile(rng.dirichlet(np.ones(SHOTS), (12, 1)), (1, SHOTS, 1)), rng) == 1


def test_temporal_attention_finds_the_shot_that_a_caption_is_of(gallery: Gallery) -> None:
    on_shots = attention_on_shots(gallery)
    assert on_shots[:, range(SHOTS), range(SHOTS)].mean() > 1 / SHOTS
    assert p_value(on_shots, np.random.default_rng(0)) < LEVEL
