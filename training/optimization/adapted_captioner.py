"""Holds a pretrained captioner while it is trained by low-rank adapters (LoRA, Hu et al. 2021).

The adapters lie on the queries and values of the text decoder; whatever sees the frames stays as it is. The
loss is that of the captioner's own reading of captions, which evidence and likelihoods go by when it serves.
"""

import re
from collections.abc import Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from safetensors.torch import save_file
from torch import nn

from extractors.files import atomic_write
from models.pretrained.adapters.card import WEIGHTS
from models.pretrained.adapters.merging import using_peft
from models.pretrained.errors import OptionRefused
from training.recipes.recipe import LoraOptions

if TYPE_CHECKING:  # every training imports this, and transformers takes seconds
    from models.pretrained.captioner import PretrainedCaptioner


class AdaptedCaptioner(nn.Module):
    """A pretrained captioner with adapters, which alone are this module's parameters.

    A copy has adapters of its own and shares everything else, so that an average of the weights in training
    takes no more memory than they do.
    """

    def __init__(self, captioner: "PretrainedCaptioner[Any]", options: LoraOptions) -> None:
        """Puts adapters that change nothing yet into a captioner in float32, and freezes its own weights.

        Raises OptionRefused where no layer of its text decoder is called as one of the targets,
        PackageMissing where peft is not installed.
        """
        super().__init__()
        targets = list_targets(captioner, options.targets)
        with using_peft():
            from peft import LoraConfig, get_peft_model

            config = LoraConfig(
                r=options.rank,
                lora_alpha=options.alpha,
                target_modules=targets,
                # GPT-2 keeps its weights transposed
                fan_in_fan_out=type(captioner.model.get_submodule(targets[0])).__name__ == "Conv1D",
            )
            captioner.model = get_peft_model(captioner.model, config)
        self.captioner = captioner
        self.adapters = nn.ParameterList(each for each in captioner.model.parameters() if each.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        model = self.captioner.model
        trained = {id(each) for each in self.adapters}
        memo |= {
            id(each): each for each in (*model.parameters(), *model.buffers()) if id(each) not in trained
        }
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__ = deepcopy(self.__dict__, memo)
        return copied

    def train(self, mode: bool = True) -> Self:
        self.captioner.model.train(mode)
        return super().train(mode)

    def save(self, folder: Path) -> None:
        """Writes the adapters into a folder as peft does, each file whole or not at all."""
        from peft import get_peft_model_state_dict

        folder.mkdir(parents=True, exist_ok=True)
        model = self.captioner.model
        state = get_peft_model_state_dict(model, save_embedding_layers=False)
        config = copy(model.peft_config["default"])
        config.base_model_name_or_path, config.inference_mode = self.captioner.name, True
        config.save_pretrained(folder)
        with atomic_write(folder / WEIGHTS) as unfinished:
            save_file({name: each.detach().cpu().contiguous() for name, each in state.items()}, unfinished)


def list_targets(captioner: "PretrainedCaptioner[Any]", names: Sequence[str]) -> list[str]:
    """Lists the whole names of the layers of a captioner's text decoder whose last part is one of ``names``.

    Raises OptionRefused where there is none.
    """
    modules = {module: name for name, module in captioner.model.named_modules()}
    layers, _, _ = re.split(r"\.(\d+)\.", modules[captioner.attention_modules()[0]], maxsplit=1)
    targets = [
        name for name in modules.values() if name.startswith(layers) and name.rpartition(".")[2] in names
    ]
    if not targets:
        raise OptionRefused("lora_targets", f"{captioner.name} has no layer called {' or '.join(names)}")
    return targets
