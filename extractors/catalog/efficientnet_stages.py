"""Two earlier stages of EfficientNet-Lite2, for captioners that choose a level of abstraction (dualAFR).

The last map with a stride of 16 and the one before the head; ``grid`` is efficientnet-lite2's own stream.
What lies between that map and the grid can be trained on with a captioner (extractors/catalog/tuned_pair.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor, nn

from extractors.catalog.efficientnet_lite2 import CELLS, EfficientNetLite2, flatten_cells
from extractors.extractor import ExtractorOptions
from extractors.networks.efficientnet_lite import LITE2, EfficientNetLite, fold_lite_norms, scale_pixels

FINE = 2 * CELLS
#: Of LITE2's seven stages: the last with a stride of 16, and the last of all.
STAGE_14, STAGE_7 = 4, 6
#: Blocks before the first of LITE2's last two stages.
FIRST_BLOCKS = sum(stage.repeats for stage in LITE2[: STAGE_14 + 1])


class StagesFromBytes(nn.Module):
    """From squares of bytes (N, 224, 224, 3) to (N, 196, 120) and (N, 49, 352), cells row by row."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        fold_lite_norms(network)
        self.fine = nn.Sequential(network.stem, *network.blocks[:FIRST_BLOCKS])
        self.coarse = network.blocks[FIRST_BLOCKS:]

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.fine(scale_pixels(pixels))
        return flatten_cells(fine), flatten_cells(self.coarse(fine))


class EfficientNetStages(EfficientNetLite2):
    """The extractor. Streams ``stage_14`` (T, 196, 120) and ``stage_7`` (T, 49, 352), float16."""

    name = "efficientnet-lite2-stages"
    width = LITE2[STAGE_7].width
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType(
        {
            "stage_14": (FINE * FINE, LITE2[STAGE_14].width),
            "stage_7": (CELLS * CELLS, LITE2[STAGE_7].width),
        }
    )
    maps = StagesFromBytes

    def _add_mean(self, maps: dict[str, Tensor]) -> dict[str, Tensor]:
        return maps


def make(_: str, options: ExtractorOptions) -> EfficientNetStages:
    """The extractor with its packaged weights. Raises WeightsError."""
    return EfficientNetStages.from_options(options)
