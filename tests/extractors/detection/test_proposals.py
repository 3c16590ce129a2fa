"""Region proposals against a loop over every anchor, and what a batch and a second score change."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from extractors.detection.boxes import apply_deltas
from extractors.detection.proposals import ProposalGenerator, ProposalHead, ProposalRule
from tests.extractors.slow_boxes import cut, is_solid, overlap_of

SIZE = (70, 90)
STRIDES = {"p3": 8, "p4": 16}
SIZES = (16.0, 24.0)
RULE = ProposalRule(before=40, after=25, overlap=0.6)


def generator(scores: int = 1, extra: float = 0) -> ProposalGenerator:
    """Of two levels, each of two sizes by three ratios; its weights are the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        made = ProposalGenerator(ProposalHead(5, 6, 6, scores), STRIDES, (SIZES, SIZES), extra)
        torch.nn.init.normal_(made.rpn_head.anchor_deltas.weight, std=0.1)
    return made.eval()


def some_maps(pictures: int = 1) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(5)
    return {
        "p3": torch.randn(pictures, 5, 9, 12, generator=random),
        "p4": torch.randn(pictures, 5, 5, 6, generator=random),
    }


def proposed_by_hand(made: ProposalGenerator, maps: dict[str, Tensor], extra: float) -> list[list[float]]:
    """Every anchor of a level by its place, the best of each moved, cut and thinned out; the best of all."""
    left: list[tuple[float, list[float]]] = []
    for name, grid in maps.items():
        logits, deltas = made.rpn_head(grid)
        placed = made.make_anchors(maps)[name]
        rows, columns = grid.shape[2:]
        found = []
        for y, x, a in [(y, x, a) for y in range(rows) for x in range(columns) for a in range(6)]:
            anchor = placed[(y * columns + x) * 6 + a]
            delta = deltas[0, 4 * a : 4 * a + 4, y, x]
            box = apply_deltas(anchor[None], delta[None], (1.0, 1.0, 1.0, 1.0), extra)[0].tolist()
            found.append((float(logits[0, a, y, x]), box))
        kept: list[tuple[float, list[float]]] = []
        for score, box in sorted(found, key=lambda one: -one[0])[: RULE.before]:
            box = cut(box, SIZE[0] - extra, SIZE[1] - extra)
            if is_solid(box) and all(overlap_of(box, other) <= RULE.overlap for _, other in kept):
                kept.append((score, box))
        left += kept
    return [box for _, box in sorted(left, key=lambda one: -one[0])[: RULE.after]]


@pytest.mark.parametrize("extra", [0.0, 1.0])
@torch.inference_mode()
def test_proposals_are_those_of_the_loop(extra: float) -> None:
    made, maps = generator(extra=extra), some_maps()
    [(boxes, logits)] = made.propose(made.run_head(maps), SIZE, RULE)
    by_hand = proposed_by_hand(made, maps, extra)
    assert len(boxes) == len(by_hand) == RULE.after
    torch.testing.assert_close(boxes, torch.tensor(by_hand), rtol=1e-4, atol=1e-3)
    assert (logits.diff() <= 0).all()


@torch.inference_mode()
def test_levels_do_not_suppress_each_other() -> None:
    made, maps = generator(), some_maps()
    rule = ProposalRule(before=1000, after=1000, overlap=0.01)
    [(boxes, _)] = made.propose(made.run_head(maps), SIZE, rule)
    alone = 0
    for name in maps:
        level = ProposalGenerator(made.rpn_head, {name: STRIDES[name]}, (SIZES,)).eval()
        alone += len(level.propose(level.run_head({name: maps[name]}), SIZE, rule)[0][0])
    assert len(boxes) == alone


@torch.inference_mode()
def test_pictures_of_a_batch_are_by_themselves() -> None:
    made, maps = generator(), some_maps(2)
    together = made.propose(made.run_head(maps), SIZE, RULE)
    for number, (boxes, logits) in enumerate(together):
        own = {name: grid[number : number + 1] for name, grid in maps.items()}
        [(alone, of_alone)] = made.propose(made.run_head(own), SIZE, RULE)
        torch.testing.assert_close(boxes, alone, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(logits, of_alone)


@torch.inference_mode()
def test_two_scores_an_anchor_are_a_softmax() -> None:
    """First those of nothing, then those of something: their difference is the logit of a sigmoid."""
    made, maps = generator(scores=2), some_maps()
    pairs, _ = made.rpn_head(maps["p4"])
    softmax = pairs.unflatten(1, (2, 6)).softmax(1)[0, 1]
    scored = made.score_anchors(made.run_head(maps))[0][1]
    torch.testing.assert_close(scored.logits.sigmoid(), softmax.permute(1, 2, 0).flatten())
