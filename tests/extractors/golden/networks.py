"""Our networks by the names that the golden manifest gives to the public ones: how each is filled and run.

A network is filled with the public checkpoint's names through the same function that users' files go
through, and its inner maps are watched where the manifest wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from extractors.detection import bottom_up, faster_rcnn
from extractors.networks import c3d, csn, i3d, imagenet, raft, resnet3d, slow_resnet
from extractors.networks.c3d import C3D
from extractors.networks.i3d import I3D
from extractors.networks.imagenet import InceptionV4
from extractors.networks.raft import Raft
from tests.extractors.golden.golden import Case, Verdict
from tests.extractors.golden.preprocessing import run_blocks, run_i3d_preprocessing
from tests.extractors.golden.regions import run_bottomup, run_c4, run_fpn
from tests.extractors.golden.sound import BothFiles, run_frontend, run_vggish

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class GoldenNetwork:
    """One of our networks.

    build: the network, or whatever module stands for it, from the weights by their public names.
    run: its outputs by the manifest's names, from the inputs and from what is ``given``; more is fine.
    given: outputs of a case that are kept because others are made from them: boxes, for one.
    """

    build: Callable[[Tensors], nn.Module]
    run: Callable[[nn.Module, Tensors, Case], Tensors]
    given: frozenset[str] = frozenset()


class NoNetwork(AssertionError):
    """A case whose public network has none of ours in NETWORKS."""


def network_of(case: Case) -> GoldenNetwork:
    if case.network not in NETWORKS:
        raise NoNetwork(f"{case.name} needs {case.network!r}, which is not in NETWORKS")
    return NETWORKS[case.network]


def inputs_of(case: Case) -> dict[str, Tensor]:
    """Made by the rule, and those that the case keeps."""
    kept = {
        name: torch.from_numpy(case.stored[name]) for name in network_of(case).given if name in case.stored
    }
    return {**case.inputs(), **kept}


def judge(case: Case, network: nn.Module, inputs: Tensors) -> list[Verdict]:
    """Every output that the case compares; one that was not made is an error."""
    golden = network_of(case)
    with torch.inference_mode():
        outputs = golden.run(network, inputs, case)
    compared = [output for output in case.compared if output not in golden.given]
    missing = [output for output in compared if output not in outputs]
    assert compared, f"{case.name} compares nothing"
    assert not missing, f"{case.name} is not given {', '.join(missing)}"
    return [case.judge(output, outputs[output]) for output in compared]


@contextmanager
def watched(network: nn.Module, paths: Mapping[str, str]) -> Iterator[dict[str, Tensor]]:
    """What the modules at these paths give while the network runs, by the names of the paths."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda _module, _inputs, output: seen.update({name: output})

    handles = [network.get_submodule(path).register_forward_hook(keep(name)) for name, path in paths.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def run_i3d(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    """Under piergiaj's names and hassony2's; no head where the map is smaller than its pool."""
    assert isinstance(network, I3D)
    points = [name for name, _ in network.named_children() if name != "logits"]
    with watched(network, {point: point for point in points}) as maps:
        grid = network(inputs["clip"])
    outputs = {**maps, **{name[0].lower() + name[1:]: value for name, value in maps.items()}}
    if grid.shape[2] < 2 or min(grid.shape[3:]) < 7:
        return outputs
    head = network.run_head(grid)
    return {
        **outputs,
        "pooled": head.pooled,
        "avg_pool": head.pooled,
        "features_1024": head.features,
        "logits_per_step": head.logits_per_step,
        "logits": head.logits,
        "softmax": head.logits.softmax(1),
    }


def run_resnet(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    """Of pictures or of clips; the stem is what its pool gives."""
    paths = {"stem": "stem" if hasattr(network, "stem") else "maxpool"}
    paths |= {f"layer{stage}": f"layer{stage}" for stage in range(1, 5)}
    with watched(network, paths) as maps:
        features = network(inputs["clip" if "clip" in inputs else "image"])
    return {**maps, "grid": features.grid, "pool": features.pooled, "logits": features.logits}


def run_slow(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    blocks = [name for name, _ in network.get_submodule("blocks").named_children()][:-1]
    with watched(network, {f"blocks_{name}": f"blocks.{name}" for name in blocks}) as maps:
        features = network(inputs["clip"])
    return {
        **maps,
        "head_pool": features.head_pool,
        "feature_2048": features.pooled,
        "logits": features.logits,
    }


C3D_CONVOLUTIONS = ("conv1", "conv2", "conv3a", "conv3b", "conv4a", "conv4b", "conv5a", "conv5b")


def run_c3d(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    assert isinstance(network, C3D)
    with watched(network, {name: name for name in C3D_CONVOLUTIONS}) as maps:
        features = network(inputs["clip"].float())
    return {
        **{name: value.relu() for name, value in maps.items()},
        **vars(features),
        "probs": features.logits.softmax(1),
    }


def run_inception_v4(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    assert isinstance(network, InceptionV4)
    paths = {f"features_{index}": f"network.features.{index}" for index in range(22)}
    with watched(network, paths) as maps:
        features = network(inputs["image"])
    return {**maps, "pool": features.pooled, "logits": features.logits}


def run_raft(network: nn.Module, inputs: Tensors, case: Case) -> Tensors:
    """Of pictures in [-1, 1] with sides of multiples of 8, every refinement; of bytes, the last."""
    assert isinstance(network, Raft)
    network.updates = int(case.said(r"num_flow_updates=(\d+)", case.said(r"(\d+) updates", "20")))
    first, second = inputs["image1"], inputs["image2"]
    if not first.is_floating_point():
        return {"flow": network(first.float(), second.float())}
    flows = network.refine(first, second)
    return {"flow_first": flows[0], "flow_last": flows[-1]}


def no_network(_: Tensors) -> nn.Module:
    """Of cases about inputs alone."""
    return nn.Identity()


_I3D = GoldenNetwork(i3d.from_checkpoint, run_i3d)
_RAFT = GoldenNetwork(raft.from_checkpoint, run_raft)
_BOXES = frozenset({"fixed_boxes"})
_BOTTOM_UP = GoldenNetwork(bottom_up.from_checkpoint, run_bottomup, _BOXES)

NETWORKS: Mapping[str, GoldenNetwork] = {
    "I3D Inception-v1 rgb": _I3D,
    "I3D Inception-v1 flow": _I3D,
    "I3D Inception-v1, odd sizes (TF SAME padding)": _I3D,
    "I3D preprocessing (v-iashin/video_features)": GoldenNetwork(
        no_network, run_i3d_preprocessing, frozenset({"flow_values"})
    ),
    **{
        f"torchvision {name}": GoldenNetwork(partial(imagenet.load_resnet, name), run_resnet)
        for name in imagenet.LAYOUTS
    },
    **{
        f"3D-resnet3d{depth}": GoldenNetwork(partial(resnet3d.from_checkpoint, f"resnet{depth}"), run_resnet)
        for depth in (18, 34, 50, 101, 152)
    },
    "3D-ResNeXt-101 (32 groups)": GoldenNetwork(partial(resnet3d.from_checkpoint, "resnext101"), run_resnet),
    "ir-CSN-152": GoldenNetwork(csn.from_checkpoint, run_resnet),
    **{
        f"pytorchvideo {name}": GoldenNetwork(partial(slow_resnet.from_checkpoint, name), run_slow)
        for name in slow_resnet.LAYOUTS
    },
    "C3D (Sports-1M layout)": GoldenNetwork(c3d.from_checkpoint, run_c3d),
    "Inception-V4": GoldenNetwork(imagenet.load_inception_v4, run_inception_v4),
    "RAFT (torchvision raft_large)": _RAFT,
    "RAFT (torchvision raft_small)": _RAFT,
    "RAFT (original key names, as in video_features)": _RAFT,
    "VGGish": GoldenNetwork(BothFiles, run_vggish),
    "VGGish log-mel front end after resampling": GoldenNetwork(no_network, run_frontend),
    "detectron2 Faster R-CNN r101_c4": GoldenNetwork(faster_rcnn.from_checkpoint, run_c4, _BOXES),
    "detectron2 Faster R-CNN r101_fpn": GoldenNetwork(faster_rcnn.from_checkpoint, run_fpn, _BOXES),
    "bottom-up attention (Caffe-style R101-C4, Visual Genome, attributes)": _BOTTOM_UP,
    "bottom-up attention, Caffe weights, other key names": _BOTTOM_UP,
    "detection building blocks (detectron2, torchvision ops)": GoldenNetwork(
        no_network, run_blocks, frozenset({"rois", "boxes", "resize_in"})
    ),
}
