"""BLIP (Li et al. 2022): a decoder that looks at encoded pictures by cross-attention.

It was trained on single pictures. A video's frames are encoded one by one and laid after each other as one
memory, over which cross-attention spreads as it does over the cells of one picture: its authors apply it to
videos in this way, without training. Each word so has its weights over frames and cells.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BlipForConditionalGeneration, GenerationConfig

from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.families.pixels import FRAMES, PixelCaptioner
from models.pretrained.options import SpecialTokens


@dataclass(frozen=True, eq=False)
class BlipVideos:
    """Holds encoded videos."""

    memory: Tensor  #: (B, T · (1 + cells), C)
    prefix: Tensor  #: (P,), tokens that come before words


class BlipCaptioner(PixelCaptioner[BlipVideos]):
    """A ``BlipForConditionalGeneration``. A prompt is what a caption continues, and no part of it."""

    model_class = BlipForConditionalGeneration
    takes_prompt = True
    cross_attention = True

    @property
    def frames(self) -> int:
        return self._settings.frames or FRAMES

    @cached_property
    def tokens(self) -> SpecialTokens:
        text = self.model.config.text_config
        return SpecialTokens(
            text.bos_token_id, (text.sep_token_id,), text.pad_token_id, self.tokenizer.unk_token_id
        )

    def _encode(self, videos: Sequence[ChosenFrames], prompt: str | None) -> BlipVideos:
        words = self.tokenizer(prompt or "", add_special_tokens=False)["input_ids"]
        prefix = torch.tensor(words, device=self.device, dtype=torch.long)
        return BlipVideos(torch.stack([self._encode_video(video) for video in videos]), prefix)

    def _encode_video(self, video: ChosenFrames) -> Tensor:
        hidden: Tensor = self.model.vision_model(self._to_pixels(video)).last_hidden_state
        return hidden.flatten(0, 1)

    def _generate(self, encoded: BlipVideos, config: GenerationConfig) -> Tensor:
        memory = encoded.memory
        starts = self._starts(encoded, len(memory))
        written: Tensor = self.model.text_decoder.generate(
            input_ids=starts,
            encoder_hidden_states=memory,
            encoder_attention_mask=memory.new_ones(memory.shape[:2], dtype=torch.long),
            generation_config=config,
        )
        return written[:, starts.shape[1] :]

    def _predict(self, encoded: BlipVideos, tokens: Tensor, recording: AbstractContextManager[Any]) -> Tensor:
        memory = encoded.memory.repeat_interleave(len(tokens) // len(encoded.memory), 0)
        with recording:
            output = self.model.text_decoder(
                input_ids=torch.cat([self._starts(encoded, len(tokens)), tokens[:, :-1]], 1),
                encoder_hidden_states=memory,
                encoder_attention_mask=memory.new_ones(memory.shape[:2], dtype=torch.long),
                is_decoder=True,
                use_cache=False,
            )
        logits: Tensor = output.logits[:, -tokens.shape[1] :]
        return logits

    def attention_modules(self) -> Sequence[nn.Module]:
        return [layer.crossattention.self for layer in self.model.text_decoder.bert.encoder.layer]

    def _starts(self, encoded: BlipVideos, rows: int) -> Tensor:
        """Returns (R, 1 + P), the start token and the prompt."""
        return torch.cat([self._start_tokens(rows), encoded.prefix.expand(rows, -1)], 1)
