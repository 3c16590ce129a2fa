"""Detectors as extractors: fixed boxes with masks, in the frame, best first; as the libraries find them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.ops import nms

from extractors.catalog.detectors import FAMILIES, Detector, RegionsExtractor, TwoStageDetector
from extractors.catalog.torchvision_detectors import SETTINGS, TorchvisionDetector, build_untrained
from extractors.detection import backbone, bottom_up, faster_rcnn, two_stage
from extractors.detection.bottom_up import BottomUp, RegionRule, suppress_overlaps
from extractors.detection.detectron2 import Detectron2, is_installed
from extractors.detection.faster_rcnn import DetectionRule
from extractors.detection.proposals import ProposalRule
from extractors.detection.regions import Regions, pad_regions, parse_count
from extractors.detection.two_stage import StageRunners, TwoStage
from extractors.extractor import ExtractorOptions, UnknownExtractor, create
from extractors.features import Frames, Stream
from extractors.preprocessing.detection import DetectionInput, to_bgr_planes
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.load import build_seeded
from extractors.windows import Windows

PICTURE = Path(__file__).parents[1] / "pictures" / "espresso.jpg"
EXACT = ExtractorOptions(engine="torch", precision="fp32", windows=Windows())
OWN = ("detectron2_c4", "detectron2_fpn", "bottom_up")
#: Seeded networks know nothing, so that all they find is kept.
ALL = DetectionRule(score=0.0, most=12)


def photograph(height: int, width: int) -> NDArray[np.uint8]:
    with Image.open(PICTURE) as image:
        return np.asarray(image.convert("RGB").resize((width, height)))


def video(height: int = 61, width: int = 83, count: int = 2) -> Frames:
    """The photograph, then itself upside down, and so on."""
    picture = photograph(height, width)
    pixels = np.stack([picture[:: (1, -1)[t % 2]] for t in range(count)])
    return Frames(pixels, np.arange(count, dtype=np.float64) / 4, count / 4)


def smaller(network: TwoStage) -> TwoStage:
    """On pictures of 96 pixels and a few proposals, all else as it is."""
    own: DetectionInput = network.input
    network.input = replace(own, shortest=96, longest=140)
    network.proposals = ProposalRule(200, 20)
    if isinstance(network, faster_rcnn.FasterRCNN):
        network.rule = ALL
    return network


@pytest.fixture(scope="module")
def network() -> Callable[[str], TwoStage]:
    """Seeded networks as wide as they are, but with one block in each of the first stages; made once."""
    known: dict[str, TwoStage] = {}

    def get(name: str) -> TwoStage:
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(backbone, "DEPTHS", (1, 1, 1, 1))
                known[name] = smaller(build_seeded(FAMILIES[name].blank))
        return known[name]

    return get


def extractor_of(name: str, detector: Detector) -> RegionsExtractor:
    kind = FAMILIES[name.partition(":")[0]].settings
    return RegionsExtractor(name, kind, detector, "seeded", EXACT)


def planes(frames: Frames) -> Tensor:
    return to_bgr_planes(torch.from_numpy(frames.pixels))


def is_well_formed(stream: Stream, found: int) -> None:
    """So many real boxes of every row, in the frame, then zeros."""
    assert stream.boxes is not None
    assert stream.mask is not None
    assert stream.values.dtype == torch.float16
    assert stream.values.isfinite().all()
    assert stream.mask.sum(1).tolist() == [found] * len(stream)
    assert stream.mask[:, :found].all()
    assert stream.boxes.min() >= 0
    assert stream.boxes.max() <= 1
    real = stream.boxes[stream.mask]
    assert (real[:, 2:] > real[:, :2]).all()
    assert not stream.boxes[~stream.mask].any()
    assert not stream.values[~stream.mask].any()


@pytest.mark.parametrize("name", OWN)
def test_streams_of_a_detector(network: Callable[[str], TwoStage], name: str) -> None:
    detector = TwoStageDetector(network(name), name, EXACT)
    [streams] = extractor_of(f"{name}:14", detector).extract([video()])
    width, classes = {"detectron2_c4": (2048, 80), "detectron2_fpn": (1024, 80), "bottom_up": (2048, 1600)}[
        name
    ]
    assert streams[f"{name}:14"].values.shape == (2, 14, width)
    assert streams[f"{name}:14_scores"].values.shape == (2, 14, classes)
    for stream in streams.values():
        is_well_formed(stream, found=10 if name == "bottom_up" else 12)
    best = streams[f"{name}:14_scores"].values.float().amax(2)
    assert (best[:, :-1] >= best[:, 1:]).all()
    assert (streams[f"{name}:14_scores"].values > 0).sum(2).max() == 1
    assert [*streams[f"{name}:14"].start] == pytest.approx([0.0, 0.25])
    if name == "bottom_up":
        assert streams[f"{name}:14_attributes"].values.shape == (2, 14, 400)


@pytest.mark.parametrize("name", OWN)
def test_boxes_some_at_a_time_are_all_boxes(
    network: Callable[[str], TwoStage], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pictures with 7 and 0 boxes, three at a time, are what one call says of them."""
    net = network(name)
    assert isinstance(net, faster_rcnn.C4 | faster_rcnn.FPN | BottomUp)
    monkeypatch.setattr(two_stage, "BOXES_AT_ONCE", 3)
    corner = torch.rand(7, 2, generator=torch.Generator().manual_seed(1)) * 40
    boxes = [torch.cat([corner, corner + 20 + corner.flip(0)], 1), torch.zeros(0, 4)]
    with torch.inference_mode():
        maps = net.compute_maps(net.input.normalise(planes(video(96, 128))))
        parts = net.compute_features(maps, boxes, StageRunners(net.run_trunk, net.embed))
        whole = net.predict(net.embed(net.pool(maps, boxes))).features
    torch.testing.assert_close(parts, whole, atol=1e-4, rtol=1e-4)


