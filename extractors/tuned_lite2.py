"""EfficientNet-Lite2 trained on with a captioner: its last two stages and its head moved, all else stayed.

The weights are the packaged ones and a file of changes that comes with the repository
(extractors/weight_changes.py), so that captioners on the untouched ``grid`` go on working beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from safetensors.torch import save_file
from torch import Tensor

from extractors.checkpoint import Checkpoint
from extractors.checkpoint_file import read
from extractors.digests import sha256_of, writing
from extractors.efficientnet import CELLS, NETWORK, PREPROCESSING, EfficientNetLite2, pretrained
from extractors.efficientnet_lite import CHANNELS, EfficientNetLite
from extractors.efficientnet_stages import LastStages
from extractors.features import StreamSpec
from extractors.options import Choice, ExtractorOptions
from extractors.weight_changes import changed, changes_of
from extractors.weights import SEEDED, find
from extractors.weights_errors import WrongCheckpoint

TUNED = "tuned_lite2"
TUNED_GRID = "tuned_lite2_grid"


def save_changes(network: LastStages, untouched: LastStages, file: Path) -> str:
    """Writes what ``network`` differs in, whole or not at all; returns the file's sha256. Raises NoRoom."""
    changes = changes_of(untouched.state_dict(), network.state_dict())
    with writing(file) as unfinished:
        save_file({name: change.contiguous() for name, change in changes.items()}, unfinished)
    return sha256_of(file)


def apply_changes(network: LastStages, changes: Checkpoint) -> None:
    """Changes the untouched network in place. Raises WrongCheckpoint where they do not fit."""
    network.load_state_dict(changed(network.state_dict(), changes))


def from_checkpoint(changes: Checkpoint) -> LastStages:
    """The packaged network's last stages with these changes. Raises WeightsError."""
    network = LastStages(pretrained())
    apply_changes(network, changes)
    return network


def spec_of(changes_sha256: str, lite2_sha256: str) -> StreamSpec:
    """The name tag of what a tuned network makes; it tells of both files that the weights are made of."""
    made_of = f"weights are changes of {NETWORK} {lite2_sha256}"
    return StreamSpec(f"{NETWORK} tuned", changes_sha256, f"{PREPROCESSING}; {made_of}")


class TunedLite2(EfficientNetLite2):
    """The extractor. Streams ``tuned_lite2`` (T, 1280) and ``tuned_lite2_grid`` (T, 49, 1280), float16."""

    name = TUNED
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType({TUNED_GRID: (CELLS * CELLS, CHANNELS)})

    @staticmethod
    def weighed(choice: Choice) -> tuple[EfficientNetLite, StreamSpec]:
        """Seeded weights are the untouched network's own."""
        network, untouched = EfficientNetLite2.weighed(choice)
        if choice == SEEDED:
            return network, spec_of(SEEDED, SEEDED)
        found = find(TUNED)
        try:
            apply_changes(LastStages(network), read(found.file))
        except WrongCheckpoint as error:
            raise WrongCheckpoint(f"{found.file}: {error}") from error
        return network, spec_of(found.sha256, untouched.weights_sha256)

    def _with_mean(self, maps: dict[str, Tensor]) -> dict[str, Tensor]:
        return {TUNED: maps[TUNED_GRID].float().mean(1).half(), **maps}


def make(_: str, options: ExtractorOptions) -> TunedLite2:
    """The extractor with the weights that come with the repository. Raises WeightsError."""
    return TunedLite2.of(options)
