"""Video-language models: a prompt of text and frames with their times, answered by a language model.

Visual tokens stand in the prompt, and a word's attention is that from the place that writes it to them.
Frames are encoded once for all beams and for reading back. Prompts of a batch are padded on the left; they
are read back without padding, one video after another, since a long prompt's eager attention is large.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AutoModelForImageTextToText, GenerationConfig
from transformers.video_utils import VideoMetadata

from extractors.features import WHOLE, Frames
from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.pretrained.captioner import PretrainedCaptioner, ReadBack
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.errors import PretrainedDamaged
from models.pretrained.folder import PretrainedInfo
from models.pretrained.memory import FRAMES
from models.pretrained.opening import LoadSettings, open_model, open_processor, special_tokens
from models.pretrained.options import SpecialTokens
from models.pretrained.token_map import TokenMap

#: What a model is asked unless ``LoadSettings`` or the caller has another question.
PROMPT = "Describe this video in one short sentence."
#: Of frames for models that take any size: their own limits are for large GPUs.
SHORT_SIDE = 360
#: Processors refuse frames 200 times as long as wide, and one of a single pixel.
LONGEST_SHAPE, LEAST_SIDE = 100, 28
#: Processors get frames as if a second had so many, so that times stay what they are.
TICKS = 1000
#: Tensors of a prompt that are as long as its tokens, and what pads them beside the pad token.
ALONG_TOKENS = ("input_ids", "attention_mask", "mm_token_type_ids")


@dataclass(frozen=True, eq=False)
class Prompt:
    """One video's prompt."""

    along: Mapping[str, Tensor]  #: tensors (1, S) by name
    beside: Mapping[str, Tensor]  #: others that the model is given with it
    visual: Any  #: the encoder's output, as transformers has it
    grid: tuple[int, int, int]  #: (moments, rows, columns) of visual tokens

    @property
    def ids(self) -> Tensor:
        """(1, S), the prompt's tokens."""
        return self.along["input_ids"]


