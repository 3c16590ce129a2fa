"""I3D's published checkpoints by their own key names (piergiaj's, hassony2's, flax's), and the packaged one.

All three hold the same network; the names differ, and flax keeps kernels as (T, H, W, in, out) and, as
DeepMind's original does, leaves out the batch norms' scales, which are 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from extractors.checkpoint import Checkpoint, WrongCheckpoint, bare, classes, load
from extractors.i3d import I3D
from extractors.weights import obtain

#: piergiaj: Mixed_3b.b1a is the first unit of branch 1.
PIERGIAJ = {"b0": "0.0", "b1a": "1.0", "b1b": "1.1", "b2a": "2.0", "b2b": "2.1", "b3b": "3.1"}


def pretrained() -> I3D:
    """The network of RGB with the packaged weights, in eval mode. Raises WeightsError."""
    return obtain("i3d_rgb", "published", from_checkpoint, I3D)[0]


def from_checkpoint(checkpoint: Checkpoint) -> I3D:
    """The network that the checkpoint is of, RGB or flow, in eval mode. Raises WrongCheckpoint."""
    parameters = our_names(bare(checkpoint))
    stem = parameters.get("Conv3d_1a_7x7.conv.weight")
    if stem is None:
        raise WrongCheckpoint("Not a checkpoint of I3D: it has no Conv3d_1a_7x7.")
    network = I3D(channels=stem.shape[1], classes=classes(parameters, "logits.weight"))
    return load(network, parameters)


def our_names(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The parameters under the names of extractors/i3d.py; names that are none of I3D's stay as they are."""
    if any("/" in name for name in checkpoint):
        return _from_flax(checkpoint)
    rename = _from_hassony2 if any(".batch3d." in name for name in checkpoint) else _from_piergiaj
    return {rename(name): value for name, value in checkpoint.items()}


def _from_piergiaj(name: str) -> str:
    """``Mixed_3b.b1a.conv3d.weight``, ``Mixed_3b.b1a.bn.bias``, ``logits.conv3d.weight``."""
    if name.startswith("logits.conv3d."):
        return name.replace("conv3d.", "")
    name = name.replace(".conv3d.", ".conv.").replace(".bn.", ".norm.")
    return re.sub(r"\.(b\d[ab]?)\.", lambda unit: f".branch{PIERGIAJ.get(unit[1], unit[1])}.", name)


def _from_hassony2(name: str) -> str:
    """``mixed_3b.branch_1.0.conv3d.weight``, ``mixed_3b.branch_0.batch3d.bias``, ``conv3d_0c_1x1.…``."""
    if name.startswith("conv3d_0c_1x1.conv3d."):
        return name.replace("conv3d_0c_1x1.conv3d.", "logits.")
    name = name[:1].upper() + name[1:]
    name = name.replace(".conv3d.", ".conv.").replace(".batch3d.", ".norm.")
    return name.replace(".branch_0.", ".branch0.0.").replace(".branch_", ".branch")


def _from_flax(checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``params/Mixed_3b/Branch_1/Conv3d_0b_3x3/Conv_0/kernel``, ``batch_stats/…/BatchNorm_0/mean``."""
    renamed = {}
    for name, value in checkpoint.items():
        kernel = name.endswith("/kernel")
        # running means keep the axes they were taken over, each of length 1
        renamed[_flax_name(name)] = value.permute(4, 3, 0, 1, 2).contiguous() if kernel else value.flatten()
    for name in [name for name in renamed if name.endswith(".norm.bias")]:
        renamed.setdefault(name.replace(".bias", ".weight"), torch.ones_like(renamed[name]))
    return renamed


FLAX_LEAVES = {
    "Conv_0/kernel": "conv.weight",
    "BatchNorm_0/scale": "norm.weight",
    "BatchNorm_0/bias": "norm.bias",
    "BatchNorm_0/mean": "norm.running_mean",
    "BatchNorm_0/var": "norm.running_var",
}


def _flax_name(name: str) -> str:
    path = name.split("/", 1)[1]  # after params or batch_stats
    if path.startswith("Logits/"):
        return "logits." + {"kernel": "weight", "bias": "bias"}[path.rsplit("/", 1)[1]]
    unit, leaf = "/".join(path.split("/")[:-2]), "/".join(path.split("/")[-2:])
    mixed = re.fullmatch(r"(Mixed_\w+)/Branch_(\d)/Conv3d_0[ab]_(\d)x\d", unit)
    if mixed is None:
        return f"{unit}.{FLAX_LEAVES[leaf]}"
    # by the kernel, for the letter is not to be trusted: Mixed_5b's branch 2 has 0a_1x1 and 0a_3x3
    second = mixed[3] == "3" or mixed[2] == "3"
    return f"{mixed[1]}.branch{mixed[2]}.{int(second)}.{FLAX_LEAVES[leaf]}"
