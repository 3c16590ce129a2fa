"""A recipe's optimiser over a network's parameters."""

from __future__ import annotations

from torch import nn
from torch.optim import Adam, AdamW, Optimizer, RMSprop

from training.recipes import Recipe
from training.run import Learner


def learner_of(recipe: Recipe, network: nn.Module) -> Learner:
    """The network with a fresh optimiser and a fresh average of its weights."""
    return Learner.of(network, optimizer_of(recipe, network), recipe.average_decay)


def refining(recipe: Recipe) -> Recipe:
    """Self-critical steps are Adam's own, without decay; RMSprop stays (STaTS)."""
    if recipe.optimizer == "rmsprop":
        return recipe
    return recipe.model_copy(update={"optimizer": "adam", "weight_decay": 0.0, "betas": (0.9, 0.999)})


def optimizer_of(recipe: Recipe, network: nn.Module) -> Optimizer:
    """The rate is set at every step, and not here."""
    if recipe.optimizer == "rmsprop":
        return RMSprop(network.parameters(), weight_decay=recipe.weight_decay)
    kind = AdamW if recipe.optimizer == "adamw" else Adam
    return kind(network.parameters(), weight_decay=recipe.weight_decay, betas=recipe.betas, fused=True)