class VideoLanguageCaptioner(PretrainedCaptioner[list[Prompt]]):
    """Any of SmolVLM2, Qwen2.5-VL, Qwen3-VL and InternVL."""

    takes_prompt = True

    @classmethod
    def open(cls, info: PretrainedInfo, settings: LoadSettings) -> Self:
        """Loads it from its folder. Raises PretrainedDamaged."""
        processor = open_processor(info)
        return cls(info, open_model(AutoModelForImageTextToText, info, settings, "sdpa"), processor, settings)

    def __init__(self, info: PretrainedInfo, model: Any, processor: Any, settings: LoadSettings) -> None:
        """Takes over a loaded model of ``AutoModelForImageTextToText``. processor: has a chat template."""
        super().__init__(info, model, processor.tokenizer, settings.attention)
        self.processor = processor
        self._frames, self._prompt = settings.frames or FRAMES, settings.prompt or PROMPT
        self._modality = "video" if getattr(model.config, "video_token_id", None) is not None else "image"
        self._visual_token = getattr(model.config, f"{self._modality}_token_id")
        if not (info.folder / "processor_config.json").is_file():
            _set_frame_tokens(processor, model.config)
        self._chat(self._prompt)

    @cached_property
    def request(self) -> DecodeRequest:
        wants = self.processor.video_processor
        most = min(self._frames, getattr(wants, "max_frames", None) or wants.num_frames or self._frames)
        sampling = Sampling(fps=wants.fps, max_frames=most) if wants.fps else Sampling(most)
        return DecodeRequest(sampling, short_side=_short_side(wants))

    @cached_property
    def tokens(self) -> SpecialTokens:
        return special_tokens(self.model, self.tokenizer)

    @property
    def _before_text(self) -> str:
        """A space where the template ends in a word ("Assistant:"), and nothing after a line break."""
        return "" if self._chat(self._prompt)[-1:].isspace() else " "

    def _choose(self, video: Frames) -> ChosenFrames:
        return _widen(ChosenFrames.of(video, self.sampling, self._frames_each))

    @property
    def _frames_each(self) -> int:
        """Frames that the encoder makes one moment of."""
        return int(getattr(self.processor.video_processor, "temporal_patch_size", None) or 1)

    def _encode(self, videos: Sequence[ChosenFrames], prompt: str | None) -> list[Prompt]:
        text = self._chat(prompt or self._prompt)
        return [self._encode_prompt(text, video) for video in videos]

    def _chat(self, prompt: str) -> str:
        """Writes the conversation by the model's template. Raises PretrainedDamaged without a template."""
        messages = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": prompt}]}]
        try:
            text: str = self.processor.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except ValueError as error:
            raise PretrainedDamaged(f"{self.info.folder} has no chat template that can be used.") from error
        return text

    def _encode_prompt(self, text: str, video: ChosenFrames) -> Prompt:
        inputs = self.processor(
            text=[text],
            videos=[torch.from_numpy(np.ascontiguousarray(video.pixels.transpose(0, 3, 1, 2)))],
            video_metadata=[_metadata(video)],
            do_sample_frames=False,
            return_tensors="pt",
        )
        tensors = {name: value.to(self.device) for name, value in inputs.items() if isinstance(value, Tensor)}
        along = {name: tensors.pop(name) for name in ALONG_TOKENS if name in tensors}
        pixels = {name: tensors.pop(name) for name in tuple(tensors) if name.startswith("pixel_")}
        grids = {name: value for name, value in tensors.items() if name == "video_grid_thw"}
        encode = getattr(self.model, f"get_{self._modality}_features")
        visual = encode(**pixels, **grids, return_dict=True)
        beside = {
            name: value for name, value in tensors.items() if name in ("video_grid_thw", "second_per_grid_ts")
        }
        return Prompt(along, beside, visual, self._grid(along["input_ids"], grids, video))

    def _grid(self, ids: Tensor, grids: Mapping[str, Tensor], video: ChosenFrames) -> tuple[int, int, int]:
        """Returns (moments, rows, columns) of the prompt's visual tokens. Raises PretrainedDamaged."""
        visual = int((ids == self._visual_token).sum())
        if grids:
            merged = self.processor.video_processor.merge_size
            moments, rows, columns = (int(side) for side in grids["video_grid_thw"][0])
            grid = (moments, rows // merged, columns // merged)
        else:
            side = round((visual / len(video)) ** 0.5)
            grid = (len(video), side, side)
        if grid[0] * grid[1] * grid[2] != visual:
            raise PretrainedDamaged(f"{visual} visual tokens of {self.name} are no grid of {grid}.")
        return grid

    def _generate(self, encoded: list[Prompt], config: GenerationConfig) -> Tensor:
        longest = max(each.ids.shape[1] for each in encoded)
        written: Tensor = self.model.generate(
            **{name: self._padded_left(encoded, name, longest) for name in encoded[0].along},
            **{name: torch.cat([each.beside[name] for each in encoded]) for name in encoded[0].beside},
            mm_encoder_outputs={self._modality: _joined([each.visual for each in encoded])},
            generation_config=config,
        )
        return written[:, longest:]

    def _padded_left(self, encoded: Sequence[Prompt], name: str, longest: int) -> Tensor:
        value = self.tokens.pad if name == "input_ids" else 0
        rows = [each.along[name] for each in encoded]
        return torch.cat([pad(row, (longest - row.shape[1], 0), value=value) for row in rows])

    def _read_back(self, encoded: list[Prompt], tokens: Tensor, with_attention: bool) -> ReadBack:
        read_alone, rows = super()._read_back, torch.split(tokens, len(tokens) // len(encoded))
        with self._eager() if with_attention else nullcontext():
            read = [
                read_alone([each], part, with_attention) for each, part in zip(encoded, rows, strict=True)
            ]
        logits = torch.cat([part.logits for part in read])
        attentions = [part.attention for part in read if part.attention is not None]
        widest = max((part.shape[2] for part in attentions), default=0)
        padded = [pad(part, (0, widest - part.shape[2])) for part in attentions]
        return ReadBack(logits, torch.cat(padded) if padded else None)

    def _predict(
        self, encoded: list[Prompt], tokens: Tensor, recording: AbstractContextManager[Any]
    ) -> Tensor:
        """Reads all captions of one video after its prompt."""
        [prompt], rows = encoded, len(tokens)
        token_inputs = {
            name: torch.cat([value.expand(rows, -1), _behind(name, tokens[:, :-1])], 1)
            for name, value in prompt.along.items()
        }
        with recording:
            output = self.model(
                **token_inputs,
                **{name: torch.cat([value] * rows) for name, value in prompt.beside.items()},
                mm_encoder_outputs={self._modality: _joined([prompt.visual] * rows)},
                use_cache=False,
                logits_to_keep=tokens.shape[1],
            )
        logits: Tensor = output.logits
        return logits

    @contextmanager
    def _eager(self) -> Iterator[None]:
        """Lets the language model's attention return its weights while it lasts; the search runs without."""
        self.model.set_attn_implementation({"text_config": "eager"})
        try:
            yield
        finally:
            self.model.set_attn_implementation({"text_config": "sdpa"})

    def attention_modules(self) -> Sequence[nn.Module]:
        return [layer.self_attn for layer in self.model.get_decoder().layers]

    def _token_map(self, encoded: list[Prompt], video: int, frames: ChosenFrames) -> TokenMap:  # noqa: ARG002
        prompt = encoded[video]
        moments, rows, columns = prompt.grid
        keys = torch.nonzero(prompt.ids[0] == self._visual_token)[:, 0].cpu().numpy().astype(np.int64)
        return TokenMap(keys.reshape(moments, -1), rows, columns, WHOLE, self._frames_each)


def _widen(video: ChosenFrames) -> ChosenFrames:
    """Repeats rows or columns of frames that are thinner than a processor takes; places stay in [0, 1]."""
    least = max(LEAST_SIDE, -(-max(video.size) // LONGEST_SHAPE))
    if min(video.size) >= least:
        return video
    pixels = video.pixels
    for axis, side in enumerate(video.size, 1):
        pixels = pixels.repeat(-(-least // side), axis)
    return replace(video, pixels=pixels)


def _metadata(video: ChosenFrames) -> VideoMetadata:
    ticks = [round(start * TICKS) for start in video.starts]
    height, width = video.size
    total = max(round(video.duration * TICKS), 1)
    return VideoMetadata(total, float(TICKS), width, height, video.duration, frames_indices=ticks)


def _set_frame_tokens(processor: Any, config: Any) -> None:
    """Counts the tokens of a frame by the model, for older folders whose processor does not say them."""
    for name in ("image_seq_len", "image_seq_length"):
        if hasattr(processor, name):
            size, patch = config.vision_config.image_size, config.vision_config.patch_size
            across = (size if isinstance(size, int) else size[0]) // (
                patch if isinstance(patch, int) else patch[0]
            )
            shrunk = getattr(config, "downsample_ratio", None) or 1 / config.scale_factor
            setattr(processor, name, round((across * shrunk) ** 2))


def _short_side(wants: Any) -> int:
    """Pixels of the shorter edge that a video processor makes of frames, where it is always the same."""
    if getattr(wants, "merge_size", None):
        return SHORT_SIDE
    largest = getattr(wants, "max_image_size", None) or {}
    return int(dict(wants.size).get("height") or largest.get("longest_edge") or SHORT_SIDE)


def _behind(name: str, tokens: Tensor) -> Tensor:
    """Continues a tensor of the prompt along written tokens, which are text and all attended to."""
    if name == "input_ids":
        return tokens
    return torch.ones_like(tokens) if name == "attention_mask" else torch.zeros_like(tokens)


def _joined(visual: Sequence[Any]) -> Any:
    """Joins encoders' outputs to one batch's; the originals stay as they are."""
    joined = copy(visual[0])
    joined.pooler_output = _end_to_end([each.pooler_output for each in visual])
    deep = [getattr(each, "deepstack_features", None) for each in visual]
    if deep[0] is not None:
        joined.deepstack_features = [_end_to_end(list(layers)) for layers in zip(*deep, strict=True)]
    return joined


def _end_to_end(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts))
    return [tensor for part in parts for tensor in part]