def test_nothing_found_is_all_masked(network: Callable[[str], TwoStage]) -> None:
    net = network("detectron2_fpn")
    assert isinstance(net, faster_rcnn.FPN)
    net.rule = DetectionRule(score=0.99)
    try:
        [streams] = extractor_of("detectron2_fpn", TwoStageDetector(net, "fpn", EXACT)).extract(
            [video(40, 97)]
        )
    finally:
        net.rule = ALL
    is_well_formed(streams["detectron2_fpn"], found=0)


def test_boxes_are_shares_of_the_frame() -> None:
    """Pixels of a picture 50 high and 200 wide; more than wanted are cut, fewer filled up."""
    boxes = torch.tensor([[0.0, 0.0, 200.0, 50.0], [100.0, 25.0, 150.0, 50.0]])
    found = Regions(boxes, torch.tensor([0.9, 0.5]), torch.tensor([2, 0]), torch.ones(2, 5))
    three, one = pad_regions([found], (50, 200), 3, 4), pad_regions([found], (50, 200), 1, 4)
    assert three[""].boxes is not None
    assert three[""].mask is not None
    assert one[""].boxes is not None
    assert three[""].boxes.tolist() == [[[0, 0, 1, 1], [0.5, 0.5, 0.75, 1], [0, 0, 0, 0]]]
    assert three[""].mask.tolist() == [[True, True, False]]
    assert three["_scores"].values[0].argmax(1).tolist() == [2, 0, 0]
    assert one[""].boxes.tolist() == [[[0, 0, 1, 1]]]
    assert "_attributes" not in three


def test_regions_survive_within_their_class() -> None:
    """All classes at once are what torchvision's suppression says of one after another."""
    generator = torch.Generator().manual_seed(5)
    corner = torch.rand(60, 2, generator=generator) * 50
    boxes = torch.cat([corner, corner + 5 + torch.rand(60, 2, generator=generator) * 30], 1)
    scores = torch.rand(60, 9, generator=generator)
    expected = torch.zeros(60, 9, dtype=torch.bool)
    for kind in range(9):
        expected[nms(boxes, scores[:, kind], 0.3), kind] = True
    assert torch.equal(suppress_overlaps(boxes, scores, 0.3), expected)
    assert 9 < expected.sum() < 540


@pytest.mark.parametrize(
    ("certain", "least", "most", "count"), [(0, 4, 10, 4), (7, 4, 10, 7), (20, 4, 10, 10)]
)
def test_as_many_regions_as_the_paper_takes(certain: int, least: int, most: int, count: int) -> None:
    boxes = torch.arange(25.0)[:, None] * 10 + torch.tensor([0.0, 0.0, 5.0, 5.0])
    scores = torch.full((25, 3), 0.1)
    scores[:certain, 1] = torch.linspace(0.3, 0.9, certain)
    rule = RegionRule(least=least, most=most)
    found = bottom_up.select_regions(boxes, scores, torch.zeros(25, 2), torch.arange(25.0)[:, None], rule)
    assert len(found.boxes) == count
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
    assert torch.equal(found.boxes, boxes[found.features[:, 0].long()])


