"""Batch norms are folded where they read a convolution, and only there."""

from __future__ import annotations

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from extractors.engines.batch_norm_folding import fold_norms
from extractors.engines.engine import TorchEngine


def lively(network: nn.Module) -> nn.Module:
    """In eval mode, with norms that have seen data."""
    generator = torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm3d)):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.normal_(generator=generator)
            layer.running_var.uniform_(0.5, 2, generator=generator)
    return network.eval().requires_grad_(False)


class Block(nn.Module):
    """Norms behind convolutions in any order of names, one before its convolution, one that reads a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.BatchNorm2d(3)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])
        self.second, self.first = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(3, 4, 1)
        self.sum = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.first(self.before(x))).relu()
        z: Tensor = self.sum(y + self.norms[0](self.second(y)))
        return z


def test_only_norms_that_read_a_convolution_are_folded() -> None:
    network = lively(Block())
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    wanted = network(x)
    fold_norms(network, x)
    kinds = {name: type(layer) for name, layer in network.named_modules()}
    assert kinds["norms.0"] is kinds["norms.1"] is nn.Identity
    assert kinds["before"] is kinds["sum"] is nn.BatchNorm2d
    torch.testing.assert_close(network(x), wanted, rtol=1e-5, atol=1e-5)


def test_a_norm_that_holds_its_activation_leaves_it_behind() -> None:
    """timm's Inception-V4 is made of such norms; without its ReLUs it gave numbers of nothing."""
    network = lively(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), BatchNormAct2d(4)))
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    wanted = network(x)
    assert bool((wanted == 0).any())
    fold_norms(network, x)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules())
    torch.testing.assert_close(network(x), wanted, rtol=1e-5, atol=1e-5)


def test_a_convolution_that_runs_twice_keeps_its_norm() -> None:
    convolution, norm = nn.Conv3d(2, 2, 1), nn.BatchNorm3d(2)
    network = lively(nn.Sequential(convolution, norm, convolution))
    x = torch.ones(1, 2, 1, 2, 2)
    wanted = network(x)
    fold_norms(network, x)
    assert network[1] is norm  # type: ignore[index]
    torch.testing.assert_close(network(x), wanted)


def test_the_engine_folds_in_half_precision_and_leaves_the_module_alone() -> None:
    network = lively(nn.Sequential(nn.Conv3d(4, 4, 3, padding=1, groups=2, bias=False), nn.BatchNorm3d(4)))
    x = torch.randn(2, 4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    wanted = network(x)
    found = TorchEngine(network, torch.device("cpu"), "bf16", example=x)(x)
    assert float((found - wanted).abs().max()) < 2e-2 * float(wanted.abs().max())
    torch.testing.assert_close(network(x), wanted)
