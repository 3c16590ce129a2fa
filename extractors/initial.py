"""Random weights under which a network still tells pictures apart, for tests and benchmarks.

Torch's own initial weights let the signal fade to nothing in a deep network whose batch norms have seen no
data, and He's alone let it grow without bound along shortcuts.
"""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Network = TypeVar("Network", bound=nn.Module)

#: What a block adds to its shortcut, as a share: over 50 blocks the signal grows about fivefold.
SHARE = 0.25


def lively(network: Network, last_norm: str | None = None) -> Network:
    """The network with He's weights (arXiv:1502.01852).

    last_norm: how the names end of the norms behind which a block meets its shortcut.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.Conv3d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif last_norm is not None and name.endswith(last_norm):
            nn.init.constant_(layer.get_parameter("weight"), SHARE)
    return network
