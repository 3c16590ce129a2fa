"""Cases about inputs, boxes and pooling alone, under no weights, as the golden manifest names their outputs.

Sizes are in the names of outputs (``resized_256``, ``resize_800_1333``) or in the manifest's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torchvision.ops import roi_align, roi_pool

from extractors.detection.boxes import apply_deltas, make_cell_anchors, place_anchors
from extractors.detection.proposals import RATIOS
from extractors.features import fit_between
from extractors.networks import i3d, raft
from extractors.preprocessing.images import crop_middle, resize, shrink_or_enlarge
from tests.extractors.golden.golden import Case

Tensors = Mapping[str, Tensor]
COCO_SIZES, GENOME_SIZES = (32, 64, 128, 256, 512), (64, 128, 256, 512)


def run_i3d_preprocessing(_network: nn.Module, inputs: Tensors, case: Case) -> Tensors:
    """Of one picture, of three steps of flow, and of what RAFT pads."""
    [shorter] = case.numbers("resized_")
    [side] = case.numbers("crop_")
    pixels = shrink_or_enlarge(inputs["image"].permute(0, 2, 3, 1), shorter)
    cropped = crop_middle(pixels, side)[0].permute(2, 0, 1).float()
    pairs = crop_middle(inputs["flow"], side, (3, 4))
    values = inputs["flow_values"]
    height, width = inputs["padded"].shape[2:]
    return {
        f"resized_{shorter}": pixels[0].permute(2, 0, 1),
        f"crop_{side}": cropped,
        "rgb_input": i3d.scale_pixels(cropped),
        "flow_uint8": raft.quantise_flow(pairs)[0].transpose(0, 1),
        "flow_input": i3d.scale_pixels(raft.quantise_flow(pairs)),
        "flow_values_uint8": raft.quantise_flow(values),
        "flow_values_input": i3d.scale_pixels(raft.quantise_flow(values)),
        "raft_padded": raft.pad_edges(inputs["padded"], raft.compute_padding(height, width, raft.MULTIPLE)),
    }


def run_blocks(_network: nn.Module, inputs: Tensors, case: Case) -> Tensors:
    """The parts that detectors are made of."""
    deltas = inputs["deltas"].clone()
    deltas[0, 2] = 30
    boxes = _boxes(inputs["boxes"], deltas, case)
    return {"deltas": deltas, **_pooled(inputs, case), **boxes, **_sizes(inputs, case)}


def _pooled(inputs: Tensors, case: Case) -> Tensors:
    scale = 1 / int(case.said(r"scale 1/(\d+)", "16"))
    bins = int(case.said(r"output (\d+)x", "7"))
    rois = inputs["rois"]  # a row's first number is its picture
    boxes = [rois[rois[:, 0] == picture, 1:] for picture in range(len(inputs["map"]))]
    align = partial(roi_align, inputs["map"], boxes, bins, scale)
    outputs = {
        "roi_align_aligned_sr0": align(aligned=True),
        "roi_align_legacy_sr0": align(aligned=False),
        "roi_align_aligned_sr2": align(sampling_ratio=2, aligned=True),
        "roi_align_legacy_sr2": align(sampling_ratio=2, aligned=False),
        f"roi_pool_{bins}": roi_pool(inputs["map"], boxes, bins, scale),
    }
    as_given = rois[:, 0].argsort(stable=True).argsort()
    return {name: output[as_given] for name, output in outputs.items()}


def _boxes(boxes: Tensor, deltas: Tensor, case: Case) -> Tensors:
    rows, columns = int(case.said(r"(\d+)x\d+ map", "2")), int(case.said(r"\d+x(\d+) map", "3"))
    coco, visual_genome = (make_cell_anchors(sizes, RATIOS) for sizes in (COCO_SIZES, GENOME_SIZES))
    return {
        "decoded_w1": apply_deltas(boxes, deltas, (1.0, 1.0, 1.0, 1.0)),
        "decoded_w10": apply_deltas(boxes, deltas, (10.0, 10.0, 5.0, 5.0)),
        "decoded_plus1_w1": apply_deltas(boxes, deltas, (1.0, 1.0, 1.0, 1.0), extra=1),
        "decoded_plus1_w10": apply_deltas(boxes, deltas, (10.0, 10.0, 5.0, 5.0), extra=1),
        "anchors_coco_c4": place_anchors(rows, columns, 16, coco, 0.5),
        "anchors_bottomup_d2": place_anchors(rows, columns, 16, visual_genome, 0.5),
    }


def _sizes(inputs: Tensors, case: Case) -> Tensors:
    sizes = [tuple(size) for size in inputs["resize_in"].tolist()]
    picture = inputs["image"][0].flip(0).permute(1, 2, 0)[None]
    outputs: dict[str, Tensor] = {}
    for name, output in case.entry["outputs"].items():
        if name.startswith("resize_image_"):
            height, width = output["shape"][1:]
            outputs[name] = resize(picture, height, width)[0].permute(2, 0, 1)
        elif name.startswith("resize_") and name != "resize_in":
            shortest, longest = (int(edge) for edge in name.split("_")[1:])
            outputs[name] = torch.tensor([fit_between(h, w, shortest, longest) for h, w in sizes])
    return outputs
