"""Two earlier stages of EfficientNet-Lite2, for captioners that choose a level of abstraction (dualAFR).

The last map with a stride of 16 and the one before the head; ``grid`` is efficientnet-lite2's own stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor, nn

from extractors.efficientnet import CELLS, EfficientNetLite2
from extractors.efficientnet_lite import LITE2, EfficientNetLite, fold_norms
from extractors.options import ExtractorOptions

FINE = 2 * CELLS
#: Of LITE2's seven stages: the last with a stride of 16, and the last of all.
STAGE_14, STAGE_7 = 4, 6


class StageMaps(nn.Module):
    """From squares of bytes (N, 224, 224, 3) to (N, 196, 120) and (N, 49, 352), cells row by row."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        fold_norms(network)
        end = sum(stage.repeats for stage in LITE2[: STAGE_14 + 1])
        self.fine = nn.Sequential(network.stem, *network.blocks[:end])
        self.coarse = network.blocks[end:]

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.fine((pixels.permute(0, 3, 1, 2).float() - 127) * (1 / 128))
        return _cells(fine), _cells(self.coarse(fine))


def _cells(maps: Tensor) -> Tensor:
    """(N, C, h, w) → (N, h·w, C)."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


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
    maps = StageMaps

    def _with_mean(self, maps: dict[str, Tensor]) -> dict[str, Tensor]:
        return maps


def make(_: str, options: ExtractorOptions) -> EfficientNetStages:
    """The extractor with its packaged weights. Raises WeightsError."""
    return EfficientNetStages.of(options)
