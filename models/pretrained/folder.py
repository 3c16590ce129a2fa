"""Reads what a folder in the Hugging Face format holds: its configuration, the headers of its weights.

No weight is loaded and nothing but json, YAML and safetensors headers is parsed, so that a service can list a
captioner, and say what it needs, before it makes room for it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from huggingface_hub import metadata_load
from safetensors import SafetensorError, safe_open
from yaml import YAMLError

from models.pretrained import errors
from models.pretrained.hub import PICKLES
from models.pretrained.installed import InstalledCaptioners, ModelFacts, read_adapter_card
from models.pretrained.memory import working_memory

Family: TypeAlias = Literal["git", "blip", "vision_encoder_decoder", "video_language"]
Precision: TypeAlias = Literal["float32", "bfloat16"]

#: ``model_type`` of config.json → who opens it, as which of transformers' classes.
FAMILIES: Mapping[str, tuple[Family, str]] = {
    "git": ("git", "GitForCausalLM"),
    "blip": ("blip", "BlipForConditionalGeneration"),
    "vision-encoder-decoder": ("vision_encoder_decoder", "VisionEncoderDecoderModel"),
    "smolvlm": ("video_language", "SmolVLMForConditionalGeneration"),
    "qwen2_5_vl": ("video_language", "Qwen2_5_VLForConditionalGeneration"),
    "qwen3_vl": ("video_language", "Qwen3VLForConditionalGeneration"),
    "internvl": ("video_language", "InternVLForConditionalGeneration"),
}
BYTES: Mapping[Precision, int] = {"float32": 4, "bfloat16": 2}
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class PretrainedInfo:
    """Describes a pretrained captioner that is not loaded."""

    folder: Path  #: where it lies; its last part is the captioner's ``name`` unless another was given
    name: str
    family: Family
    architecture: str  #: the class in transformers
    parameters: int  #: numbers in its weights
    #: Bytes that one video with a beam of five takes beside the weights, as the configuration says.
    working: int
    licence: str | None  #: of the README's card, None where it says nothing
    config: Mapping[str, Any]  #: config.json
    adapter: Path | None = None  #: the folder of what is merged into the weights when they are loaded

    def memory(self, precision: Precision = "float32") -> int:
        """Estimates the bytes that it takes when it is loaded and captions one video."""
        return self.parameters * BYTES[precision] + self.working * BYTES[precision] // 4


def read_pretrained_info(folder: Path, name: str | None = None) -> PretrainedInfo:
    """Reads what a folder holds.

    Args:
        folder: In the Hugging Face format, as the hub or ``save_pretrained`` leave it.
        name: The captioner's; by default the folder's.

    Returns:
        The facts; no weight is loaded. Of an adapter they are its base's, beside which it lies.

    Raises:
        BaseMissing, BaseDiffers: It is an adapter of a captioner that is not here as it was.
        NotACaptioner: There is no config.json that says what the model is.
        UnknownArchitecture: No family here opens it.
        RemoteCodeRefused: It brings code of its own.
        PickledWeightsOnly: It has no safetensors.
        QuantisedWeights: They are packed.
        PretrainedDamaged: A file is missing or cut off.
    """
    if (adapter := read_adapter_card(folder)) is not None:
        base = read_pretrained_info(
            InstalledCaptioners(folder.parent).find_base(adapter), name or folder.name
        )
        return replace(base, adapter=folder, licence=read_licence(folder / "README.md") or base.licence)
    config = read_json(folder / "config.json")
    family, architecture = _family(folder, config)
    if packed := config.get("quantization_config"):
        method = packed.get("quant_method") if isinstance(packed, dict) else None
        raise errors.QuantisedWeights(
            f"The weights of {folder} are quantised{f' by {method}' if method else ''}."
        )
    files = weight_files(folder)
    return PretrainedInfo(
        folder=folder,
        name=name or folder.resolve().name,
        family=family,
        architecture=architecture,
        parameters=sum(count_parameters(file) for file in files),
        working=working_memory(config),
        licence=read_licence(folder / "README.md"),
        config=config,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object of the folder.

    Raises NotACaptioner where it is not there, PretrainedDamaged where it cannot be read.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise errors.NotACaptioner(f"{path.parent} has no {path.name}.") from error
    except (OSError, ValueError) as error:
        raise errors.PretrainedDamaged(f"{path} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise errors.PretrainedDamaged(f"{path} holds no JSON object.")
    return content


def _family(folder: Path, config: Mapping[str, Any]) -> tuple[Family, str]:
    """Finds who opens it, as which class; other heads on the same networks write no captions."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise errors.NotACaptioner(f"config.json of {folder} names no model_type.")
    if "auto_map" in config:
        raise errors.RemoteCodeRefused(f"{folder} ({kind}) is opened by code that comes with it.")
    if kind not in FAMILIES:
        raise errors.UnknownArchitecture(f"{folder} is a {kind}; opened here are {', '.join(FAMILIES)}.")
    architectures = config.get("architectures") or [FAMILIES[kind][1]]
    if not isinstance(architectures, list):
        raise errors.PretrainedDamaged(f"config.json of {folder} has no list of architectures.")
    if FAMILIES[kind][1] not in architectures:
        raise errors.UnknownArchitecture(
            f"{folder} is a {architectures[0]}; of {kind}, {FAMILIES[kind][1]} writes captions."
        )
    return FAMILIES[kind]


