"""GIT (Wang et al. 2022) for video: a decoder that reads the image tokens of six frames before its words.

All image tokens stand before the caption in one self-attention. A word's attention is that from the place
that writes it to the image tokens; the class token of each frame, which sees no single place, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, GitForCausalLM
from transformers.modeling_outputs import BaseModelOutput

from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.pretrained.captioner import PretrainedCaptioner, ReadBack
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.folder import PretrainedInfo
from models.pretrained.opening import LoadSettings, PixelProcessor, open_model, open_tokenizer, special_tokens
from models.pretrained.options import SpecialTokens
from models.pretrained.token_map import TokenMap, covered, grid_keys


@dataclass(frozen=True, eq=False)
class GitFrames:
    """Encoded videos. hidden: (B · T, 1 + cells, C), of the image encoder. rows: (B, T), where in it."""

    hidden: Tensor
    rows: Tensor


class _EncodedFrames(nn.Module):
    """Stands in the image encoder's place and takes rows of encoded frames for pixels.

    transformers repeats a video's pixels for every beam and encodes them anew in every pass; like this each
    frame is encoded once.
    """

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self._hidden = hidden

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutput:
        """pixel_values: (R, 1, 1, 1), rows of the encoded frames."""
        return BaseModelOutput(last_hidden_state=self._hidden[pixel_values.flatten().long()])


class GitCaptioner(PretrainedCaptioner[GitFrames]):
    """A ``GitForCausalLM``; one without temporal embeddings is shown the middle frame."""

    @classmethod
    def open(cls, info: PretrainedInfo, settings: LoadSettings) -> Self:
        """Loads it from its folder. Raises PretrainedDamaged."""
        model = open_model(GitForCausalLM, info, settings)
        return cls(info, model, open_tokenizer(info), PixelProcessor.open(info), settings)

    def __init__(
        self,
        info: PretrainedInfo,
        model: Any,
        tokenizer: Any,
        pixels: PixelProcessor,
        settings: LoadSettings,
    ) -> None:
        """Takes over a loaded model.

        Args:
            info: What its folder holds.
            model: ``GitForCausalLM``.
            tokenizer: The model's.
            pixels: Makes pixels of frames; kept as ``pixels``.
            settings: As it was loaded.
        """
        super().__init__(info, model, tokenizer, settings.attention)
        self.pixels = pixels
        self._tokens = special_tokens(model, tokenizer)
        self._side = model.config.vision_config.image_size // model.config.vision_config.patch_size

    @cached_property
    def request(self) -> DecodeRequest:
        frames = self.model.config.num_image_with_embedding or 1
        return DecodeRequest(Sampling(frames), short_side=self.pixels.short_side)

    @property
    def tokens(self) -> SpecialTokens:
        return self._tokens

    def _encode(self, videos: Sequence[ChosenFrames], prompt: str | None) -> GitFrames:  # noqa: ARG002
        hidden = []
        for video in videos:
            pixels = self.pixels(video.pixels).to(self.device, self.model.dtype)
            hidden.append(self.model.git.image_encoder(pixels).last_hidden_state)
        rows = torch.arange(sum(map(len, videos)), device=self.device, dtype=torch.float32)
        return GitFrames(torch.cat(hidden), rows.view(len(videos), -1))

    def _generate(self, encoded: GitFrames, config: GenerationConfig) -> Tensor:
        with self._reading(encoded):
            written: Tensor = self.model.generate(
                input_ids=self._starts(len(encoded.rows)),
                pixel_values=self._as_pixels(encoded.rows),
                generation_config=config,
            )
        return written[:, 1:]

    def _read_back(self, encoded: GitFrames, tokens: Tensor, with_attention: bool) -> ReadBack:
        rows = encoded.rows.repeat_interleave(len(tokens) // len(encoded.rows), 0)
        given = torch.cat([self._starts(len(tokens)), tokens[:, :-1]], 1)
        recorder = self._recorder(slice(-given.shape[1], None))
        with self._reading(encoded), recorder if with_attention else nullcontext():
            output = self.model(
                input_ids=given,
                pixel_values=self._as_pixels(rows),
                use_cache=False,
                logits_to_keep=given.shape[1],
            )
        return ReadBack(output.logits, recorder.weights() if with_attention else None)

    def _attention_modules(self) -> Sequence[nn.Module]:
        return [layer.attention.self for layer in self.model.git.encoder.layer]

    def _token_map(self, encoded: GitFrames, video: int, frames: ChosenFrames) -> TokenMap:  # noqa: ARG002
        vision = self.model.config.vision_config
        view = covered(self.pixels.geometry.view(*frames.size), vision.image_size, vision.patch_size)
        keys = grid_keys(len(frames), self._side**2, each=1)
        return TokenMap(keys, self._side, self._side, view)

    @contextmanager
    def _reading(self, encoded: GitFrames) -> Iterator[None]:
        """While it lasts, the model takes rows of encoded frames for pixels."""
        encoder = self.model.git.image_encoder
        self.model.git.image_encoder = _EncodedFrames(encoded.hidden)
        try:
            yield
        finally:
            self.model.git.image_encoder = encoder

    def _as_pixels(self, rows: Tensor) -> Tensor:
        """(R, T, 1, 1, 1), or (R, 1, 1, 1) for a model of pictures, as the model takes pixels."""
        of_video = self.model.config.num_image_with_embedding is not None
        return rows[:, :, None, None, None] if of_video else rows[:, :, None, None]

    def _starts(self, rows: int) -> Tensor:
        return torch.full((rows, 1), self._tokens.start or 0, device=self.device)
