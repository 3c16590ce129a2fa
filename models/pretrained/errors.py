"""Everything that can go wrong between a folder in the Hugging Face format and its captions.

    PretrainedError
    ├── NotACaptioner        not_a_captioner         the folder has no configuration that says what it is
    ├── UnknownArchitecture  unknown_architecture    a model of a family that is not opened here
    ├── RemoteCodeRefused    remote_code_refused     the model brings code of its own
    ├── PickledWeightsOnly   pickled_weights_only    weights are there, but none as safetensors
    ├── QuantisedWeights     quantised_weights       weights in a packed form that needs a package of its own
    ├── PretrainedDamaged    pretrained_damaged      files are missing, cut off or do not fit each other
    ├── OptionRefused        option_refused          a decoding option that this captioner does not have
    ├── NotANumber           not_a_number            the model's probabilities are not numbers
    ├── NoSuchCaptioner      hub_id_unknown          no folder, and no model of the hub
    ├── GatedCaptioner       hub_id_gated            its owner wants to be asked first
    ├── HubUnreachable       hub_unreachable         no answer, or it broke off
    ├── DownloadsForbidden   downloads_forbidden     REELWORD_OFFLINE
    ├── FilesDiffer          files_differ            what came, or is here, is not what is published
    ├── DiskTooSmall         disk_too_small          they do not fit on the disk
    ├── NameTaken            captioner_name_taken    another captioner has the name
    ├── NameRefused          captioner_name_refused  the name cannot be used
    ├── BaseMissing          adapter_base_missing    an adapter without the captioner that it changes
    ├── BaseDiffers          adapter_base_differs    that captioner has other weights than it was trained on
    └── NotInstalled         captioner_not_installed it was not added

docs/pretrained.md lists them all.
"""

from extractors.errors import ReelwordError


class PretrainedError(ReelwordError, code="pretrained_error"):
    """Root of the tree; only its leaves are raised."""

    hint = "docs/pretrained.md says what a folder of a pretrained captioner has."


class NotACaptioner(PretrainedError, code="not_a_captioner"):
    hint = "Name a folder in the Hugging Face format: config.json, tokenizer, processor and *.safetensors."


class UnknownArchitecture(PretrainedError, code="unknown_architecture"):
    hint = "Choose a model of a family that docs/pretrained.md lists."


class RemoteCodeRefused(PretrainedError, code="remote_code_refused"):
    hint = "Choose a model whose code is part of transformers; code that comes with a model is never run."


class PickledWeightsOnly(PretrainedError, code="pickled_weights_only"):
    hint = "Choose a revision of the model that has *.safetensors; pickles can run code and are not opened."


class QuantisedWeights(PretrainedError, code="quantised_weights"):
    hint = "Choose the model as it was before it was quantised: in bfloat16, float16 or float32."


class PretrainedDamaged(PretrainedError, code="pretrained_damaged"):
    hint = "Get the folder again, whole."


class OptionRefused(PretrainedError, ValueError, code="option_refused"):
    """A decoding option that cannot be done as asked. option: its name. why: in words."""

    hint = "Leave the option out, or choose one of Reelword's own captioners, which have them all."

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option}: {why}")
        self.option, self.why = option, why


class NotANumber(PretrainedError, code="not_a_number"):
    hint = "Load the captioner in float32: half precision may overflow in it."


# Between a captioner's name and its folder: models/pretrained/hub.py and installed.py.


class NoSuchCaptioner(PretrainedError, code="hub_id_unknown"):
    hint = "Name a folder in the Hugging Face format, or a model as OWNER/NAME or OWNER/NAME@REVISION."


class GatedCaptioner(PretrainedError, code="hub_id_gated"):
    hint = "Accept its terms on its page, then set HF_TOKEN to a token of that account and try again."


class HubUnreachable(PretrainedError, code="hub_unreachable"):
    hint = (
        "Run the command again where the hub answers, and it goes on where it stopped; or set HF_ENDPOINT to "
        "a hub that does, or name a folder that has the captioner's files."
    )


class DownloadsForbidden(PretrainedError, code="downloads_forbidden"):
    hint = "Copy the folder here and name that instead."
    operator_hint = "Or unset REELWORD_OFFLINE."


class FilesDiffer(PretrainedError, code="files_differ"):
    hint = "Remove it (reelword captioners remove NAME) and add it again."


class DiskTooSmall(PretrainedError, code="disk_too_small"):
    hint = "Free space on the disk of the data folder."
    operator_hint = "Or set REELWORD_DATA to a folder on a larger one."


class NameTaken(PretrainedError, code="captioner_name_taken"):
    hint = "Choose another name with --name, or remove the other: reelword captioners remove NAME."


class NameRefused(PretrainedError, code="captioner_name_refused"):
    hint = "Use letters, digits, dots, hyphens and underscores, at most 64, beginning with a letter or digit."


class NotInstalled(PretrainedError, code="captioner_not_installed"):
    hint = "reelword captioners list shows what is installed."


class BaseMissing(PretrainedError, code="adapter_base_missing"):
    hint = (
        "Add the base first: reelword captioners add ID --name NAME, by the id and the name that are named."
    )


class BaseDiffers(PretrainedError, code="adapter_base_differs"):
    hint = "Add the base at the revision that the adapter was trained on, or train the adapter anew."
