"""Extracts features of frames by EfficientNet-Lite2 and Lite3 under one head, trained on with a captioner.

``tuned_pair:classes`` names what Lite2 recognises beside, in the same pass: its first stages, most of what it
costs, are the pair's own.

Lite2's last two stages moved in training, and its head took in a second half that reads Lite3's last map; all
else is as it is packaged. The weights are the packages' and a file of changes that comes with the repository
(extractors/pretrained/parameters.py), so that captioners on the untouched ``grid`` keep working beside
it.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from extractors.catalog import efficientnet_lite2, efficientnet_lite3
from extractors.catalog.efficientnet_lite2 import (
    CELLS,
    FINE,
    FIRST_BLOCKS,
    LOGITS,
    EfficientNetLite2,
    flatten_cells,
    load_packaged,
)
from extractors.catalog.efficientnet_lite3 import EfficientNetLite3, Lite3Maps
from extractors.extractor import ExtractorOptions, UnknownExtractor
from extractors.features import Frames, Stream, StreamSpec
from extractors.networks.efficientnet_lite import (
    CHANNELS,
    CLASSES,
    EfficientNetLite,
    fold_lite_norms,
    scale_pixels,
)
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WrongCheckpoint
from extractors.pretrained.load import SEEDED, WeightsChoice, digest_weights, find_weights
from extractors.pretrained.parameters import Checkpoint, apply_delta

TUNED = "tuned_pair"
TUNED_GRID = "tuned_pair_grid"
NETWORK = f"{efficientnet_lite2.NETWORK} and {efficientnet_lite3.NETWORK}, tuned"


class PairEnd(nn.Module):
    """Computes the grid from both networks' cells: the part of the pair that is trained.

    Takes Lite2's ``stage_14`` cells (N, 196, 120) and Lite3's (N, 49, 384), and makes the grid's
    (N, 49, 1280), row by row, batch norms folded away.

    lite2: in eval mode; its own parts are taken, and all their parameters can be trained. Lite3's half of the
    head begins with zeros, so that the untouched grid comes out.
    """

    def __init__(self, lite2: EfficientNetLite) -> None:
        super().__init__()
        fold_lite_norms(lite2)
        self.blocks = lite2.blocks[FIRST_BLOCKS:]
        self.head = lite2.head.conv
        self.lite3_head = nn.Conv2d(efficientnet_lite3.WIDTH, CHANNELS, 1, bias=False)
        nn.init.zeros_(self.lite3_head.weight)
        self.requires_grad_(True)  # biases that folding makes are born frozen

    def forward(self, stage_cells: Tensor, lite3_cells: Tensor) -> Tensor:
        return flatten_cells(self.join_maps(_to_maps(stage_cells, FINE), _to_maps(lite3_cells, CELLS)))

    def join_maps(self, fine: Tensor, lite3: Tensor) -> Tensor:
        """Joins maps (N, 120, 14, 14) and (N, 384, 7, 7) to (N, 1280, 7, 7)."""
        return F.relu6(self.head(self.blocks(fine)) + self.lite3_head(lite3))


class TunedPairFromBytes(nn.Module):
    """Runs both networks on squares of bytes (N, 224, 224, 3); returns cells row by row (N, 49, 1280)."""

    def __init__(self, lite2: EfficientNetLite, lite3: EfficientNetLite) -> None:
        super().__init__()
        self.end = PairEnd(lite2)
        self.fine = nn.Sequential(lite2.stem, *lite2.blocks[:FIRST_BLOCKS])
        self.lite3 = Lite3Maps(lite3)

    def forward(self, pixels: Tensor) -> Tensor:
        x = scale_pixels(pixels)
        return flatten_cells(self.end.join_maps(self.fine(x), self.lite3(x)))


class NamedPairFromBytes(TunedPairFromBytes):
    """Computes beside the cells Lite2's logits (N, 1, 1000), by its own end as it is packaged."""

    def __init__(self, lite2: EfficientNetLite, lite3: EfficientNetLite) -> None:
        super().__init__(lite2, lite3)
        end = nn.Sequential(lite2.blocks[FIRST_BLOCKS:], lite2.head)
        self.untouched, self.classifier = copy.deepcopy(end), lite2.classifier

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]  # two outputs
        x = scale_pixels(pixels)
        fine = self.fine(x)
        logits = self.classifier(self.untouched(fine).mean((2, 3)))
        return flatten_cells(self.end.join_maps(fine, self.lite3(x))), logits[:, None]


