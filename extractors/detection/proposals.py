"""Proposes regions: where in a map something is, whatever it is (arXiv:1506.01497), as detectron2 does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import batched_nms, clip_boxes_to_image

from extractors.detection.boxes import apply_deltas, have_area, make_cell_anchors, place_anchors

RATIOS = (0.5, 1.0, 2.0)
#: Logits (N, A, H, W) and deltas (N, 4 A, H, W).
HeadOutput: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ProposalRule:
    """Limits how many boxes are proposed."""

    before: int = 1000  #: best of each level that compete
    after: int = 1000  #: that are kept
    overlap: float = 0.7  #: of two that are one


@dataclass(frozen=True, eq=False)
class ScoredAnchors:
    """Holds one picture's predictions on one level: logits (A,), deltas and anchors (A, 4)."""

    logits: Tensor
    deltas: Tensor
    anchors: Tensor


class ProposalHead(nn.Module):
    """Predicts logits (N, A, H, W) and deltas (N, 4 A, H, W) of a map.

    scores: 2 an anchor where it is a softmax.
    """

    def __init__(self, inputs: int, width: int, per_cell: int, scores: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, width, 3, padding=1)
        self.objectness_logits = nn.Conv2d(width, per_cell * scores, 1)
        self.anchor_deltas = nn.Conv2d(width, per_cell * 4, 1)

    def forward(self, grid: Tensor) -> HeadOutput:
        grid = F.relu(self.conv(grid))
        return self.objectness_logits(grid), self.anchor_deltas(grid)


class ProposalGenerator(nn.Module):
    """Proposes boxes from maps.

    strides: pixels a cell, by the map's name; sizes: of the anchors of each map.

    extra: 1 where boxes count their last pixel into their width and height, and end on it.
    """

    def __init__(
        self,
        rpn_head: ProposalHead,
        strides: Mapping[str, int],
        sizes: Sequence[Sequence[float]],
        extra: float = 0,
    ) -> None:
        super().__init__()
        self.rpn_head, self.strides, self.extra = rpn_head, strides, extra
        self.cells = [make_cell_anchors(of_level, RATIOS) for of_level in sizes]

    def make_anchors(self, maps: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Makes the anchors of each map, in pixels."""
        return {
            name: place_anchors(maps[name].shape[2], maps[name].shape[3], stride, cell.to(maps[name].device))
            for (name, stride), cell in zip(self.strides.items(), self.cells, strict=True)
        }

    def run_head(self, maps: Mapping[str, Tensor]) -> dict[str, HeadOutput]:
        """Computes the logits and deltas of each map."""
        return {name: self.rpn_head(maps[name]) for name in self.strides}

    def score_anchors(self, heads: Mapping[str, HeadOutput]) -> list[list[ScoredAnchors]]:
        """Scores the anchors of each picture, level by level, from the head's output."""
        placed = self.make_anchors({name: logits for name, (logits, _) in heads.items()})
        pictures: list[list[ScoredAnchors]] = [[] for _ in next(iter(heads.values()))[0]]
        for name, boxes in placed.items():
            logits, deltas = heads[name]
            if logits.shape[1] * 4 != deltas.shape[1]:  # a softmax over nothing and something
                nothing, something = logits.chunk(2, 1)
                logits = something - nothing
            per_anchor = logits.permute(0, 2, 3, 1).flatten(1)
            moves = deltas.permute(0, 2, 3, 1).reshape(len(logits), -1, 4)
            for picture, one, move in zip(pictures, per_anchor, moves, strict=True):
                picture.append(ScoredAnchors(one, move, boxes))
        return pictures

    def propose(
        self, heads: Mapping[str, HeadOutput], size: tuple[int, int], rule: ProposalRule
    ) -> list[tuple[Tensor, Tensor]]:
        """Proposes boxes from the output of the head.

        Args:
            heads: logits (N, A, rows, columns) and deltas (N, 4 A, rows, columns) by the map's name.
            size: height and width of the pictures, in pixels.
            rule: how many.

        Returns:
            For each picture boxes (K, 4) and logits (K,), the best first.
        """
        return [self._select_best(levels, size, rule) for levels in self.score_anchors(heads)]

    def _select_best(
        self, levels: Sequence[ScoredAnchors], size: tuple[int, int], rule: ProposalRule
    ) -> tuple[Tensor, Tensor]:
        boxes, logits, numbers = [], [], []
        for number, level in enumerate(levels):
            best, index = level.logits.topk(min(rule.before, len(level.logits)))
            boxes.append(
                apply_deltas(level.anchors[index], level.deltas[index], (1.0, 1.0, 1.0, 1.0), self.extra)
            )
            logits.append(best)
            numbers.append(torch.full_like(index, number))
        height, width = size[0] - self.extra, size[1] - self.extra
        box = clip_boxes_to_image(torch.cat(boxes), (height, width))
        logit, number_of = torch.cat(logits), torch.cat(numbers)
        kept = have_area(box)
        box, logit, number_of = box[kept], logit[kept], number_of[kept]
        kept = batched_nms(box, logit, number_of, rule.overlap)[: rule.after]
        return box[kept], logit[kept]
