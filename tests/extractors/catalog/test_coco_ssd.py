"""COCO's SSD with its packaged weights: on photographs, in any engine, on nothing, started twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.ops import box_iou

from extractors.catalog.coco_ssd import CocoSSD
from extractors.detection import ssd_mobilenet
from extractors.engines import openvino
from extractors.extractor import UnknownExtractor, create
from extractors.features import Frames, Stream
from extractors.pretrained.errors import WeightsDamaged, WrongCheckpoint
from extractors.pretrained.load import find_weights
from extractors.pretrained.tensorflow import read_constants

PICTURES = Path(__file__).parents[1] / "pictures"
#: What OpenCV 5.0's DNN module says of the same file of weights and the same squares: class, score, box.
OPENCV = {
    "cat": [("cat", 0.866, (0.013, 0.0, 0.884, 0.996))],
    "espresso": [
        ("cup", 0.990, (0.286, 0.034, 0.694, 0.723)),
        ("dining table", 0.328, (0.0, 0.002, 1.0, 0.995)),
    ],
}


def picture(name: str) -> NDArray[np.uint8]:
    with Image.open(PICTURES / f"{name}.jpg") as image:
        return np.asarray(image.convert("RGB"))


def still(pixels: NDArray[np.uint8], count: int = 1) -> Frames:
    """A video that shows one picture, two frames a second."""
    return Frames(np.stack([pixels] * count), np.arange(count, dtype=np.float64) / 2, count / 2)


@pytest.fixture(scope="module")
def made() -> Callable[..., CocoSSD]:
    def make(name: str = "coco_ssd", **options: object) -> CocoSSD:
        extractor = create(name, **options)  # type: ignore[arg-type]
        assert isinstance(extractor, CocoSSD)
        return extractor

    return make


@pytest.fixture(scope="module")
def exact(made: Callable[..., CocoSSD]) -> CocoSSD:
    return made(engine="torch", precision="fp32")


@pytest.fixture(scope="module")
def fastest(made: Callable[..., CocoSSD]) -> CocoSSD:
    return made()


def only(extractor: CocoSSD, pixels: NDArray[np.uint8]) -> Stream:
    return extractor.extract([still(pixels)])[0][extractor.name]


def seen(stream: Stream) -> list[tuple[str, float, Tensor]]:
    """Class, score and box of every real box of the first row."""
    assert stream.boxes is not None
    assert stream.mask is not None
    scores, kinds = stream.values[0].float().max(1)
    parts = zip(scores, kinds, stream.boxes[0], stream.mask[0], strict=True)
    return [(CocoSSD.classes[int(kind)], float(score), box) for score, kind, box, real in parts if real]


def agree(stream: Stream, name: str, scores_within: float, boxes_within: float) -> None:
    found = seen(stream)
    assert [kind for kind, _, _ in found] == [kind for kind, _, _ in OPENCV[name]]
    for (_, score, box), (_, expected, corners) in zip(found, OPENCV[name], strict=True):
        assert score == pytest.approx(expected, abs=scores_within)
        torch.testing.assert_close(box, torch.tensor(corners), atol=boxes_within, rtol=0)


@pytest.mark.parametrize("name", OPENCV)
def test_says_what_opencv_says_of_the_same_weights(exact: CocoSSD, name: str) -> None:
    agree(only(exact, picture(name)), name, scores_within=0.01, boxes_within=0.01)


@pytest.mark.parametrize("name", OPENCV)
def test_the_default_engine_sees_the_same_things(fastest: CocoSSD, name: str) -> None:
    """bf16 where the processor has it: the same classes, scores to 0.03, boxes that cover the same."""
    agree(only(fastest, picture(name)), name, scores_within=0.03, boxes_within=0.02)


def test_ten_boxes_in_the_frame_and_zeros_behind(exact: CocoSSD) -> None:
    stream = exact.extract([still(picture("espresso"), 3)])[0]["coco_ssd"]
    assert stream.boxes is not None
    assert stream.mask is not None
    assert stream.values.shape == (3, 10, 90)
    assert stream.values.dtype == torch.float16
    assert stream.boxes.shape == (3, 10, 4)
    assert stream.boxes.min() >= 0
    assert stream.boxes.max() <= 1
    assert stream.mask.sum(1).tolist() == [2, 2, 2]
    assert not stream.values[~stream.mask].any()
    assert not stream.boxes[~stream.mask].any()
    assert [*stream.start, stream.end[-1]] == pytest.approx([0.0, 0.5, 1.0, 1.5])


def test_nothing_is_nothing(exact: CocoSSD) -> None:
    stream = only(exact, np.full((120, 90, 3), 128, np.uint8))
    assert stream.mask is not None
    assert not stream.mask.any()
    assert not stream.values.any()


@pytest.mark.parametrize("turned", [0, 1])
def test_boxes_are_of_the_displayed_frame(exact: CocoSSD, turned: int) -> None:
    """A cat left of a wall, or above it, in a large frame: the box is there, whatever the frame's shape."""
    cat = picture("cat")
    height, width = cat.shape[:2]
    frame = np.full((height + turned * height // 2, width + (1 - turned) * width // 2, 3), 128, np.uint8)
    frame[:height, :width] = cat
    large = np.asarray(Image.fromarray(frame).resize((3 * frame.shape[1], 3 * frame.shape[0])))
    kind, _, box = seen(only(exact, large))[0]
    expected = torch.tensor([OPENCV["cat"][0][2]])
    expected[:, turned::2] /= 1.5
    assert kind == "cat"
    assert box_iou(box[None], expected) > 0.6


def test_as_many_boxes_as_the_name_says(made: Callable[..., CocoSSD]) -> None:
    one = made("coco_ssd:1", engine="torch", precision="fp32")
    stream = one.extract([still(picture("espresso"))])[0]["coco_ssd:1"]
    assert stream.values.shape == (1, 1, 90)
    assert [kind for kind, _, _ in seen(stream)] == ["cup"]
    assert one.spec.sampling.startswith("1 boxes")
    for wrong in ("coco_ssd:none", "coco_ssd:0", "coco_ssd:101"):
        with pytest.raises(UnknownExtractor, match="number of boxes from 1 to 100"):
            made(wrong)


def test_a_second_start_converts_nothing(
    fastest: CocoSSD, made: Callable[..., CocoSSD], monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*_: object) -> None:
        raise AssertionError("converted again")

    only(fastest, picture("cat"))
    monkeypatch.setattr(openvino, "_convert", again)
    only(second := made(), picture("cat"))
    assert second.spec == fastest.spec


def test_seeded_weights_say_so(made: Callable[..., CocoSSD]) -> None:
    seeded = made(engine="torch", precision="fp32", weights="seeded")
    assert seeded.spec.weights_sha256 == "seeded"
    assert only(seeded, picture("cat")).values.isfinite().all()


def test_a_graph_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    graph = find_weights("coco_ssd").file
    read = read_constants(graph)
    assert read["FeatureExtractor/MobilenetV2/Conv/weights"].shape == (3, 3, 3, 32)
    assert read["Preprocessor/mul/x"] == pytest.approx(2 / 255)
    cut = tmp_path / "cut.pb"
    cut.write_bytes(graph.read_bytes()[:1_000_000])
    with pytest.raises(WeightsDamaged, match="ends too early"):
        read_constants(cut)
    cut.write_bytes(b"no graph at all")
    with pytest.raises(WeightsDamaged, match=r"cut\.pb"):
        read_constants(cut)
    read.pop("FeatureExtractor/MobilenetV2/Conv/weights")
    with pytest.raises(WrongCheckpoint, match=r"stem\.conv\.weight is missing"):
        ssd_mobilenet.from_graph(read)


def test_anchors_cover_the_picture() -> None:
    """One at each cell's middle, of the graph's numbers: 3 at the cells of the finest map, 6 elsewhere."""
    anchors = ssd_mobilenet.make_anchors()
    assert len(anchors) == 3 * 19**2 + 6 * (10**2 + 5**2 + 3**2 + 2**2 + 1)
    torch.testing.assert_close(
        anchors[0], torch.tensor([0.5 / 19 - 0.05, 0.5 / 19 - 0.05] + [0.5 / 19 + 0.05] * 2)
    )
    whole = anchors[-6]
    torch.testing.assert_close(whole, torch.tensor([0.5 - 0.475] * 2 + [0.5 + 0.475] * 2))
