"""Detects in two stages: where something is (arXiv:1506.01497), then what it is, box by box.

The first stage and the network of the second may each be run by an engine (``Stages``); what lies between
them, choosing and pooling, is the same everywhere and runs in float32.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from extractors.detection.proposals import HeadOutput, ProposalGenerator, ProposalRule
from extractors.detection.regions import Regions
from extractors.preprocessing.detection import DetectionInput

Maps: TypeAlias = Mapping[str, Tensor]
#: Boxes whose bins are in memory at once: those of all thousand proposals would be 0.8 GB for one picture.
BOXES_AT_ONCE = 128


@dataclass(frozen=True)
class StageRunners:
    """Runs the two networks."""

    #: normalised pictures (N, 3, H, W) to the maps in their order, then logits and deltas of each map that
    #: proposals come from
    trunk: Callable[[Tensor], Sequence[Tensor]]
    embed: Callable[[Tensor], Tensor]  #: bins of boxes (B, C, s, s) to their features (B, width)


class TwoStage(nn.Module, ABC):
    """Finds regions in two stages."""

    input: DetectionInput  #: how pictures are prepared
    proposals: ProposalRule  #: how many come out of the first stage
    proposal_generator: ProposalGenerator
    width: int  #: of a region's feature
    bins: tuple[int, int, int]  #: shape (C, s, s) of what is pooled for one
    map_names: tuple[str, ...]  #: of the maps, in the trunk's order
    things: int  #: how many classes there are

    @abstractmethod
    def compute_maps(self, x: Tensor) -> dict[str, Tensor]:
        """Computes the maps of normalised pictures (N, 3, H, W), by name."""

    @abstractmethod
    def pool(self, maps: Maps, boxes: Sequence[Tensor]) -> Tensor:
        """Pools bins (B, C, s, s) of boxes (K, 4) of each picture, in its pixels."""

    @abstractmethod
    def embed(self, bins: Tensor) -> Tensor:
        """Computes features (B, width) of bins."""

    @abstractmethod
    def find_regions(
        self, maps: Maps, boxes: Sequence[Tensor], size: tuple[int, int], run: StageRunners
    ) -> list[Regions]:
        """Classifies the proposed boxes, and keeps the best.

        Args:
            maps: by name, of N pictures.
            boxes: proposals (K, 4) of each, in its pixels.
            size: height and width of the pictures, in pixels.
            run: the two networks.
        """

    def run_trunk(self, x: Tensor) -> tuple[Tensor, ...]:
        """Runs the first stage, as ``StageRunners`` wants it."""
        maps = self.compute_maps(x)
        heads = self.proposal_generator.run_head(maps)
        return (
            *(maps[name] for name in self.map_names),
            *(part for output in heads.values() for part in output),
        )

    @torch.inference_mode()
    def detect(self, planes: Tensor, run: StageRunners | None = None) -> list[Regions]:
        """Finds the regions of pictures (N, 3, H, W), bytes with blue first: the best first."""
        run = run or StageRunners(self.run_trunk, self.embed)
        size = (planes.shape[2], planes.shape[3])
        outputs = run.trunk(self.input.normalise(planes))
        maps, heads = self._name_outputs(outputs)
        boxes = [box for box, _ in self.proposal_generator.propose(heads, size, self.proposals)]
        return self.find_regions(maps, boxes, size, run)

    def compute_features(self, maps: Maps, boxes: Sequence[Tensor], run: StageRunners) -> Tensor:
        """Computes the features of all boxes, some of them at a time.

        Args:
            maps: by name, of N pictures.
            boxes: (K, 4) of each, in its pixels.
            run: the two networks.

        Returns:
            (B, width), picture by picture.
        """
        parts: list[Tensor] = []
        for number, box in enumerate(boxes):
            picture_maps = {name: grid[number : number + 1] for name, grid in maps.items()}
            chunks = [chunk for chunk in torch.split(box, BOXES_AT_ONCE) if len(chunk)]
            parts += [run.embed(self.pool(picture_maps, [chunk])) for chunk in chunks]
        return torch.cat(parts) if parts else next(iter(maps.values())).new_zeros(0, self.width)

    def _name_outputs(self, outputs: Sequence[Tensor]) -> tuple[dict[str, Tensor], dict[str, HeadOutput]]:
        count = len(self.map_names)
        maps = dict(zip(self.map_names, outputs[:count], strict=True))
        logits, deltas = outputs[count::2], outputs[count + 1 :: 2]
        strides = self.proposal_generator.strides
        return maps, dict(zip(strides, zip(logits, deltas, strict=True), strict=True))


class Stage(nn.Module):
    """Runs one method of a detector, ``run_trunk`` or ``embed``, as a module by itself for an engine."""

    def __init__(self, network: TwoStage, method: Literal["run_trunk", "embed"]) -> None:
        super().__init__()
        self.network, self.method = network, method

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        outputs: Tensor | tuple[Tensor, ...] = getattr(self.network, self.method)(x)
        return outputs
