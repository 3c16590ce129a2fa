"""Holds a network while it is trained: its weights, their moving average, and the optimiser."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Adam, AdamW, Optimizer, RMSprop
from torch.optim.swa_utils import AveragedModel

from models.captioner import Captioner
from models.captioners.semantic_embedding import SemanticEmbedding
from training.batches.loading import find_device
from training.optimization.adapted_captioner import AdaptedCaptioner
from training.optimization.weight_averaging import average_weights
from training.precision import make_scaler
from training.recipes.recipe import Recipe

#: What can be trained and saved as a checkpoint.
TrainedNetwork: TypeAlias = Captioner | SemanticEmbedding
NetworkT = TypeVar("NetworkT", bound=TrainedNetwork | AdaptedCaptioner)


@dataclass(frozen=True, eq=False)
class Learner(Generic[NetworkT]):
    """A network in training."""

    network: NetworkT
    average: AveragedModel  #: its copy, whose weights are a moving average of the network's
    optimizer: Optimizer
    #: of losses computed in float16, whose small gradients would be lost; it does nothing in other precisions
    scaler: GradScaler

    @property
    def averaged(self) -> NetworkT:
        """The network with the averaged weights, which is judged and saved."""
        return cast(NetworkT, self.average.module)  # torch types the copy as any module

    def add_gradient(self, loss: Tensor) -> None:
        """Adds the gradient of a loss () to what is descended."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def descend(self, rate: float, clip: float) -> Tensor:
        """Takes a step down the gradients that were added, and lets go of them.

        rate: the learning rate of this step. clip: the norm that gradients are clipped to. Returns (), the
        norm that they had.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.average.update_parameters(self.network)
        self.optimizer.zero_grad()
        return norm

    def state(self) -> dict[str, Any]:
        """Returns all that ``restore`` needs, for ``torch.save``."""
        return {
            "captioner": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes back to where ``state`` was taken, on whichever device that was."""
        self.network.load_state_dict(state["captioner"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled() and state.get("scaler"):  # a run in another precision has none
            self.scaler.load_state_dict(state["scaler"])


def build_learner(
    recipe: Recipe, network: NetworkT, precision: torch.dtype = torch.float32
) -> Learner[NetworkT]:
    """Gives the network a fresh optimiser and a fresh average of its weights.

    Args:
        recipe: which optimiser, and how long the average looks back.
        network: on the device where it is trained.
        precision: in which losses are computed.
    """
    average = average_weights(network, recipe.average_decay)
    scaler = make_scaler(precision, find_device(network))
    return Learner(network, average, build_optimizer(recipe, network), scaler)


def build_optimizer(recipe: Recipe, network: nn.Module) -> Optimizer:
    """Builds the recipe's optimiser; the rate is set at every step, and not here."""
    if recipe.optimizer == "rmsprop":
        return RMSprop(network.parameters(), weight_decay=recipe.weight_decay)
    kind = AdamW if recipe.optimizer == "adamw" else Adam
    return kind(network.parameters(), weight_decay=recipe.weight_decay, betas=recipe.betas, fused=True)


def adapt_to_rewards(recipe: Recipe) -> Recipe:
    """Returns the recipe of self-critical steps: Adam's own numbers, without decay; RMSprop stays (STaTS)."""
    if recipe.optimizer == "rmsprop":
        return recipe
    return recipe.model_copy(update={"optimizer": "adam", "weight_decay": 0.0, "betas": (0.9, 0.999)})
