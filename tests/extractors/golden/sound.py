"""VGGish as the golden manifest names its outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.networks import vggish
from extractors.preprocessing import log_mel
from extractors.preprocessing.log_mel import resample
from tests.extractors.golden.golden import Case

Tensors = Mapping[str, Tensor]


class BothFiles(nn.Module):
    """The network and its components, from names that the manifest holds together."""

    def __init__(self, checkpoint: Tensors) -> None:
        super().__init__()
        self.network = vggish.from_checkpoint(checkpoint)
        self.components = vggish.components_from_checkpoint(checkpoint)

    def rows(self, examples: Tensor, relu: bool, components: vggish.Components) -> Tensor:
        options = vggish.VGGishOptions(relu, components)
        rows: Tensor = vggish.VGGishEmbedder(self.network, self.components, options)(examples)
        return rows


def run_vggish(network: nn.Module, inputs: Tensors, _case: Case) -> Tensors:
    assert isinstance(network, BothFiles)
    sound = _floats(inputs["waveform"])
    examples = torch.from_numpy(log_mel.compute_examples(sound))
    outputs = {
        "log_mel": torch.from_numpy(log_mel.compute_log_mel(sound)),
        "examples": examples,
        "features": network.network.features(examples[:, None]),
    }
    for relu, ending in ((True, ""), (False, "_no_relu")):
        outputs |= {
            f"embedding{ending}": network.rows(examples, relu, "no"),
            f"pca_applied{ending}": network.rows(examples, relu, "raw"),
            f"pca_quantised{ending}": network.rows(examples, relu, "rounded"),
            f"pca_quantised{ending}_truncated_uint8": network.rows(examples, relu, "truncated"),
        }
    return outputs


def run_frontend(_network: nn.Module, inputs: Tensors, case: Case) -> Tensors:
    """The mean of the channels, at the rate that the manifest says, or that ends the case's name."""
    rate = int(case.said(r"resampled (\d+) ->", case.name.rsplit("_", 1)[-1]))
    mono = np.mean([_floats(channel) for channel in inputs.values()], 0)
    sound = resample(mono, rate, log_mel.RATE)
    return {
        "resampled_16k": torch.from_numpy(sound),
        "log_mel": torch.from_numpy(log_mel.compute_log_mel(sound)),
        "examples": torch.from_numpy(log_mel.compute_examples(sound)),
    }


def _floats(sound: Tensor) -> NDArray[np.float64]:
    return sound.double().numpy() / 32768