def _to_maps(cells: Tensor, side: int) -> Tensor:
    """Reshapes cells (N, side², C) to (N, C, side, side)."""
    return cells.reshape(-1, side, side, cells.shape[2]).permute(0, 3, 1, 2)


def apply_changes(end: PairEnd, changes: Checkpoint) -> None:
    """Changes the untouched end in place. Raises WrongCheckpoint where they do not fit."""
    end.load_state_dict(apply_delta(end.state_dict(), changes))


def from_checkpoint(changes: Checkpoint) -> PairEnd:
    """Changes the packaged networks' end. Raises WeightsError."""
    end = PairEnd(load_packaged())
    apply_changes(end, changes)
    return end


def make_spec(changes_sha256: str, lite2_sha256: str, lite3_sha256: str) -> StreamSpec:
    """Returns the name tag of what a tuned pair makes.

    Args:
        changes_sha256: of the file of changes; the weights of the tag.
        lite2_sha256: of the packaged file that was changed.
        lite3_sha256: of the other one.
    """
    made_of = f"weights are changes of {lite2_sha256} and {lite3_sha256}"
    inputs = f"{efficientnet_lite2.PREPROCESSING}; beside it {efficientnet_lite3.PREPROCESSING}"
    return StreamSpec(NETWORK, changes_sha256, f"{inputs}; {made_of}")


class TunedPair(EfficientNetLite2):
    """Makes streams ``tuned_pair`` (T, 1280) and ``tuned_pair_grid`` (T, 49, 1280), float16."""

    name = TUNED
    classes = None
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType({TUNED_GRID: (CELLS * CELLS, CHANNELS)})
    mean = (TUNED, TUNED_GRID)
    maps = staticmethod(nn.Module.eval)  # a pair is the whole module already
    pair: type[TunedPairFromBytes] = TunedPairFromBytes

    @staticmethod
    def name_weights(choice: WeightsChoice) -> StreamSpec:
        """Makes the name tag; seeded weights are the untouched networks' own."""
        if choice == SEEDED:
            return make_spec(SEEDED, SEEDED, SEEDED)
        names = (TUNED, efficientnet_lite2.NETWORK, efficientnet_lite3.NETWORK)
        return make_spec(*(digest_weights(name, choice) for name in names))

    @classmethod
    def load_network(cls, choice: WeightsChoice) -> Any:
        """Loads both networks and the changes."""
        pair = cls.pair(EfficientNetLite2.load_network(choice), EfficientNetLite3.load_network(choice))
        if choice == SEEDED:
            return pair
        changes = find_weights(TUNED)
        try:
            apply_changes(pair.end, read_checkpoint(changes.file))
        except WrongCheckpoint as error:
            raise WrongCheckpoint(f"{changes.file}: {error}") from error
        return pair


class NamedPair(TunedPair):
    """Makes beside them ``efficientnet-lite2_logits`` (T, 1, 1000), with the name tag of Lite2."""

    name = f"{TUNED}:classes"
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType({**TunedPair.shapes, LOGITS: (1, CLASSES)})
    pair = NamedPairFromBytes

    def __init__(self, options: ExtractorOptions | None = None) -> None:
        super().__init__(options)
        tag = EfficientNetLite2.name_weights((options or ExtractorOptions()).weights)
        self._named_by = replace(tag, engine=self.spec.engine, precision=self.spec.precision)

    def _make_streams(self, video: Frames, maps: dict[str, Tensor]) -> dict[str, Stream]:
        streams = super()._make_streams(video, maps)
        return {**streams, LOGITS: replace(streams[LOGITS], spec=self._named_by)}


def make(name: str, options: ExtractorOptions) -> TunedPair:
    """Makes the extractor, with classes or without. Raises UnknownExtractor, WeightsError."""
    kinds = {kind.name: kind for kind in (TunedPair, NamedPair)}
    if name not in kinds:
        raise UnknownExtractor(f"{name!r} should be one of {', '.join(kinds)}")
    return kinds[name](options)
