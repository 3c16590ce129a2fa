"""EfficientNet-Lite2: the reference's numbers, the classes of known pictures, the streams of a video."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from extractors.catalog.efficientnet_lite2 import (
    EfficientNetLite2,
    EfficientNetStages,
    GridFromBytes,
    load_packaged,
)
from extractors.engines.engine import EngineName
from extractors.extractor import ExtractorOptions, UnknownExtractor, create
from extractors.features import Frames
from extractors.networks.efficientnet_lite import EfficientNetLite

HERE = Path(__file__).parents[1]
CLASSES = {"cat": 285, "espresso": 967, "tripod": 872}  # ImageNet: Egyptian cat, espresso, tripod


@pytest.fixture(scope="module")
def network() -> EfficientNetLite:
    return load_packaged()


@pytest.fixture(scope="module")
def extractor() -> EfficientNetLite2:
    return EfficientNetLite2(ExtractorOptions())


@pytest.fixture(scope="module")
def exact() -> EfficientNetLite2:
    return EfficientNetLite2(ExtractorOptions(engine="torch", precision="fp32"))


def pattern(side: int) -> NDArray[np.uint8]:
    """The picture the golden numbers were made from, in whole numbers so that it is the same everywhere."""
    y, x = np.mgrid[:side, :side]
    return np.stack([(5 * x + 3 * y) % 256, (x * x // 64 + y) % 256, x ^ y], -1).astype(np.uint8)


def picture(name: str) -> NDArray[np.uint8]:
    with Image.open(HERE / "pictures" / f"{name}.jpg") as image:
        return np.asarray(image.convert("RGB"))


def video(count: int, height: int, width: int, seed: int = 0) -> Frames:
    shift = np.arange(count)[:, None, None, None] * 7 + seed
    y, x, c = np.mgrid[:height, :width, :3]
    pixels = ((x * (c + 1) + y * 2)[None] + shift) % 256
    return Frames(pixels.astype(np.uint8), np.arange(count, dtype=np.float64) / 2, count * 0.5 + 0.25)


@pytest.mark.parametrize("side", [224, 260])
def test_agrees_with_the_reference_implementation(network: EfficientNetLite, side: int) -> None:
    """Numbers of efficientnet-lite-pytorch 0.1.0's own forward with the same weights, at an odd size too."""
    golden = json.loads((HERE / "efficientnet_lite2.json").read_text())[str(side)]
    x = (torch.from_numpy(pattern(side)).permute(2, 0, 1)[None].float() - 127) / 128
    with torch.inference_mode():
        grid = network(x)
        logits = network.classify(grid)[0]
    for name, ours in {
        "cell_means": grid[0].mean(0).flatten(),
        "channels": grid[0, ::40, 3, 4],
        "logits": logits[::10],
    }.items():
        torch.testing.assert_close(ours, torch.tensor(golden[name]), atol=1e-4, rtol=0)


