"""Stills through the service's extractors: what training keeps of a picture is what serving makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from extractors.features import Frames, Stream
from lab.pictures.picture_features import load_features
from lab.pictures.still_network import StillNetwork
from models.feature_sources.feature_source import ExtractorPool, FeatureSource
from models.stream_set import DEMO_MOTION

BRIEF, LABELS = "i3d_brief", "labels:i3d_brief+efficientnet-lite2+coco_ssd:10"


@pytest.fixture(scope="module")
def pictures() -> list[NDArray[np.uint8]]:
    folder = Path(__file__).parents[2] / "extractors" / "pictures"
    return [np.asarray(Image.open(folder / f"{name}.jpg").convert("RGB")) for name in ("cat", "espresso")]


@pytest.fixture(scope="module")
def served(root: Path, pictures: list[NDArray[np.uint8]]) -> list[dict[str, Stream]]:
    source = FeatureSource(DEMO_MOTION, pool=ExtractorPool(cache=root / "data" / "cache"))
    return source.extract([Frames(picture[None], np.zeros(1), 0.04, 25.0) for picture in pictures])


@pytest.fixture(scope="module")
def make(root: Path) -> Callable[[str], StillNetwork]:
    del root
    return lambda name: StillNetwork(name, DEMO_MOTION, torch.device("cpu"))


def test_a_still_is_what_a_window_of_its_repetitions_is(
    make: Callable[[str], StillNetwork],
    pictures: list[NDArray[np.uint8]],
    served: list[dict[str, Stream]],
) -> None:
    """One frame in the place of sixteen, sixteen times cheaper; to what bf16 leaves of the numbers."""
    network = make(BRIEF)
    assert network.shapes == {"i3d_brief_grid": (49, 1024), "i3d_brief": (1, 1024)}
    described = network.of_stills(pictures)
    for row, streams in enumerate(served):
        wanted = streams["i3d_brief"].values[0].float()
        given = torch.from_numpy(described["i3d_brief"][row, 0]).float()
        assert torch.cosine_similarity(given, wanted, dim=0) > 0.999
    assert network.spec.identity == served[0]["i3d_brief"].spec.identity


def test_labels_of_stills_are_kept_with_features(
    make: Callable[[str], StillNetwork],
    pictures: list[NDArray[np.uint8]],
    served: list[dict[str, Stream]],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, picture in zip(("a.png", "b.png"), pictures, strict=True):
        Image.fromarray(picture).save(folder / name)
    network = make(LABELS)
    kept = load_features(network, folder, ["a.png", "b.png"], 1, tmp_path / "cache")
    assert kept.streams["labels"].shape == (2, 1, 15, 3)
    for row, streams in enumerate(served):
        wanted = streams["labels"].values[:, 0].numpy()
        given = kept.streams["labels"][row, 0].astype(np.float32)
        np.testing.assert_array_equal(given[0, :2], wanted[0, :2])
        np.testing.assert_array_equal(given[4, :2], wanted[4, :2])
        np.testing.assert_allclose(given[: len(wanted), 2], wanted[:, 2], atol=0.05)
        assert not given[len(wanted) :].any()
    assert network.spec.identity == served[0]["labels"].spec.identity
