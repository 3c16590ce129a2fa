"""Vision encoder-decoders: any image or video encoder whose output a language model reads by cross-attention.

Video encoders (TimeSformer, VideoMAE) see all frames together. Image encoders (ViT, DeiT, BEiT, Swin)
see them one by one, and what they make of them is laid behind each other as one memory, as with BLIP.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, VisionEncoderDecoderModel
from transformers.modeling_outputs import BaseModelOutput

from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.errors import PretrainedDamaged, UnknownArchitecture
from models.pretrained.families.pixels import FRAMES, PixelCaptioner
from models.pretrained.folder import PretrainedInfo
from models.pretrained.opening import LoadSettings, special_tokens
from models.pretrained.options import SpecialTokens
from models.pretrained.token_map import TokenMap, covered, grid_keys

#: ``model_type`` of an image encoder → tokens before its cells that see no single place.
IMAGE_ENCODERS = {"vit": 1, "deit": 2, "beit": 1, "swin": 0}
VIDEO_ENCODERS = ("timesformer", "videomae")
DECODERS = ("gpt2", "bert", "roberta")


class EncoderDecoderCaptioner(PixelCaptioner[Tensor]):
    """A ``VisionEncoderDecoderModel``; encoded videos are (B, keys, C)."""

    model_class = VisionEncoderDecoderModel
    cross_attention = True

    @classmethod
    def open(cls, info: PretrainedInfo, settings: LoadSettings) -> Self:
        """Loads it from its folder. Raises PretrainedDamaged, UnknownArchitecture."""
        encoder, decoder = (info.config.get(part, {}).get("model_type") for part in ("encoder", "decoder"))
        if encoder not in (*IMAGE_ENCODERS, *VIDEO_ENCODERS) or decoder not in DECODERS:
            architectures = f"{', '.join((*IMAGE_ENCODERS, *VIDEO_ENCODERS))} with {', '.join(DECODERS)}"
            raise UnknownArchitecture(
                f"{info.folder} is a {encoder} with a {decoder}; opened here are {architectures}."
            )
        if info.config["encoder"].get("attention_type") == "space_only":
            raise PretrainedDamaged(f"{info.folder}: a TimeSformer without attention over time is not opened")
        return super().open(info, settings)

    @property
    def _encoder(self) -> Any:
        return self.model.config.encoder

    @property
    def has_fixed_length(self) -> bool:
        return self._encoder.model_type in VIDEO_ENCODERS

    @property
    def frames(self) -> int:
        return int(self._encoder.num_frames) if self.has_fixed_length else self._settings.frames or FRAMES

    @cached_property
    def tokens(self) -> SpecialTokens:
        generation, config = self.model.generation_config, self.model.config
        starts = (generation.decoder_start_token_id, getattr(config, "decoder_start_token_id", None))
        start = next((each for each in starts if each is not None), config.decoder.bos_token_id)
        return special_tokens(self.model, self.tokenizer, start)

    def _encode(self, videos: Sequence[ChosenFrames], prompt: str | None) -> Tensor:  # noqa: ARG002
        return torch.cat([self._encode_video(video) for video in videos])

    def _encode_video(self, video: ChosenFrames) -> Tensor:
        pixels, of_video = self._to_pixels(video), self.has_fixed_length
        hidden: Tensor = self.model.encoder(pixels[None] if of_video else pixels).last_hidden_state
        return hidden if of_video else hidden.flatten(0, 1)[None]

    def _generate(self, encoded: Tensor, config: GenerationConfig) -> Tensor:
        start = self._start_tokens(len(encoded))
        written: Tensor = self.model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
            decoder_input_ids=start,
            decoder_attention_mask=torch.ones_like(start),
            attention_mask=encoded.new_ones(encoded.shape[:2], dtype=torch.long),
            generation_config=config,
        )
        return written[:, 1:]

    def _predict(self, encoded: Tensor, tokens: Tensor, recording: AbstractContextManager[Any]) -> Tensor:
        memory = encoded.repeat_interleave(len(tokens) // len(encoded), 0)
        previous = torch.cat([self._start_tokens(len(tokens)), tokens[:, :-1]], 1)
        with recording:
            output = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=memory),
                decoder_input_ids=previous,
                decoder_attention_mask=torch.ones_like(previous),
                use_cache=False,
            )
        logits: Tensor = output.logits
        return logits

    def attention_modules(self) -> Sequence[nn.Module]:
        decoder = self.model.decoder
        if decoder.config.model_type == "gpt2":
            return [layer.crossattention for layer in decoder.transformer.h]
        return [
            layer.crossattention.self for layer in getattr(decoder, decoder.base_model_prefix).encoder.layer
        ]

    def _token_map(self, encoded: Tensor, video: int, frames: ChosenFrames) -> TokenMap:  # noqa: ARG002
        kind, pixels, patch = self._encoder.model_type, _side(self._encoder.image_size), self._patch
        side = pixels // patch
        view = covered(self.pixels.geometry.view(*frames.size), pixels, patch)
        if kind in IMAGE_ENCODERS:
            return TokenMap(grid_keys(len(frames), side**2, each=IMAGE_ENCODERS[kind]), side, side, view)
        if kind == "timesformer":  # all moments of the first cell, then those of the second, ...
            keys = 1 + np.arange(side**2 * len(frames)).reshape(side**2, len(frames)).T
            return TokenMap(keys, side, side, view)
        each = int(self._encoder.tubelet_size)
        return TokenMap(grid_keys(len(frames) // each, side**2), side, side, view, frames_each=each)

    @property
    def _patch(self) -> int:
        """Pixels of a cell's edge."""
        merged = 2 ** (len(self._encoder.depths) - 1) if self._encoder.model_type == "swin" else 1
        return _side(self._encoder.patch_size) * merged


def _side(size: Any) -> int:
    """Returns the side of a size that is a number or two equal ones."""
    return int(size[0] if isinstance(size, list | tuple) else size)