def weight_files(folder: Path) -> list[Path]:
    """Returns the safetensors files that hold the model.

    Raises PickledWeightsOnly where there are others only, PretrainedDamaged where one is not there.
    """
    if (folder / INDEX).is_file():
        names = _indexed(folder / INDEX)
    elif (folder / WEIGHTS).is_file():
        names = [WEIGHTS]
    elif pickles := sorted(path.name for ending in PICKLES for path in folder.glob(f"*{ending}")):
        raise errors.PickledWeightsOnly(f"{folder} has {', '.join(pickles)} and no {WEIGHTS}.")
    else:
        raise errors.PretrainedDamaged(f"{folder} has no {WEIGHTS}.")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise errors.PretrainedDamaged(f"{folder} lacks {', '.join(missing)}.")
    return [folder / name for name in names]


def _indexed(index: Path) -> list[str]:
    """Names in the index of weights that lie in several files; none may lead out of the folder."""
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise errors.PretrainedDamaged(f"{index} names no files.")
    names = sorted({str(name) for name in shards.values()})
    if outside := [name for name in names if Path(name).name != name or not name.endswith(".safetensors")]:
        raise errors.PretrainedDamaged(
            f"{index} names {outside[0]!r}, which is no safetensors file beside it."
        )
    return names


def count_parameters(file: Path) -> int:
    """Counts the numbers in a safetensors file by its head. Raises PretrainedDamaged."""
    try:
        with safe_open(file, framework="numpy") as tensors:
            return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise errors.PretrainedDamaged(f"{file} is no whole safetensors file: {error}.") from error


def make_facts(folder: Path, family: str, architecture: str, parameters: int) -> ModelFacts:
    """Makes the facts of what a folder holds, in float32, with the licence that its README names.

    Args:
        architecture: the class of its model, or a name of ours.
    """
    licence, memory = read_licence(folder / "README.md") or "", parameters * BYTES["float32"]
    return ModelFacts(
        family=family, architecture=architecture, parameters=parameters, memory=memory, licence=licence
    )


def read_licence(card: Path) -> str | None:
    """Reads the licence from the card's head; a card that cannot be read says nothing."""
    try:
        head = metadata_load(card) if card.is_file() else None
    except (OSError, ValueError, YAMLError):
        return None
    licence = (head or {}).get("license")
    if licence == "other":
        licence = (head or {}).get("license_name") or licence
    return licence if isinstance(licence, str) else None
