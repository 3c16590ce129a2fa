"""The detectors as the golden manifest names their outputs, on the boxes that it keeps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from extractors import roi
from extractors.anchors import anchors, cell_anchors
from extractors.bottomup import BottomUp
from extractors.boxes import moved
from extractors.detection_input import resized, resized_size
from extractors.rcnn import C4, FPN
from extractors.rpn import RATIOS

Tensors = Mapping[str, Tensor]


def run_c4(network: nn.Module, inputs: Tensors) -> Tensors:
    assert isinstance(network, C4)
    maps = network.maps(network.input.normalised(inputs["image"]))
    logits, deltas = network.proposal_generator.rpn_head(maps["res4"])
    bins = roi.align(maps["res4"], [inputs["fixed_boxes"]], 1 / 16, 14)
    said = network.describe(maps, [inputs["fixed_boxes"]])
    return {
        "map_res4": maps["res4"],
        "rpn_logits_res4": logits,
        "rpn_deltas_res4": deltas,
        "anchors_res4": network.proposal_generator.anchors(maps)["res4"],
        "roi_align_fixed": bins,
        "res5_fixed": network.roi_heads.res5(bins),
        "features_fixed": said.features,
        "cls_logits_fixed": said.logits,
        "box_deltas_fixed": said.deltas,
    }


def run_fpn(network: nn.Module, inputs: Tensors) -> Tensors:
    assert isinstance(network, FPN)
    maps = network.maps(network.input.normalised(inputs["image"]))
    outputs: dict[str, Tensor] = {}
    for level, boxes in network.proposal_generator.anchors(maps).items():
        logits, deltas = network.proposal_generator.rpn_head(maps[level])
        outputs |= {f"map_{level}": maps[level], f"anchors_{level}": boxes}
        outputs |= {f"rpn_logits_{level}": logits, f"rpn_deltas_{level}": deltas}
    bins = network.bins(maps, [inputs["fixed_boxes"]])
    said = network.describe(maps, [inputs["fixed_boxes"]])
    return {
        **outputs,
        "roi_align_fixed": bins,
        "fc6_fixed": network.roi_heads.box_head.fc1(bins.flatten(1)).relu(),
        "features_fixed": said.features,
        "cls_logits_fixed": said.logits,
        "box_deltas_fixed": said.deltas,
    }


def run_bottomup(network: nn.Module, inputs: Tensors) -> Tensors:
    """Under both ports' names."""
    assert isinstance(network, BottomUp)
    x = network.input.normalised(inputs["image"])
    maps = network.maps(x)
    logits, deltas = network.proposal_generator.rpn_head(maps["res4"])
    [scored] = network.proposal_generator.score(maps)
    said = network.describe(maps, [inputs["fixed_boxes"]])
    bins = roi.max_pool(maps["res4"], [inputs["fixed_boxes"]], 1 / 16, 14)
    return {
        "stem": network.backbone.stem(x),
        "map_res4": maps["res4"],
        "rpn_logits": logits,
        "rpn_deltas": deltas,
        "rpn_objectness": scored[0].logits.sigmoid()[None],
        "anchors": network.proposal_generator.anchors(maps)["res4"],
        "roi_pool_fixed": bins,
        "res5_fixed": network.roi_heads.res5(bins),
        "features_fixed": said.features,
        "cls_logits_fixed": said.logits,
        "attr_logits_fixed": said.attributes,
        "attr_scores_fixed": said.attributes.softmax(1),
        "box_deltas_fixed": said.deltas,
    }


def run_blocks(_network: nn.Module, inputs: Tensors) -> Tensors:
    """The parts that detectors are made of, alone."""
    rois, boxes, deltas = inputs["rois"], inputs["boxes"], inputs["deltas"].clone()
    deltas[0, 2] = 30
    # the rows' first number is their picture, and all are of the first
    on_first = [rois[:, 1:]]
    sizes = [tuple(size) for size in inputs["resize_in"].tolist()]
    picture = inputs["image"][0].flip(0).permute(1, 2, 0).contiguous().numpy()
    return {
        "deltas": deltas,
        "roi_align_aligned_sr0": roi.align(inputs["map"], on_first, 1 / 16, 7),
        "roi_align_legacy_sr0": roi.align(inputs["map"], on_first, 1 / 16, 7, shift=False),
        "roi_align_aligned_sr2": roi.align(inputs["map"], on_first, 1 / 16, 7, samples=2),
        "roi_pool_7": roi.max_pool(inputs["map"], on_first, 1 / 16, 7),
        "decoded_w1": moved(boxes, deltas, (1.0, 1.0, 1.0, 1.0)),
        "decoded_w10": moved(boxes, deltas, (10.0, 10.0, 5.0, 5.0)),
        "decoded_plus1_w1": moved(boxes, deltas, (1.0, 1.0, 1.0, 1.0), extra=1),
        "anchors_coco_c4": anchors(2, 3, 16, cell_anchors((32, 64, 128, 256, 512), RATIOS), 0.5),
        "anchors_bottomup_d2": anchors(2, 3, 16, cell_anchors((64, 128, 256, 512), RATIOS), 0.5),
        "resize_800_1333": torch.tensor([resized_size(h, w, 800, 1333) for h, w in sizes]),
        "resize_600_1000": torch.tensor([resized_size(h, w, 600, 1000) for h, w in sizes]),
        "resize_image_200": torch.from_numpy(np.array(resized(picture, 200, 285))).permute(2, 0, 1),
    }
