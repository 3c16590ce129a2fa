"""Finds objects by torchvision's Faster R-CNN and Mask R-CNN (ResNet-50, FPN, COCO).

Ren et al., 2015 (arXiv:1506.01497); He et al., 2017 (arXiv:1703.06870). Of Mask R-CNN the boxes and what is
in them are taken, not the masks. What the library does to pictures, proposals and boxes, it does here too;
only its two networks are handed to an engine.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import concat_box_prediction_layers
from torchvision.models.detection.transform import resize_boxes
from torchvision.ops.misc import FrozenBatchNorm2d

from extractors.catalog.detectors import DetectorSettings, RegionsExtractor
from extractors.detection.regions import Regions
from extractors.engines.engine_choice import choose_engine
from extractors.extractor import ExtractorOptions
from extractors.networks.labels import COCO_90
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import Checkpoint, count_classes, load_strict, unwrap
from extractors.windows import Windows

MAKERS = {"faster_rcnn": FasterRCNN, "mask_rcnn": MaskRCNN}
#: The published files are older than the library's names: convolutions have since been put into sequences,
#: ``inner_blocks.0.weight`` is now ``….0.0.weight``.
OLD = (
    (re.compile(r"(backbone\.fpn\.(?:inner|layer)_blocks\.\d)\.(weight|bias)"), r"\1.0.\2"),
    (re.compile(r"(rpn\.head\.conv)\.(weight|bias)"), r"\1.0.0.\2"),
)
CLASSIFIER = "roi_heads.box_predictor.cls_score.weight"


def build_untrained(name: str, kinds: int = 91) -> FasterRCNN:
    """Builds the detector with initial weights.

    name: one of MAKERS; kinds: classes, the background among them.
    """
    norm = partial(FrozenBatchNorm2d, eps=0.0)  # with which the files of 2019 (COCO_V1) were trained
    backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None, norm_layer=norm)
    model: FasterRCNN = MAKERS[name](backbone, kinds)
    return model


def from_checkpoint(name: str, checkpoint: Checkpoint) -> FasterRCNN:
    """Loads the detector in eval mode, by older or newer names. Raises WrongCheckpoint."""
    parameters = {_rename(old): value for old, value in unwrap(checkpoint).items()}
    return load_strict(build_untrained(name, count_classes(parameters, CLASSIFIER)), parameters)


def _rename(name: str) -> str:
    for old, new in OLD:
        if old.fullmatch(name):
            return old.sub(new, name)
    return name


WIDTH = 1024
SETTINGS: Mapping[str, DetectorSettings] = {
    "faster_rcnn": DetectorSettings("fasterrcnn-resnet50-fpn-coco", 10, Windows(step_size=32), COCO_90),
    "mask_rcnn": DetectorSettings("maskrcnn-resnet50-fpn-coco", 10, Windows(step_size=32), COCO_90),
}


class LibraryInput:
    """Leaves frames as they are: the library resizes them after it has normalised them."""

    preprocessing = (
        "RGB, x / 255, less (0.485, 0.456, 0.406), by (0.229, 0.224, 0.225); then shortest edge 800, longest "
        "at most 1333, bilinear; zeros to a multiple of 32"
    )

    resizing = None

    def resize(self, frames: Tensor) -> Tensor:
        return frames


class TorchvisionTrunk(nn.Module):
    """Turns prepared pictures (N, 3, H, W) into five maps, then logits of each, then deltas of each."""

    def __init__(self, model: FasterRCNN) -> None:
        super().__init__()
        self.backbone, self.head = model.backbone, model.rpn.head

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = list(self.backbone(x).values())
        logits, deltas = self.head(maps)
        return (*maps, *logits, *deltas)


class TorchvisionDetector:
    """Runs the library's detector, its two networks by engines."""

    width, things = WIDTH, len(COCO_90)

    def __init__(self, model: FasterRCNN, key: str, options: ExtractorOptions) -> None:
        self.input = LibraryInput()
        self.model = model.to(options.device)
        self._trunk = choose_engine(
            TorchvisionTrunk(model), torch.zeros(2, 3, 128, 160), f"{key} trunk", options, free=(0, 2, 3)
        )
        bins = torch.zeros(2, 256, 7, 7)
        self._embed = choose_engine(model.roi_heads.box_head, bins, f"{key} second stage", options)
        self.engine, self.precision = self._trunk.name, self._trunk.precision

    @torch.inference_mode()
    def detect(self, planes: Tensor) -> list[Regions]:
        """Finds the regions of pictures uint8 (N, 3, H, W), blue first: in their pixels, the best first."""
        pictures, _ = self.model.transform(list(planes.flip(1).float() / 255))
        outputs = self._trunk.outputs(pictures.tensors)
        names = [*self.model.roi_heads.box_roi_pool.featmap_names, "pool"]
        maps, logits, deltas = (outputs[begin : begin + len(names)] for begin in range(0, len(outputs), 5))
        named = dict(zip(names, maps, strict=True))
        boxes = self._select_proposals(pictures, maps, logits, deltas)
        features = self._pool_features(named, boxes, pictures)
        return self._select_detections(named, boxes, features, pictures, (planes.shape[2], planes.shape[3]))

    def _select_proposals(
        self, pictures: ImageList, maps: Sequence[Tensor], logits: Sequence[Tensor], deltas: Sequence[Tensor]
    ) -> list[Tensor]:
        """Selects proposals as the library's ``RegionProposalNetwork.forward`` does."""
        rpn = self.model.rpn
        anchors = rpn.anchor_generator(pictures, list(maps))
        per_level = [of_level[0].numel() for of_level in logits]
        scores, moves = concat_box_prediction_layers(list(logits), list(deltas))
        moved = rpn.box_coder.decode(moves, anchors).view(len(anchors), -1, 4)
        boxes, _ = rpn.filter_proposals(moved, scores, pictures.image_sizes, per_level)
        proposals: list[Tensor] = boxes
        return proposals

    def _pool_features(self, maps: Mapping[str, Tensor], boxes: list[Tensor], pictures: ImageList) -> Tensor:
        bins = self.model.roi_heads.box_roi_pool(maps, boxes, pictures.image_sizes)
        return self._embed(bins) if len(bins) else bins.new_zeros(0, WIDTH)

    def _select_detections(
        self,
        maps: Mapping[str, Tensor],
        proposals: list[Tensor],
        features: Tensor,
        pictures: ImageList,
        size: tuple[int, int],
    ) -> list[Regions]:
        """Selects the regions that the library keeps, with the features of their final boxes."""
        heads = self.model.roi_heads
        logits, moves = heads.box_predictor(features)
        boxes, scores, labels = heads.postprocess_detections(logits, moves, proposals, pictures.image_sizes)
        rows = torch.split(self._pool_features(maps, boxes, pictures), [len(of_one) for of_one in boxes])
        in_picture = [
            resize_boxes(box, seen, size) for box, seen in zip(boxes, pictures.image_sizes, strict=True)
        ]
        classes = [label - 1 for label in labels]  # the background is the first
        return [Regions(*one) for one in zip(in_picture, scores, classes, rows, strict=True)]


def make(name: str, options: ExtractorOptions) -> RegionsExtractor:
    """Makes the extractor with its weights. Raises WeightsError, UnknownExtractor."""
    base_name = name.partition(":")[0]
    model, weights = load_pretrained(
        base_name, options.weights, partial(from_checkpoint, base_name), partial(build_untrained, base_name)
    )
    detector = TorchvisionDetector(model, f"{SETTINGS[base_name].network} {weights}", options)
    return RegionsExtractor(name, SETTINGS[base_name], detector, weights, options)
