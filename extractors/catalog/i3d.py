"""Extracts features of a video's windows by I3D: ``i3d_rgb``, ``i3d_flow`` on RAFT's flow, and ``i3d_brief``.

Windows of 64 frames at 25 a second, one behind the other, as the public extractors have them; any other
length from one frame upwards is taken. The map keeps two steps of time, the mean of a window's first half
and of its second: of 16 frames that is the very map of two steps that STaTS takes, 7×7×2048.

``i3d_brief`` is for captions that may cost a second: a few windows of sixteen frames spread over the video,
time padded by repeating frames (``I3D.repeat_frames``), so that a picture is a clip too.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from extractors.engines.engine import UnbuiltModule
from extractors.extractor import ExtractorOptions
from extractors.features import View
from extractors.networks import i3d
from extractors.networks import raft as optical_flow
from extractors.networks.i3d import CHANNELS, I3D, scale_pixels
from extractors.networks.labels import KINETICS_400
from extractors.preprocessing.images import ResizeAndCrop, crop_middle
from extractors.pretrained.load import WeightsChoice, digest_weights, load_pretrained
from extractors.pretrained.parameters import randomize
from extractors.windowing.network_extractor import NetworkExtractor, NetworkPlan, flatten_cells, lengthen
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows

SHORT_SIDE, CROP = 256, 224
#: Below it the map has but one step, and the head wants two.
LEAST = 9
WINDOWS = Windows(stack_size=64, step_size=64, extraction_fps=25.0)
HALVES = "map: means of the window's two halves, side by side"
QUANTISED = (
    f"cut at 20 pixels, middle {CROP}x{CROP}, x before y, "
    f"q = round(128 + 255 / 40 flow), 2 q / 255 - 1; {HALVES}"
)
OUTPUTS = ("", "_grid", "_logits")

RGB = NetworkPlan(
    name="i3d_rgb",
    network="i3d-inception-v1 rgb",
    outputs=OUTPUTS,
    width=CHANNELS,
    framing=ResizeAndCrop(SHORT_SIDE, CROP),
    values=f"RGB, 2 x / 255 - 1; {HALVES}",
    windows=WINDOWS,
    least=LEAST,
)
FLOW = replace(
    RGB,
    name="i3d_flow",
    network="i3d-inception-v1 flow",
    framing=ResizeAndCrop(SHORT_SIDE, None),
    windows=replace(WINDOWS, ahead=1),
)
BRIEF_FRAMES = 16
BRIEF = replace(
    RGB,
    name="i3d_brief",
    values="RGB, 2 x / 255 - 1; time padded by repeated frames; map: mean over its steps",
    windows=Windows(stack_size=BRIEF_FRAMES, step_size=BRIEF_FRAMES, extraction_fps=25.0, most=3),
    least=1,
)


class I3DOutputs(nn.Module):
    """Runs I3D on clips (N, C, T, 224, 224).

    Returns features (N, 1024), map (N, 49, 2048), logits (N, 400).
    """

    def __init__(self, network: I3D) -> None:
        super().__init__()
        self.network = network

    def forward(self, clips: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grid = self.network(clips)
        head = self.network.run_head(grid)
        return head.features, average_halves(grid), head.logits


class BriefI3DFromBytes(nn.Module):
    """Runs I3D, frames repeated in time, on stacks of bytes (N, S, 224, 224, 3).

    Returns features (N, 1024), map (N, 49, 1024), logits (N, 400).
    """

    def __init__(self, network: I3D) -> None:
        super().__init__()
        self.network = network.repeat_frames()

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grid = self.network(scale_pixels(stacks.permute(0, 4, 1, 2, 3)))
        head = self.network.run_head(grid)
        return head.features, flatten_cells(grid), head.logits


class I3DFromBytes(I3DOutputs):
    """Runs I3D on stacks of bytes (N, S, 224, 224, 3)."""

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return super().forward(scale_pixels(stacks.permute(0, 4, 1, 2, 3)))


def average_halves(grid: Tensor) -> Tensor:
    """Averages each half of a map (N, C, T, H, W), as cells (N, H·W, 2·C); a middle step is in both."""
    steps = grid.shape[2]
    first, second = grid[:, :, : (steps + 1) // 2], grid[:, :, steps // 2 :]
    return torch.cat([flatten_cells(first), flatten_cells(second)], 2)


class I3DFlow(NetworkExtractor):
    """Runs I3D on the flow between consecutive frames of a window and the one behind it.

    flow: between pictures float (N, 3, H, W) of 0..255, in pixels (N, 2, H, W). The frames are flowed whole,
    then the middle is cut out of the flow, as the public extractors do.
    """

    def __init__(
        self,
        plan: NetworkPlan,
        flow: nn.Module,
        network: nn.Module,
        classes: int,
        sha256: str,
        options: ExtractorOptions,
    ) -> None:
        super().__init__(plan, network, classes, sha256, options)
        self.flow = flow.to(self.device)
        self.pairs = 1 if self.device.type == "cpu" else 8

    def view(self, height: int, width: int) -> View:
        return RGB.framing.view(height, width)

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        flow = torch.stack([self._flow(stack) for stack in stacks])
        quantised = optical_flow.quantise_flow(crop_middle(flow, CROP, (3, 4)))
        return self.rows(self.engine.outputs(lengthen(quantised, self.plan.least)))

    def example(self) -> Tensor:
        return torch.full((2, max(self.windows.stack_size, LEAST), 2, CROP, CROP), 128.0)

    @torch.inference_mode()
    def _flow(self, stack: Tensor) -> Tensor:
        """Computes the flow (S, 2, h, w) of S + 1 frames uint8 (S + 1, h, w, 3)."""
        pictures = stack.permute(0, 3, 1, 2)
        pairs = zip(*(torch.split(part, self.pairs) for part in (pictures[:-1], pictures[1:])), strict=True)
        return torch.cat([self.flow(a.float(), b.float()) for a, b in pairs])


class I3DFromFlow(I3DOutputs):
    """Runs I3D on quantised flow, 0..256 of 128 for none, (N, T, 2, 224, 224)."""

    def forward(self, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return super().forward(scale_pixels(flow.transpose(1, 2)))


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """Makes the extractor ``i3d_rgb``, ``i3d_brief`` or ``i3d_flow``. Raises WeightsError."""
    if name == BRIEF.name:
        sha256 = digest_weights(RGB.name, options.weights)
        module = UnbuiltModule(lambda: BriefI3DFromBytes(load_rgb(options.weights)[0]))
        return NetworkExtractor(BRIEF, module, len(KINETICS_400), sha256, options)
    if name == RGB.name:
        network, sha256 = load_rgb(options.weights)
        return NetworkExtractor(RGB, I3DFromBytes(network), len(network.logits.weight), sha256, options)
    raft, raft_sha256 = load_pretrained(
        "raft_large", options.weights, optical_flow.from_checkpoint, optical_flow.Raft
    )
    network, sha256 = load_pretrained(
        name, options.weights, i3d.from_checkpoint, lambda: randomize(I3D(channels=2))
    )
    made_by = f"RAFT flow (weights {raft_sha256[:16]}), {raft.updates} updates"
    plan = replace(FLOW, values=f"{made_by}; {QUANTISED}")
    return I3DFlow(plan, raft, I3DFromFlow(network), len(network.logits.weight), sha256, options)


def load_rgb(choice: WeightsChoice) -> tuple[I3D, str]:
    """Loads I3D of frames, and the sha256 of its weights. Raises WeightsError."""
    return load_pretrained(RGB.name, choice, i3d.from_checkpoint, lambda: randomize(I3D()))
