"""Opens the parts of a folder with transformers: offline, without remote code, from safetensors alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer

from extractors.errors import PackageMissing
from extractors.preprocessing.images import ResizeAndCrop
from extractors.preprocessing.processors import resize_and_crop
from extractors.pretrained.hub_folder import CLOSED, quieten_transformers
from models.pretrained.adapters.merging import merge_adapter
from models.pretrained.attention import AttentionChoice
from models.pretrained.errors import PretrainedDamaged, PretrainedError
from models.pretrained.folder import Precision, PretrainedInfo
from models.pretrained.options import SpecialTokens

#: Any of them holds a tokenizer's vocabulary; without one, transformers would make an empty tokenizer.
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)


@dataclass(frozen=True)
class LoadSettings:
    """Describes how a captioner is loaded."""

    device: str = "cpu"  #: where to
    precision: Precision = "float32"  #: of its weights
    attention: AttentionChoice = field(default_factory=AttentionChoice)  #: what is shown of it
    #: How many frames it is shown at most, where its kind leaves that open; None for its own number.
    frames: int | None = None
    prompt: str | None = None  #: what a video-language model is asked; None for ours


@contextmanager
def name_damage(what: str) -> Iterator[None]:
    """Turns whatever transformers raises for a damaged folder into one named error. what: cannot be done."""
    try:
        yield
    except (PretrainedError, PackageMissing):
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise PretrainedDamaged(f"{what}: {reason}") from error


@contextmanager
def _opening(folder: Path, what: str) -> Iterator[None]:
    """Names what cannot be opened; prints nothing."""
    with quieten_transformers(), name_damage(f"The {what} of {folder} cannot be opened"):
        yield


def open_model(
    model_class: Any, info: PretrainedInfo, settings: LoadSettings, attention: str = "eager"
) -> Any:
    """Loads a model in eval mode.

    Args:
        model_class: Of transformers.
        info: Where it lies.
        settings: Device and precision.
        attention: Which implementation of attention it runs; "eager" shows its weights.

    Returns:
        The model.

    Raises:
        PretrainedDamaged: A weight is missing, of another shape or unreadable.
        PackageMissing: It has an adapter, and peft is not installed.
    """
    with _opening(info.folder, "model"):
        model, report = model_class.from_pretrained(
            info.folder,
            dtype=getattr(torch, settings.precision),
            attn_implementation=attention,
            use_safetensors=True,
            output_loading_info=True,
            **CLOSED,
        )
        if missing := sorted(report["missing_keys"]):
            raise PretrainedDamaged(f"{info.folder} lacks {len(missing)} weights, the first is {missing[0]}.")
    if info.adapter is not None:
        with _opening(info.adapter, "adapter"):
            model = merge_adapter(model, info.adapter)
    return model.to(settings.device).eval()


def open_tokenizer(info: PretrainedInfo) -> Any:
    """Opens the folder's tokenizer. Raises PretrainedDamaged."""
    if not any((info.folder / name).is_file() for name in VOCABULARIES):
        raise PretrainedDamaged(f"{info.folder} has no tokenizer.")
    with _opening(info.folder, "tokenizer"):
        return AutoTokenizer.from_pretrained(info.folder, **CLOSED)


def open_processor(info: PretrainedInfo) -> Any:
    """Opens the folder's processor of text and videos together. Raises PretrainedDamaged."""
    open_tokenizer(info)
    with _opening(info.folder, "processor"):
        processor: Any = AutoProcessor.from_pretrained(info.folder, **CLOSED)
        # older folders have the template in tokenizer_config.json, as a text or as a list of named ones
        processor.chat_template = processor.chat_template or processor.tokenizer.chat_template
        return processor


def special_tokens(model: Any, tokenizer: Any, start: int | None = None) -> SpecialTokens:
    """Returns the special tokens that a model ends, pads and begins captions with.

    Args:
        model: Its generation configuration comes first.
        tokenizer: Asked where that says nothing.
        start: The token that a caption begins with, where the model's kind has its own place for it.

    Returns:
        The ids.

    Raises:
        PretrainedDamaged: No end token is named.
    """
    generation = model.generation_config
    end = generation.eos_token_id if generation.eos_token_id is not None else tokenizer.eos_token_id
    ends = tuple(end) if isinstance(end, list | tuple) else (end,)
    if ends == (None,):
        raise PretrainedDamaged("Neither the model nor the tokenizer names a token that ends a caption.")
    pad = next(
        (each for each in (generation.pad_token_id, tokenizer.pad_token_id) if each is not None), ends[0]
    )
    start = generation.bos_token_id if start is None else start
    unknown = tokenizer.unk_token_id
    return SpecialTokens(start, ends, pad, None if unknown in (*ends, pad, start) else unknown)


@dataclass(frozen=True, eq=False)
class PixelProcessor:
    """Makes pixels of frames as an image processor of transformers does."""

    processor: Any
    geometry: ResizeAndCrop  #: which part of a frame is left of it, and how large

    @classmethod
    def open(cls, info: PretrainedInfo) -> Self:
        """Opens the folder's processor. Raises PretrainedDamaged."""
        with _opening(info.folder, "image processor"):
            processor = AutoImageProcessor.from_pretrained(info.folder, **CLOSED)
            return cls(processor, resize_and_crop(processor))

    @property
    def short_side(self) -> int:
        """Pixels of the shorter edge below which frames would have to be enlarged."""
        size = self.geometry.size
        return size if isinstance(size, int) else max(size)

    def __call__(self, frames: NDArray[np.uint8]) -> Tensor:
        """Turns frames uint8 (T, H, W, 3) into float32 (T, 3, h, w)."""
        pictures = list(torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2))
        processed = self.processor(pictures, input_data_format="channels_first", return_tensors="pt")
        pixels: Tensor = processed["pixel_values"]
        return pixels.flatten(0, 1) if pixels.ndim == 5 else pixels
