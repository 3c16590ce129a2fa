"""Opens a folder in the Hugging Face format as a captioner of its family."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from extractors.features import Frames
from models.decoding.options import DecodingOptions
from models.pretrained.captioner import PretrainedCaptioner
from models.pretrained.families.blip import BlipCaptioner
from models.pretrained.families.git import GitCaptioner
from models.pretrained.families.video_language import VideoLanguageCaptioner
from models.pretrained.families.vision_encoder_decoder import EncoderDecoderCaptioner
from models.pretrained.folder import Family, PretrainedInfo, read_pretrained_info
from models.pretrained.opening import LoadSettings, name_damage

AnyPretrainedCaptioner: TypeAlias = PretrainedCaptioner[Any]

CLASSES: Mapping[Family, Any] = {
    "git": GitCaptioner,
    "blip": BlipCaptioner,
    "vision_encoder_decoder": EncoderDecoderCaptioner,
    "video_language": VideoLanguageCaptioner,
}


#: A grey picture of ordinary size, of which any captioner says something.
GREY = Frames(np.full((1, 240, 320, 3), 127, np.uint8), np.zeros(1), 1.0)


def try_pretrained_captioner(info: PretrainedInfo) -> None:
    """Loads a captioner and captions one frame. Raises PretrainedError: it would not caption anything."""
    captioner = load_pretrained_captioner(info)
    with name_damage(f"{info.folder} is opened and cannot caption a frame"):
        captioner.caption([GREY], DecodingOptions(beam_size=1, max_length=3, attention=False))


def load_pretrained_captioner(
    folder: Path | PretrainedInfo, settings: LoadSettings | None = None
) -> AnyPretrainedCaptioner:
    """Loads a pretrained captioner of a folder in the Hugging Face format, by default in float32 on the CPU.

    Raises what ``read_pretrained_info`` does, and PretrainedDamaged where a file does not fit the others.
    """
    info = folder if isinstance(folder, PretrainedInfo) else read_pretrained_info(folder)
    captioner: AnyPretrainedCaptioner = CLASSES[info.family].open(info, settings or LoadSettings())
    return captioner
