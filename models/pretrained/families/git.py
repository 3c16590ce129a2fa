"""GIT (Wang et al. 2022) for video: a decoder that reads the image tokens of six frames before its words.

All image tokens stand before the caption in one self-attention. A word's attention is that from the place
that writes it to the image tokens; the class token of each frame, which sees no single place, is left out.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, GenerationConfig, GitForCausalLM
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPast

from models.pretrained.attention import AttentionRecorder
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.families.pixels import PixelCaptioner
from models.pretrained.opening import special_tokens
from models.pretrained.options import SpecialTokens


@dataclass(frozen=True, eq=False)
class GitFrames:
    """Encoded videos."""

    hidden: Tensor  #: (B · T, 1 + cells, C), of the image encoder
    rows: Tensor  #: (B, T), where in it


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


class _OncePerVideo(nn.Module):
    """Stands in the decoder's place, and reads what all rows of a video begin with once for all of them.

    transformers has every beam read the image tokens for itself. They attend to each other alone, and all
    beams begin with one start token, so that the keys and values of one row are those of all.
    """

    def __init__(self, decoder: Any, videos: int) -> None:
        super().__init__()
        self._decoder, self._videos = decoder, videos
        self.layer = decoder.layer

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, cache: Cache | None = None, **others: Any
    ) -> Any:
        """Passes tokens through the decoder, images once for each video.

        Args:
            hidden_states: (B · rows, tokens, C).
            attention_mask: as the decoder takes it.
            cache: keys and values of each row; without one nothing is shared.
            others: of the decoder.
        """
        each = len(hidden_states) // self._videos
        if each == 1 or hidden_states.shape[1] == 1 or cache is None:
            return self._decoder(hidden_states, attention_mask, cache, **others)
        read = self._decoder(hidden_states[::each], attention_mask[::each], cache, **others)
        cache.batch_repeat_interleave(each)
        return BaseModelOutputWithPast(read.last_hidden_state.repeat_interleave(each, 0), cache=cache)


class GitCaptioner(PixelCaptioner[GitFrames]):
    """A ``GitForCausalLM``; one without temporal embeddings is shown the middle frame."""

    model_class = GitForCausalLM

    @property
    def frames(self) -> int:
        return int(self.model.config.num_image_with_embedding or 1)

    @cached_property
    def tokens(self) -> SpecialTokens:
        return special_tokens(self.model, self.tokenizer)

    def _encode(self, videos: Sequence[ChosenFrames], prompt: str | None) -> GitFrames:  # noqa: ARG002
        encoder = self.model.git.image_encoder
        hidden = [encoder(self._to_pixels(video)).last_hidden_state for video in videos]
        rows = torch.arange(sum(map(len, videos)), device=self.device, dtype=torch.float32)
        return GitFrames(torch.cat(hidden), rows.view(len(videos), -1))

    def _generate(self, encoded: GitFrames, config: GenerationConfig) -> Tensor:
        git = self.model.git
        with self._reading(encoded), _in_place_of(git, encoder=_OncePerVideo(git.encoder, len(encoded.rows))):
            written: Tensor = self.model.generate(
                input_ids=self._start_tokens(len(encoded.rows)),
                pixel_values=self._as_pixels(encoded.rows),
                generation_config=config,
            )
        return written[:, 1:]

    def _predict(self, encoded: GitFrames, tokens: Tensor, recording: AbstractContextManager[Any]) -> Tensor:
        previous = torch.cat([self._start_tokens(len(tokens)), tokens[:, :-1]], 1)
        each = len(tokens) // len(encoded.rows)
        is_rolled = self.choice.rollout and isinstance(recording, AttentionRecorder)
        with self._reading(encoded):
            read = self._read_whole if is_rolled else self._read_behind_images
            return read(encoded, previous, each, recording)

    def _read_whole(
        self, encoded: GitFrames, given: Tensor, each: int, recording: AbstractContextManager[Any]
    ) -> Tensor:
        """Reads images and texts in one pass, for a rollout, which goes through the images' attention too."""
        pixels = self._as_pixels(encoded.rows.repeat_interleave(each, 0))
        with recording:
            output = self.model(
                input_ids=given, pixel_values=pixels, use_cache=False, logits_to_keep=given.shape[1]
            )
        logits: Tensor = output.logits
        return logits

    def _read_behind_images(
        self, encoded: GitFrames, given: Tensor, each: int, recording: AbstractContextManager[Any]
    ) -> Tensor:
        """Reads the images once for each video, and all texts of a video after them."""
        starts, pixels = self._start_tokens(len(encoded.rows)), self._as_pixels(encoded.rows)
        cache = self.model.git(input_ids=starts, pixel_values=pixels, use_cache=True).cache
        cache.crop(-1)  # without the start token, which is read with each text
        cache.batch_repeat_interleave(each)
        places = torch.arange(given.shape[1], device=self.device)[None]
        with recording:
            output = self.model(input_ids=given, position_ids=places, cache=cache)
        logits: Tensor = output.logits
        return logits

    def attention_modules(self) -> Sequence[nn.Module]:
        return [layer.attention.self for layer in self.model.git.encoder.layer]

    def _reading(self, encoded: GitFrames) -> AbstractContextManager[None]:
        """Lets the model take rows of encoded frames for pixels while it lasts."""
        return _in_place_of(self.model.git, image_encoder=_EncodedFrames(encoded.hidden))

    def _as_pixels(self, rows: Tensor) -> Tensor:
        """Returns (R, T, 1, 1, 1), or (R, 1, 1, 1) for a model of pictures, as the model takes pixels."""
        of_video = self.model.config.num_image_with_embedding is not None
        return rows[:, :, None, None, None] if of_video else rows[:, :, None, None]


@contextmanager
def _in_place_of(model: nn.Module, **modules: nn.Module) -> Iterator[None]:
    """Puts modules into the places of a model's own while it lasts."""
    originals = {name: getattr(model, name) for name in modules}
    for name, module in modules.items():
        setattr(model, name, module)
    try:
        yield
    finally:
        for name, module in originals.items():
            setattr(model, name, module)