def test_folding_the_batch_norms_changes_nothing(network: EfficientNetLite) -> None:
    pixels = torch.from_numpy(pattern(224))[None]
    with torch.inference_mode():
        plain = network((pixels.permute(0, 3, 1, 2).float() - 127) / 128)
        folded, logits = GridFromBytes(load_packaged())(pixels)
        wanted = network.classify(plain)
    torch.testing.assert_close(folded, plain.permute(0, 2, 3, 1).flatten(1, 2), atol=1e-4, rtol=0)
    torch.testing.assert_close(logits[:, 0], wanted, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", CLASSES)
def test_known_pictures_have_their_classes(
    extractor: EfficientNetLite2, network: EfficientNetLite, name: str
) -> None:
    """Through the default engine and precision, from the bytes of the picture to the first class of 1000."""
    cells = torch.from_numpy(extractor.grid(picture(name)[None])).float()
    with torch.inference_mode():
        probabilities = network.classify(cells.permute(0, 3, 1, 2)).softmax(-1)[0]
    assert int(probabilities.argmax()) == CLASSES[name]
    assert probabilities.max() > 0.8


def test_streams_of_a_video(extractor: EfficientNetLite2) -> None:
    frames = video(3, 90, 160)
    (streams,) = extractor.extract([frames])
    assert {name: tuple(stream.values.shape) for name, stream in streams.items()} == {
        "frames": (3, 1280),
        "grid": (3, 49, 1280),
        "efficientnet-lite2_logits": (3, 1, 1000),
    }
    for stream in streams.values():
        np.testing.assert_array_equal(stream.start, [0, 0.5, 1])
        np.testing.assert_array_equal(stream.end, [0.5, 1, 1.75])
        assert stream.spec == extractor.spec
        assert stream.values.dtype == torch.float16
    torch.testing.assert_close(
        streams["frames"].values.float(), streams["grid"].values.float().mean(1), atol=1e-3, rtol=1e-3
    )


def test_videos_are_batched_and_keep_their_rows(exact: EfficientNetLite2) -> None:
    """Sizes differ, and a batch of four frames ends inside a video."""
    videos = [video(3, 90, 160), video(6, 120, 60, seed=50), video(1, 224, 224, seed=90)]
    together = exact.extract(videos)
    for frames, streams in zip(videos, together, strict=True):
        (alone,) = exact.extract([frames])
        for name in ("frames", "grid"):
            torch.testing.assert_close(streams[name].values, alone[name].values, atol=2e-3, rtol=0)
    assert exact.extract([]) == []


@pytest.mark.parametrize("engine", ["openvino", "torch"])
def test_bf16_keeps_the_direction_of_every_frame(engine: EngineName, exact: EfficientNetLite2) -> None:
    if not torch.cpu.get_capabilities().get("avx512_bf16"):
        pytest.skip("no bf16 on this processor")
    half = EfficientNetLite2(ExtractorOptions(engine=engine, precision="bf16"))
    assert half.spec.precision == "bf16"
    assert half.spec.identity == exact.spec.identity
    pictures = [picture(name)[None] for name in CLASSES]
    pooled = [
        np.concatenate([e.grid(p).astype(np.float32).mean((1, 2)) for p in pictures]) for e in (half, exact)
    ]
    cosine = np.sum(pooled[0] * pooled[1], 1) / np.prod([np.linalg.norm(p, axis=1) for p in pooled], 0)
    assert cosine.min() > 0.99


def test_openvino_in_fp32_gives_torch_numbers(exact: EfficientNetLite2) -> None:
    ours = EfficientNetLite2(ExtractorOptions(engine="openvino", precision="fp32"))
    pictures = pattern(224)[None].repeat(3, 0)
    np.testing.assert_allclose(ours.grid(pictures), exact.grid(pictures), atol=2e-3)


def test_a_gpu_gives_the_cpu_numbers(exact: EfficientNetLite2) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gpu = EfficientNetLite2(ExtractorOptions(torch.device("cuda"), precision="fp32"))
    frames = video(5, 90, 160)
    (ours,), (theirs,) = gpu.extract([frames]), exact.extract([frames])
    difference = (ours["grid"].values.float() - theirs["grid"].values.float()).abs()
    assert difference.mean() < 5e-3  # the resize may differ by one level of 255


def test_the_stages_are_the_plain_networks_maps_of_that_size(network: EfficientNetLite) -> None:
    """The last map of 14 × 14 and the last before the head, found by running block after block."""
    x = (torch.from_numpy(pattern(224)).permute(2, 0, 1)[None].float() - 127) / 128
    maps = []
    with torch.inference_mode():
        x = network.stem(x)
        for block in network.blocks:
            x = block(x)
            maps.append(x)
    wanted = {"stage_14": [m for m in maps if m.shape[2] == 14][-1], "stage_7": maps[-1]}
    stages = EfficientNetStages(ExtractorOptions(engine="torch", precision="fp32"))
    given = stages.of_pictures(pattern(224)[None])
    assert given.keys() == wanted.keys() == stages.shapes.keys()
    for name, values in given.items():
        assert values.shape[1:] == stages.shapes[name]
        expected = wanted[name][0].permute(1, 2, 0).flatten(0, 1)
        torch.testing.assert_close(torch.from_numpy(values[0]).float(), expected, atol=1e-2, rtol=2e-3)


def test_the_stages_of_a_video_have_its_frames_times(extractor: EfficientNetLite2) -> None:
    """Through the default engine; ``grid`` is left to efficientnet-lite2, whose name tag is the same but for
    its name, so that either may be cached without the other."""
    stages = create("efficientnet-lite2-stages")
    assert isinstance(stages, EfficientNetStages)
    (streams,) = stages.extract([video(3, 90, 160)])
    shapes = {name: tuple(stream.values.shape) for name, stream in streams.items()}
    assert shapes == {"stage_14": (3, 196, 120), "stage_7": (3, 49, 352)}
    for stream in streams.values():
        np.testing.assert_array_equal(stream.start, [0, 0.5, 1])
        np.testing.assert_array_equal(stream.end, [0.5, 1, 1.75])
        assert stream.spec.identity == extractor.spec.identity


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownExtractor, match=r"'vgg'.*efficientnet-lite2"):
        create("vgg")
