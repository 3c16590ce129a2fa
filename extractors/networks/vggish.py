"""Computes 128 features of each second of a video's sound: VGGish.

Hershey et al., "CNN Architectures for Large-Scale Audio Classification", ICASSP 2017 (arXiv:1609.09430),
model A of VGG. Checkpoints are the PyTorch port's (harritaylor/torchvggish), by its names; the principal
components are a second file, with ``pca_eigen_vectors`` and ``pca_means``.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from extractors.preprocessing import log_mel
from extractors.pretrained.parameters import Checkpoint, WrongCheckpoint, load_strict, unwrap

CHANNELS = 128
NETWORK = "vggish"
#: Convolutions of each stage; a stage ends in a max pool that halves time and mel.
STAGES = ((64,), (128,), (256, 256), (512, 512))
#: Quantised values are the components within these bounds, spread over 0 to 255.
LOWEST, HIGHEST = -2.0, 2.0

#: no: the embedding itself. raw: components, before quantisation. rounded: 0 to 255, a half going to the
#: even number, as the PyTorch port has it. truncated: rounded down, as the original's cast to bytes has it.
Components: TypeAlias = Literal["no", "raw", "rounded", "truncated"]


@dataclass(frozen=True)
class VGGishOptions:
    """Describes a variant."""

    relu: bool = True  #: the port ends with a ReLU, one variant of the original without
    components: Components = "no"  #: see Components

    def __post_init__(self) -> None:
        if self.components not in get_args(Components):
            raise ValueError(f"components must be one of {', '.join(get_args(Components))}")

    @property
    def preprocessing(self) -> str:
        """Describes all that decides the values beside the network and its weights, for a name tag."""
        last = "ReLU" if self.relu else "no ReLU"
        return (
            f"mono 16 kHz; log-mel {log_mel.BANDS} bands {log_mel.LOWEST:g} to {log_mel.HIGHEST:g} Hz, "
            f"{log_mel.STEPS} steps of 10 ms; {last} at the end; principal components: {self.components}"
        )


class VGGish(nn.Module):
    """Computes embeddings (N, 128) of examples (N, 96, 64), the last ReLU not applied."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for stage in STAGES:
            for width in stage:
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.embeddings = nn.Sequential(
            *(nn.Linear(inputs * 6 * 4, 4096), nn.ReLU()),
            *(nn.Linear(4096, 4096), nn.ReLU()),
            nn.Linear(4096, CHANNELS),
        )

    def forward(self, examples: Tensor) -> Tensor:
        grid = self.features(examples[:, None])
        # the original's maps have their channels last, and its first dense layer was trained on that order
        embedding: Tensor = self.embeddings(grid.permute(0, 2, 3, 1).flatten(1))
        return embedding


class PrincipalComponents(nn.Module):
    """Rotates embeddings and quantises them to 8 bits (the values stay floats), as the original does."""

    eigen_vectors: Tensor
    means: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("eigen_vectors", torch.eye(CHANNELS))
        self.register_buffer("means", torch.zeros(CHANNELS, 1))

    def forward(self, embedding: Tensor) -> Tensor:
        return (self.eigen_vectors @ (embedding.T - self.means)).T

    @staticmethod
    def quantise(components: Tensor, truncate: bool) -> Tensor:
        """Quantises to 0 to 255, cut off beyond ±2."""
        spread = (components.clamp(LOWEST, HIGHEST) - LOWEST) * (255 / (HIGHEST - LOWEST))
        return spread.floor() if truncate else spread.round()


class VGGishEmbedder(nn.Module):
    """Computes rows (N, 128) of examples (N, 96, 64): the network, and what its options say comes after."""

    def __init__(
        self, network: nn.Module, components: PrincipalComponents | None, options: VGGishOptions
    ) -> None:
        super().__init__()
        if options.components != "no" and components is None:
            raise WrongCheckpoint(
                "VGGish's principal components are asked for, and no file of them is given."
            )
        self.network, self.components, self.options = network, components, options

    def forward(self, examples: Tensor) -> Tensor:
        rows: Tensor = self.network(examples)
        if self.options.relu:
            rows = rows.relu()
        if self.options.components == "no" or self.components is None:
            return rows
        rows = self.components(rows)
        if self.options.components == "raw":
            return rows
        return self.components.quantise(rows, truncate=self.options.components == "truncated")


def from_checkpoint(checkpoint: Checkpoint) -> VGGish:
    """Loads the network in eval mode; components in the same file are passed over. Raises WrongCheckpoint."""
    named = unwrap(checkpoint)
    return load_strict(VGGish(), {name: value for name, value in named.items() if "pca_" not in name})


def components_from_checkpoint(checkpoint: Checkpoint) -> PrincipalComponents:
    """Loads ``pca_eigen_vectors`` (128, 128) and ``pca_means`` (128) or (128, 1). Raises WrongCheckpoint."""
    named = {
        name.rsplit("pca_", 1)[1]: value.float()
        for name, value in unwrap(checkpoint).items()
        if "pca_" in name
    }
    if "means" in named:
        named["means"] = named["means"].reshape(-1, 1)
    return load_strict(PrincipalComponents(), named)