def test_detectron2s_own_file_is_read_by_its_names(
    network: Callable[[str], TwoStage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pickle of arrays under "model", with what old files have beside the parameters."""
    net = network("detectron2_fpn")
    content = {name: value.numpy() for name, value in net.state_dict().items()}
    content["pixel_mean"] = np.zeros((3, 1, 1), np.float32)
    content["proposal_generator.anchor_generator.cell_anchors.0"] = np.zeros((3, 4), np.float32)
    file = tmp_path / "model_final.pkl"
    file.write_bytes(pickle.dumps({"model": content, "__author__": "Detectron2 Model Zoo"}))
    monkeypatch.setattr(backbone, "DEPTHS", (1, 1, 1, 1))
    again = faster_rcnn.from_checkpoint(read_checkpoint(file))
    assert isinstance(again, faster_rcnn.FPN)
    x = torch.rand(1, 3, 64, 96) * 100
    with torch.inference_mode():
        for name, grid in net.compute_maps(x).items():
            assert torch.equal(again.compute_maps(x)[name], grid)


def test_bottom_up_takes_the_anchors_that_come_with_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone, "DEPTHS", (1, 1, 1, 1))
    small = BottomUp(classes=3, attributes=2)
    cells = torch.arange(48.0).reshape(12, 4)
    name = "proposal_generator.anchor_generator.cell_anchors.0"
    again = bottom_up.from_checkpoint({**small.state_dict(), name: cells})
    assert torch.equal(again.proposal_generator.cells[0], cells)
    assert not torch.equal(bottom_up.from_checkpoint(small.state_dict()).proposal_generator.cells[0], cells)


def library(name: str) -> tuple[TorchvisionDetector, torch.nn.Module]:
    """The detector on pictures of 96 pixels, and torchvision's model by itself."""
    model = build_seeded(lambda: build_untrained(name))
    model.transform.min_size, model.transform.max_size = (96,), 140
    model.rpn._post_nms_top_n = {"training": 20, "testing": 20}
    model.roi_heads.score_thresh, model.roi_heads.detections_per_img = 0.0, 12
    return TorchvisionDetector(model, name, EXACT), model


@pytest.mark.parametrize("name", SETTINGS)
def test_torchvisions_boxes_are_torchvisions(name: str) -> None:
    detector, model = library(name)
    frames = video(61, 83)
    pictures = list(torch.from_numpy(frames.pixels).permute(0, 3, 1, 2).float() / 255)
    with torch.inference_mode():
        expected = model(pictures)
    for ours, theirs in zip(detector.detect(planes(frames)), expected, strict=True):
        # pixels, of two orders of adding up: 0.002 were seen apart
        torch.testing.assert_close(ours.boxes, theirs["boxes"], atol=1e-2, rtol=1e-4)
        torch.testing.assert_close(ours.scores, theirs["scores"], atol=1e-5, rtol=1e-4)
        assert torch.equal(ours.classes + 1, theirs["labels"])
    [streams] = RegionsExtractor(name, SETTINGS[name], detector, "seeded", EXACT).extract([frames])
    assert streams[name].values.shape == (2, 10, 1024)
    assert streams[f"{name}_scores"].values.shape == (2, 10, 90)
    is_well_formed(streams[name], found=10)


def test_an_engine_that_converts_takes_pictures_of_any_size(
    network: Callable[[str], TwoStage], tmp_path: Path
) -> None:
    options = replace(EXACT, engine="openvino", cache=tmp_path)
    fast, plain = (TwoStageDetector(network("detectron2_fpn"), "fpn", how) for how in (options, EXACT))
    assert (fast.engine, plain.engine) == ("openvino", "torch")
    for height, width in ((64, 96), (97, 70)):
        ours, theirs = (run.detect(planes(video(height, width))) for run in (fast, plain))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.scores, other.scores, atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(one.boxes, other.boxes, atol=0.05, rtol=1e-3)


@pytest.mark.parametrize("name", ["detectron2_c4", "detectron2_fpn"])
def test_detectron2_itself_finds_the_same(name: str) -> None:
    if not is_installed():
        pytest.skip("detectron2 is not installed")
    net = smaller(build_seeded(FAMILIES[name].blank))
    assert isinstance(net, faster_rcnn.C4 | faster_rcnn.FPN)
    pictures = planes(video(96, 128))
    adapter, ours = Detectron2(net, torch.device("cpu")), TwoStageDetector(net, name, EXACT)
    assert adapter.engine == "detectron2"
    for theirs, own in zip(adapter.detect(pictures), ours.detect(pictures), strict=True):
        torch.testing.assert_close(own.boxes, theirs.boxes, atol=0.01, rtol=1e-4)
        torch.testing.assert_close(own.scores, theirs.scores, atol=1e-5, rtol=1e-4)
        assert torch.equal(own.classes, theirs.classes)
        torch.testing.assert_close(own.features, theirs.features, atol=1e-3, rtol=1e-3)


def test_names_say_how_many_boxes() -> None:
    assert parse_count("bottom_up", 36) == 36
    assert parse_count("bottom_up:16", 36) == 16
    with pytest.raises(UnknownExtractor, match="1 to 100"):
        create("bottom_up:many", engine="torch", weights="seeded")
