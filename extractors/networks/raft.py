"""Computes optical flow by RAFT, and puts it into the form in which I3D takes it.

Teed and Deng, ECCV 2020 (arXiv:2003.12039), as torchvision has it; its checkpoints are read, and the
original's (princeton-vl/RAFT) by their own names. Flow is in pixels, (dx, dy), of the first picture.
"""

import re
from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extractors.pretrained.parameters import Checkpoint, load_strict, unwrap

Size = Literal["large", "small"]
#: Pixels a frame beyond which I3D's flow is cut.
BOUND = 20.0
#: The correlation pyramid of torchvision's network wants at least 16 cells of 8 pixels.
MULTIPLE, SMALLEST = 8, 128


class Raft(nn.Module):
    """Computes the flow between pictures.

    Pictures are float (N, 3, H, W), RGB 0..255; any size, for they are padded and the flow (N, 2, H, W) is
    cut again. updates: refinements, 20 as the original's evaluation and video_features have it; 12 is
    torchvision's own.
    """

    def __init__(self, size: Size = "large", updates: int = 20) -> None:
        from torchvision.models import optical_flow  # seconds, which I3D of frames does not need

        super().__init__()
        self.network = {"large": optical_flow.raft_large, "small": optical_flow.raft_small}[size](
            weights=None, progress=False
        )
        self.updates = updates

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        left, _, top, _ = padding = compute_padding(*first.shape[2:])
        flow = self.refine(*(pad_edges(2 * (x / 255) - 1, padding) for x in (first, second)))[-1]
        return flow[:, :, top : top + first.shape[2], left : left + first.shape[3]]

    def refine(self, first: Tensor, second: Tensor) -> list[Tensor]:
        """Computes the flow after each update, pictures in [-1, 1] with sides of multiples of 8 from 128."""
        flows: list[Tensor] = self.network(first, second, num_flow_updates=self.updates)
        return flows


def compute_padding(height: int, width: int, smallest: int = SMALLEST) -> tuple[int, int, int, int]:
    """Computes how far pictures are padded: to a multiple of 8 pixels, and to a least side.

    Args:
        height: in pixels.
        width: in pixels.
        smallest: side that the network takes.

    Returns:
        Pixels left, right, above and below; the odd one is after.
    """
    rows, columns = (max(-(-side // MULTIPLE) * MULTIPLE, smallest) - side for side in (height, width))
    return columns // 2, columns - columns // 2, rows // 2, rows - rows // 2


def pad_edges(x: Tensor, padding: tuple[int, int, int, int]) -> Tensor:
    """Repeats the edges of (N, C, H, W) outwards."""
    return F.pad(x, padding, mode="replicate") if any(padding) else x


def quantise_flow(flow: Tensor) -> Tensor:
    """Quantises flow in pixels as I3D was trained on it: 0..256 as floats, 128 for none.

    Cut at ±20 and rounded to even as the public code has it, without a cast to bytes: +20 gives 256.
    """
    return torch.round(128 + 255 / (2 * BOUND) * flow.clamp(-BOUND, BOUND))


def from_checkpoint(checkpoint: Checkpoint, updates: int = 20) -> Raft:
    """Loads RAFT, large or small, with torchvision's or the original's weights. Raises WrongCheckpoint."""
    parameters = unwrap(checkpoint)
    if any(name.startswith("fnet.") for name in parameters):
        parameters = rename_parameters(parameters)
    small = not any(name.startswith("mask_predictor.") for name in parameters)
    raft = Raft("small" if small else "large", updates)
    load_strict(raft.network, parameters)
    return raft.eval()


#: From the original's names to torchvision's, in this order.
RENAMED: Mapping[str, str] = {
    r"^fnet\.": "feature_encoder.",
    r"^cnet\.": "context_encoder.",
    r"^(\w+_encoder)\.conv1\.": r"\1.convnormrelu.0.",
    r"^(\w+_encoder)\.norm1\.": r"\1.convnormrelu.1.",
    r"^(\w+_encoder)\.conv2\.": r"\1.conv.",
    r"^(\w+_encoder\.layer\d\.\d)\.conv(\d)\.": r"\1.convnormrelu\2.0.",
    r"^(\w+_encoder\.layer\d\.\d)\.norm(\d)\.": r"\1.convnormrelu\2.1.",
    r"^update_block\.mask\.0\.": "mask_predictor.convrelu.0.",
    r"^update_block\.mask\.2\.": "mask_predictor.conv.",
    r"^update_block\.encoder\.conv([cf])(\d)\.": r"update_block.motion_encoder.conv\1\2.0.",
    r"^update_block\.encoder\.conv\.": "update_block.motion_encoder.conv.0.",
    r"\.convc(\d)\.0\.": r".convcorr\1.0.",
    r"\.convf(\d)\.0\.": r".convflow\1.0.",
    r"^update_block\.gru\.conv([zrq])(\d?)\.": r"update_block.recurrent_block.convgru\2.conv\1.",
    r"\.convgru\.": ".convgru1.",
}


def rename_parameters(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Renames the original's parameters to torchvision's names.

    A shortcut's norm is in the file twice, as ``downsample.1`` and after the block's other norms; the
    first is kept, for torch loads it last.
    """
    doubles = {
        re.sub(r"downsample\.1\.", f"norm{norm}.", name)
        for name in checkpoint
        if "downsample.1." in name
        for norm in (3, 4)
    }
    # a small block has norm1 to norm3 of its own and norm4 for the shortcut
    fourth = any(".norm4." in name for name in checkpoint)
    doubles = {name for name in doubles if (".norm4." in name) == fourth}
    renamed = {}
    for name, value in checkpoint.items():
        if name not in doubles:
            for pattern, new in RENAMED.items():
                name = re.sub(pattern, new, name)
            renamed[name] = value
    return renamed
