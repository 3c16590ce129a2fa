"""The detectors as the golden manifest names their outputs, on the boxes that it keeps."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torchvision.ops import roi_align, roi_pool

from extractors.detection.bottom_up import BottomUp
from extractors.detection.faster_rcnn import C4, FPN
from tests.extractors.golden.golden import Case

Tensors = Mapping[str, Tensor]


def run_c4(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    assert isinstance(network, C4)
    maps = network.compute_maps(network.input.normalise(inputs["image"]))
    logits, deltas = network.proposal_generator.rpn_head(maps["res4"])
    bins = roi_align(maps["res4"], [inputs["fixed_boxes"]], 14, 1 / 16, aligned=True)
    said = network.predict(network.embed(network.pool(maps, [inputs["fixed_boxes"]])))
    return {
        "map_res4": maps["res4"],
        "rpn_logits_res4": logits,
        "rpn_deltas_res4": deltas,
        "anchors_res4": network.proposal_generator.make_anchors(maps)["res4"],
        "roi_align_fixed": bins,
        "res5_fixed": network.roi_heads.res5(bins),
        "features_fixed": said.features,
        "cls_logits_fixed": said.logits,
        "box_deltas_fixed": said.deltas,
    }


def run_fpn(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    assert isinstance(network, FPN)
    maps = network.compute_maps(network.input.normalise(inputs["image"]))
    outputs: dict[str, Tensor] = {}
    for level, boxes in network.proposal_generator.make_anchors(maps).items():
        logits, deltas = network.proposal_generator.rpn_head(maps[level])
        outputs |= {f"map_{level}": maps[level], f"anchors_{level}": boxes}
        outputs |= {f"rpn_logits_{level}": logits, f"rpn_deltas_{level}": deltas}
    bins = network.pool(maps, [inputs["fixed_boxes"]])
    said = network.predict(network.embed(network.pool(maps, [inputs["fixed_boxes"]])))
    return {
        **outputs,
        "roi_align_fixed": bins,
        "fc6_fixed": network.roi_heads.box_head.fc1(bins.flatten(1)).relu(),
        "features_fixed": said.features,
        "cls_logits_fixed": said.logits,
        "box_deltas_fixed": said.deltas,
    }


def run_bottomup(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    """Under both ports' names."""
    assert isinstance(network, BottomUp)
    x = network.input.normalise(inputs["image"])
    maps = network.compute_maps(x)
    logits, deltas = network.proposal_generator.rpn_head(maps["res4"])
    generator = network.proposal_generator
    [scored] = generator.score_anchors(generator.run_head(maps))
    said = network.predict(network.embed(network.pool(maps, [inputs["fixed_boxes"]])))
    bins = roi_pool(maps["res4"], [inputs["fixed_boxes"]], 14, 1 / 16)
    return {
        "stem": network.backbone.stem(x),
        "map_res4": maps["res4"],
        "rpn_logits": logits,
        "rpn_deltas": deltas,
        "rpn_objectness": scored[0].logits.sigmoid()[None],
        "anchors": network.proposal_generator.make_anchors(maps)["res4"],
        "roi_pool_fixed": bins,
        "res5_fixed": network.roi_heads.res5(bins),
        "features_fixed": said.features,
        "cls_logits_fixed": said.logits,
        "attr_logits_fixed": said.attributes,
        "attr_scores_fixed": said.attributes.softmax(1),
        "box_deltas_fixed": said.deltas,
    }
