"""Everything that can go wrong between a folder in the Hugging Face format and its captions.

    PretrainedError
    ├── NotACaptioner        not_a_captioner         the folder has no configuration that says what it is
    ├── UnknownArchitecture  unknown_architecture    a model of a family that is not opened here
    ├── RemoteCodeRefused    remote_code_refused     the model brings code of its own
    ├── PickledWeightsOnly   pickled_weights_only    weights are there, but none as safetensors
    ├── PretrainedDamaged    pretrained_damaged      files are missing, cut off or do not fit each other
    ├── OptionRefused        option_refused          a decoding option that this captioner does not have
    └── NotANumber           not_a_number            the model's probabilities are not numbers

docs/pretrained.md lists them all.
"""

from __future__ import annotations

from extractors.errors import ReelwordError


class PretrainedError(ReelwordError):
    """Root of the tree; only its leaves are raised."""

    code = "pretrained_error"
    hint = "docs/pretrained.md says what a folder of a pretrained captioner has."


class NotACaptioner(PretrainedError):
    code = "not_a_captioner"
    hint = "Name a folder in the Hugging Face format: config.json, tokenizer, processor and *.safetensors."


class UnknownArchitecture(PretrainedError):
    code = "unknown_architecture"
    hint = "Choose a model of a family that docs/pretrained.md lists."


class RemoteCodeRefused(PretrainedError):
    code = "remote_code_refused"
    hint = "Choose a model whose code is part of transformers; code that comes with a model is never run."


class PickledWeightsOnly(PretrainedError):
    code = "pickled_weights_only"
    hint = "Choose a revision of the model that has *.safetensors; pickles can run code and are not opened."


class PretrainedDamaged(PretrainedError):
    code = "pretrained_damaged"
    hint = "Get the folder again, whole."


class OptionRefused(PretrainedError, ValueError):
    """A decoding option that cannot be done as asked. option: its name."""

    code = "option_refused"
    hint = "Leave the option out, or choose one of Reelword's own captioners, which have them all."

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option}: {why}")
        self.option = option


class NotANumber(PretrainedError):
    code = "not_a_number"
    hint = "Load the captioner in float32: half precision may overflow in it."
