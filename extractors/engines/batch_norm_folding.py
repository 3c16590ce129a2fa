"""Folds batch norms into the convolutions before them, which saves a pass over the activations for each."""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.fusion import fuse_conv_bn_weights

CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm2d, nn.BatchNorm3d)


def fold_norms(network: nn.Module, example: Tensor) -> None:
    """Folds, in place, every norm of a network in eval mode that reads a convolution's output.

    Which ones do is seen by letting the network take an input of that shape; nothing is computed.
    """
    for convolution, norm in find_pairs(network, example):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        convolution.weight, convolution.bias = fuse_conv_bn_weights(
            convolution.weight,
            convolution.bias,
            norm.running_mean,
            norm.running_var,
            norm.eps,
            norm.weight,
            norm.bias,
        )
        # timm's norms hold the activation after them (Inception-V4)
        _replace(network, norm, getattr(norm, "act", nn.Identity()))


def find_pairs(network: nn.Module, example: Tensor) -> list[tuple[Any, Any]]:
    """Finds (convolution, norm) where the first's output is the second's input; each is called once."""
    outputs: dict[int, tuple[weakref.ref[Tensor], nn.Module]] = {}
    calls: dict[nn.Module, int] = {}
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def see(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls[layer] = calls.get(layer, 0) + 1
        if isinstance(layer, CONVOLUTIONS):
            outputs[id(output)] = (weakref.ref(output), layer)
            return
        tensor, convolution = outputs.get(id(inputs[0]), (lambda: None, None))
        if convolution is not None and tensor() is inputs[0]:
            pairs.append((convolution, layer))

    layers = [layer for layer in network.modules() if isinstance(layer, CONVOLUTIONS + NORMS)]
    handles = [layer.register_forward_hook(see) for layer in layers]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.no_grad():
            network(fake.from_tensor(example))
    finally:
        for handle in handles:
            handle.remove()
    return [pair for pair in pairs if all(calls[layer] == 1 for layer in pair)]


def _replace(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if child is old:
                setattr(parent, name, new)
