"""Extracts features by CLIP, SigLIP or VideoMAE from a folder in the Hugging Face format: ``hub:NAME``.

``reelword weights add OWNER/NAME --as hub:NAME`` brings the folder below the data folder. Size, crop, filter
and normalization are those of the folder's own image processor. Streams: a vector, and the map of patches
after the last layer. CLIP's vector is its image embedding, SigLIP's the pooled one (the same there),
VideoMAE's the mean of all patches of a window of so many frames as it was trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from extractors.engines.engine import UnbuiltModule
from extractors.extractor import ExtractorOptions
from extractors.files import digest_of, sha256_of
from extractors.preprocessing.images import ResizeAndCrop
from extractors.preprocessing.processors import resize_and_crop
from extractors.pretrained.errors import WeightsDamaged, WeightsMissing, WrongCheckpoint
from extractors.pretrained.hub_folder import CLOSED, quieten_transformers
from extractors.pretrained.load import SEEDED, build_seeded
from extractors.pretrained.weights_folder import COMMAND, HUB, WeightsFolder
from extractors.windowing.network_extractor import NetworkExtractor, NetworkPlan, NormalizeStacks
from extractors.windows import Windows

#: ``model_type`` of the part that sees → its class in transformers.
CLASSES: Mapping[str, str] = {
    "clip_vision_model": "CLIPVisionModelWithProjection",
    "siglip_vision_model": "SiglipVisionModel",
    "videomae": "VideoMAEModel",
}
#: VideoMAE was trained on every fourth frame of 30 a second.
VIDEO_RATE = 30 / 4


class EncoderFromBytes(nn.Module):
    """Runs an encoder on windows of bytes (N, S, h, w, 3).

    Returns the vector (N, C) and the map's cells row by row, of several steps of time their mean.
    """

    def __init__(self, network: nn.Module, normalised: NormalizeStacks, cells: int) -> None:
        super().__init__()
        self.network, self.normalised, self.cells = network, normalised, cells

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor]:
        clips = self.normalised(stacks)
        if isinstance(self.network, transformers.VideoMAEModel):
            tokens: Tensor = self.network(pixel_values=clips.transpose(1, 2)).last_hidden_state
            steps = tokens.shape[1] // self.cells
            return tokens.mean(1), tokens.reshape(-1, steps, self.cells, tokens.shape[2]).mean(1)
        output = self.network(pixel_values=clips.squeeze(2))
        vector = output.image_embeds if "image_embeds" in output else output.pooler_output
        return vector, output.last_hidden_state[:, -self.cells :]


@dataclass(frozen=True)
class HubEncoder:
    """Describes an encoder that is not loaded."""

    folder: Path
    config: Any  #: transformers', of the part that sees
    width: int  #: channels of the vector
    channels: int  #: of the map
    cells: int  #: of the map, a square
    frames: int  #: of a window: one of an encoder of pictures

    @property
    def kind(self) -> str:
        """Names its class in transformers."""
        return CLASSES[self.config.model_type]

    def make(self, name: str, options: ExtractorOptions) -> NetworkExtractor:
        """Makes the extractor of that name. Raises WeightsDamaged."""
        framing, mean, deviation = self._read_processor()
        plan = NetworkPlan(
            name=name,
            network=f"{self.kind} of transformers",
            outputs=("", "_grid"),
            width=self.width,
            framing=framing,
            values=f"RGB, (x / 255 - {mean}) / {deviation}; map: patches after the last layer",
            windows=Windows(self.frames, self.frames, VIDEO_RATE if self.frames > 1 else None),
            least=self.frames,
            most=self.frames,
            batch=(4, 32) if self.frames == 1 else (1, 8),
        )
        seeded = options.weights == SEEDED
        module = UnbuiltModule(
            lambda: EncoderFromBytes(self._load(seeded), NormalizeStacks(mean, deviation), self.cells)
        )
        return NetworkExtractor(plan, module, 0, SEEDED if seeded else self._digest_weights(), options)

    def _digest_weights(self) -> str:
        digests = [sha256_of(file) for file in sorted(self.folder.glob("*.safetensors"))]
        return digests[0] if len(digests) == 1 else digest_of(digests)

    def _read_processor(self) -> tuple[ResizeAndCrop, tuple[float, ...], tuple[float, ...]]:
        with _opening(self.folder):
            processor = transformers.AutoImageProcessor.from_pretrained(self.folder, **CLOSED)
            framing, side = resize_and_crop(processor), self.config.image_size
            framing = framing if framing.crop else replace(framing, crop=side)
            if framing.crop != side or abs(255 * processor.rescale_factor - 1) > 1e-3:
                raise ValueError(f"its processor makes other pictures than of {side} pixels")
            return framing, tuple(processor.image_mean), tuple(processor.image_std)

    def _load(self, seeded: bool) -> nn.Module:
        kind: Any = getattr(transformers, self.kind)
        if seeded:
            blank: nn.Module = build_seeded(lambda: kind(self.config))
            return blank
        with _opening(self.folder):
            network, report = kind.from_pretrained(
                self.folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **CLOSED
            )
            if missing := sorted(report["missing_keys"]):
                raise ValueError(f"it lacks {len(missing)} weights, the first is {missing[0]}")
            module: nn.Module = network.eval()
        return module


def read_encoder(name: str, folder: Path | None = None) -> HubEncoder:
    """Reads what an encoder is, no weights.

    Args:
        name: ``hub:NAME``.
        folder: In which it lies; by default its own below the data folder.

    Raises:
        WeightsMissing: It was not added. WrongCheckpoint, WeightsDamaged: Another model, or no whole folder.
    """
    folder = folder or WeightsFolder.of(None).data / "weights" / "hub" / Path(name.removeprefix(HUB)).name
    if not folder.is_dir():
        raise WeightsMissing(f"{name} is not here: run `{COMMAND} add OWNER/NAME --as {name}`.")
    with _opening(folder):
        config: Any = transformers.AutoConfig.from_pretrained(folder, **CLOSED)
    config = getattr(config, "vision_config", config)
    if config.model_type not in CLASSES:
        raise WrongCheckpoint(f"{folder} is a {config.model_type}; opened here are {', '.join(CLASSES)}.")
    width = config.projection_dim if config.model_type == "clip_vision_model" else config.hidden_size
    cells = (config.image_size // config.patch_size) ** 2
    return HubEncoder(
        folder, config, width, config.hidden_size, cells, frames=getattr(config, "num_frames", 1)
    )


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """Makes the extractor of that name. Raises WeightsError."""
    return read_encoder(name).make(name, options)


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Turns whatever transformers raises for a damaged folder into WeightsDamaged; prints nothing."""
    try:
        with quieten_transformers():
            yield
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise WeightsDamaged(f"The encoder in {folder} cannot be opened: {reason}.") from error
