"""Labels of a video: ranked by hand-made scores, placed in time and in the picture, read back, refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.models import ResNet50_Weights
from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights
from torchvision.models.video import R3D_18_Weights

from extractors.catalog.labels import LabelExtractor, make, read_labels
from extractors.extractor import ExtractorOptions, UnknownExtractor, list_inputs, list_weights
from extractors.features import Stream, StreamSpec
from extractors.label import NAMES, Label
from extractors.networks.labels import COCO_80, COCO_90, IMAGENET, KINETICS_400
from extractors.video_features.feature_files import FeatureSpec, SafetensorsForm, SavedFeatures, VideoSource
from extractors.video_features.npy_hdf5 import NpyForm
from extractors.video_features.packed_streams import pack_streams, unpack_streams

NAME = "labels:i3d_brief+efficientnet-lite2+coco_ssd:2"
ARCHERY, WOK = KINETICS_400.index("archery"), IMAGENET.index("wok")


def spec(name: str) -> StreamSpec:
    return StreamSpec(name, f"{name}'s sha256", f"{name}'s input", f"{name}'s windows", "torch", "fp32")


def scored(name: str, values: Tensor, mask: Tensor | None = None, boxes: Tensor | None = None) -> Stream:
    start = np.arange(len(values), dtype=np.float64)
    return Stream(values, start, start + 1, spec(name), boxes=boxes, mask=mask)


def logits(shares: list[float], place: int, classes: int) -> Tensor:
    """Rows whose class ``place`` has these probabilities, all others sharing the rest."""
    rows = torch.tensor([[(1 - share) / (classes - 1)] * classes for share in shares])
    rows[:, place] = torch.tensor(shares)
    return rows.log()


def boxes_of(rows: list[list[tuple[str, float]]]) -> Stream:
    """Two boxes a row, the second lower and to the right; each in the column of its class."""
    values = torch.zeros(len(rows), 2, 90)
    for row, named in enumerate(rows):
        for place, (name, score) in enumerate(named):
            values[row, place, COCO_90.index(name)] = score
    places = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.25, 0.25, 1.0, 1.0]])
    return scored("coco_ssd", values, boxes=places.expand(len(rows), 2, 4))


@pytest.fixture
def streams() -> dict[str, Stream]:
    return {
        "i3d_brief_logits": scored("i3d", logits([0.1, 0.9, 0.8, 0.2], ARCHERY, 400)),
        "efficientnet-lite2_logits": scored("lite2", logits([0.5, 0.3], WOK, 1000)[:, None]),
        "coco_ssd:2": boxes_of([[("person", 0.5), ("dog", 0.4)], [("person", 0.75)]]),
    }


def derive(streams: dict[str, Stream]) -> Stream:
    return make(NAME, ExtractorOptions()).derive(streams)["labels"]


def near(label: Label) -> tuple[str, str, float, float, float]:
    return label.name, label.kind, round(label.probability, 3), label.start, label.end


def test_labels_have_a_probability_a_time_and_a_place(streams: dict[str, Stream]) -> None:
    """Windows and frames share a mean, and are seen where half of the highest is; boxes have their best."""
    labels = read_labels(derive(streams))
    motion, picture, box = (next(each for each in labels if each.kind == kind) for kind in NAMES)
    assert near(motion) == ("archery", "motion", 0.5, 1.0, 3.0)
    assert near(picture) == ("wok", "picture", 0.4, 0.0, 2.0)
    assert near(box) == ("person", "box", 0.75, 1.0, 2.0)
    assert (motion.box, picture.box, box.box) == (None, None, (0.0, 0.0, 0.5, 0.5))
    assert labels[-1].name == "dog"
    assert labels[-1].box == (0.25, 0.25, 1.0, 1.0)
    assert [each.kind for each in labels] == ["motion"] * 4 + ["picture"] * 5 + ["box"] * 2


def test_a_row_names_kind_and_class_by_number(streams: dict[str, Stream]) -> None:
    stream = derive(streams)
    assert stream.values.shape == (11, 1, 3)
    assert stream.boxes is not None
    assert stream.boxes.shape == (11, 1, 4)
    rows: NDArray[np.float32] = stream.values[:, 0].numpy()
    assert rows[0, :2].tolist() == [0, ARCHERY]
    assert rows[4, :2].tolist() == [1, WOK]
    assert rows[9, :2].tolist() == [2, COCO_80.index("person")]
    np.testing.assert_allclose(rows[[0, 4, 9], 2], [0.5, 0.4, 0.75], rtol=1e-5)


def test_padded_windows_say_nothing_unless_there_are_no_others(streams: dict[str, Stream]) -> None:
    values = logits([0.2, 0.9], ARCHERY, 400)
    for mask, wanted in (([True, False], (0.2, 0.0, 1.0)), ([False, False], (0.55, 1.0, 2.0))):
        streams["i3d_brief_logits"] = scored("i3d", values, torch.tensor(mask))
        first = read_labels(derive(streams))[0]
        assert (round(first.probability, 3), first.start, first.end) == wanted


def test_a_video_without_things_has_no_boxes(streams: dict[str, Stream]) -> None:
    streams["coco_ssd:2"] = boxes_of([[], []])
    assert {each.kind for each in read_labels(derive(streams))} == {"motion", "picture"}


def test_the_name_tag_follows_every_network(streams: dict[str, Stream]) -> None:
    known = derive(streams).spec
    assert known.weights_sha256 == "i3d's sha256+lite2's sha256+coco_ssd's sha256"
    for name, stream in streams.items():
        other = {**streams, name: replace(stream, spec=replace(stream.spec, weights_sha256="another"))}
        assert derive(other).spec.identity != known.identity
        faster = {**streams, name: replace(stream, spec=replace(stream.spec, precision="bf16"))}
        assert derive(faster).spec.identity == known.identity


def test_they_are_saved_and_read_back(streams: dict[str, Stream], tmp_path: Path) -> None:
    stream = derive(streams)
    wanted = read_labels(stream)
    assert read_labels(unpack_streams(pack_streams({"labels": stream}))["labels"]) == wanted
    saved = SavedFeatures(
        FeatureSpec(NAME, stream.spec), VideoSource("a.mp4", "0", "0", 1), {}, 25.0, {"labels": stream}
    )
    for form in (SafetensorsForm(), NpyForm()):
        form.write(tmp_path, "a", saved)
        assert read_labels(form.read(tmp_path, "a").streams["labels"]) == wanted


def test_padding_of_a_batch_is_no_label(streams: dict[str, Stream]) -> None:
    stream = derive(streams)
    mask = torch.zeros(len(stream), 1, dtype=torch.bool)
    mask[:2] = True
    assert read_labels(replace(stream, mask=mask)) == read_labels(stream)[:2]


def test_what_it_takes_is_told_by_its_name() -> None:
    extractor = make(NAME, ExtractorOptions())
    assert isinstance(extractor, LabelExtractor)
    assert extractor.needs_streams == ("i3d_brief_logits", "efficientnet-lite2_logits", "coco_ssd:2")
    assert list_inputs(NAME) == ("i3d_brief", "efficientnet-lite2", "coco_ssd:2")
    assert list_weights(NAME) == ()
    with pytest.raises(UnknownExtractor, match=r"'labels:' should be labels:<name>\+<name>"):
        make("labels:", ExtractorOptions())


def test_the_classes_are_named_as_torchvision_names_them() -> None:
    coco = FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
    assert list(COCO_90) == coco[1:]
    assert list(COCO_80) == [name for name in coco[1:] if name != "N/A"]
    assert list(KINETICS_400) == R3D_18_Weights.KINETICS400_V1.meta["categories"]
    assert list(IMAGENET) == ResNet50_Weights.IMAGENET1K_V1.meta["categories"]


def test_it_refuses_absent_streams_and_unknown_classes(streams: dict[str, Stream]) -> None:
    with pytest.raises(ValueError, match="needs the stream coco_ssd:2: ask for its extractor too"):
        derive({name: stream for name, stream in streams.items() if name != "coco_ssd:2"})
    streams["i3d_brief_logits"] = scored("i3d", torch.zeros(2, 7))
    with pytest.raises(ValueError, match="i3d tells 7 classes apart, which are of no known set"):
        derive(streams)
