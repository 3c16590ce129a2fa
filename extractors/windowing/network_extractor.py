"""Runs one network as an extractor: frames cut to size, their windows through an engine, outputs as streams.

The families' files in extractors/catalog (i3d.py, imagenet.py, clip_networks.py, pytorchvideo.py) say which
network, which cut and which outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from extractors.engines.engine import NetworkEngine, Precision, UnbuiltModule
from extractors.engines.engine_choice import choose_engine
from extractors.extractor import ExtractorOptions
from extractors.features import Resizing, StreamSpec, View
from extractors.networks.labels import find_labels
from extractors.preprocessing.images import ResizeAndCrop
from extractors.windowing.window_extractor import WindowExtractor, describe_windows
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows

#: The largest number of float16; beyond it there is only infinity.
LARGEST = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class NetworkPlan:
    """Describes one extractor of a network, all but its weights."""

    name: str
    network: str  #: for the name tag
    #: The streams, in the order in which the module gives them, the map and the logits by their endings
    #: "_grid" and "_logits".
    outputs: tuple[str, ...]
    width: int  #: channels of the first
    framing: ResizeAndCrop
    values: str  #: what is done to the bytes of the cut frames, in words
    windows: Windows
    least: int = 1  #: frames that the network needs in one window
    most: int | None = None  #: frames that it can take in one window, None for any number
    batch: tuple[int, int] = (1, 8)  #: windows a forward pass, for each thread on a CPU and on another device

    @property
    def preprocessing(self) -> str:
        return f"{self.framing}; {self.values}"


class NetworkExtractor(WindowExtractor):
    """Carries out one plan.

    Args:
        plan: network, cut, outputs and windows.
        module: turns stacks uint8 (N, S, h, w, 3) into the plan's outputs (N, …); an UnbuiltModule is built
            where no converted one is kept.
        classes: how many the logits tell apart.
        sha256: of the weights, for the name tag.
        options: device, engine and windows that were asked for.

    Raises:
        ValueError: where windows are asked for that the network cannot take.
    """

    short_side = None

    def __init__(
        self,
        plan: NetworkPlan,
        module: nn.Module | UnbuiltModule,
        classes: int,
        sha256: str,
        options: ExtractorOptions,
    ) -> None:
        self.plan, self.name, self.width = plan, plan.name, plan.width
        self.windows = replace(options.windows_over(plan.windows), ahead=plan.windows.ahead)
        if plan.most is not None and self.windows.stack_size > plan.most:
            raise ValueError(f"{plan.name} takes {plan.most} frames at most, not {self.windows.stack_size}")
        self.device = options.device
        on_cpu, elsewhere = plan.batch
        self.batch = on_cpu * options.threads if self.device.type == "cpu" else elsewhere
        self.classes = find_labels(classes)
        key = f"{plan.network} {sha256} {plan.preprocessing}"
        self.engine: NetworkEngine = choose_engine(module, self.example(), key, options)
        self.spec = StreamSpec(
            plan.network,
            sha256,
            plan.preprocessing,
            describe_windows(self.windows),
            self.engine.name,
            self.engine.precision,
        )

    @property
    def resizing(self) -> Resizing:
        return self.plan.framing.resizing

    def prepare(self, frames: Tensor) -> Tensor:
        return self.plan.framing(frames)

    def view(self, height: int, width: int) -> View:
        return self.plan.framing.view(height, width)

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        return self.rows(self.engine.outputs(lengthen(stacks, self.plan.least)))

    def rows(self, outputs: Sequence[Tensor]) -> dict[str, WindowRows]:
        """Puts the network's outputs under the names of their streams."""
        return {
            self.name + ending: WindowRows(
                compact(values, self.engine.precision) if values.dim() > 2 else values
            )
            for ending, values in zip(self.plan.outputs, outputs, strict=True)
        }

    def example(self) -> Tensor:
        """Makes two windows as the module takes them."""
        frames, side = max(self.windows.stack_size, self.plan.least), self.plan.framing.crop
        assert side is not None, "a plan that cuts nothing out has no one size"
        return torch.zeros(2, frames, side, side, 3, dtype=torch.uint8)


def lengthen(stacks: Tensor, least: int) -> Tensor:
    """Lengthens windows (N, S, …) to ``least`` frames or more by repeating the last."""
    missing = least - stacks.shape[1]
    return stacks if missing <= 0 else torch.cat([stacks, stacks[:, -1:].expand(-1, missing, *[-1] * 3)], 1)


def compact(values: Tensor, precision: Precision) -> Tensor:
    """Halves the bytes of maps where the network was computed in half precision; none becomes infinite."""
    return values if precision == "fp32" else values.clamp(-LARGEST, LARGEST).half()


def flatten_cells(grid: Tensor) -> Tensor:
    """Flattens a map (N, C, …, H, W) to cells row by row (N, H·W, C), the mean over time where it has any."""
    while grid.dim() > 4:
        grid = grid.mean(2)
    return grid.flatten(2).transpose(1, 2)


class NormalizeStacks(nn.Module):
    """Normalizes stacks of bytes (N, S, h, w, 3) to clips (N, 3, S, h, w).

    Args:
        mean: of each channel, taken off after dividing by ``scale``.
        deviation: of each channel, divided by last.
        scale: of the bytes.
    """

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...], scale: float = 255.0) -> None:
        super().__init__()
        self.mean: Tensor
        self.deviation: Tensor
        shape = (1, 3, 1, 1, 1)
        self.register_buffer("mean", torch.tensor(mean).view(shape), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(shape), persistent=False)
        self.scale = scale

    def forward(self, stacks: Tensor) -> Tensor:
        clips = stacks.permute(0, 4, 1, 2, 3).float()
        return (clips / self.scale - self.mean) / self.deviation
