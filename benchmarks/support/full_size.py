"""Writes folders of pretrained captioners in their published shapes, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessor,
    CLIPImageProcessor,
    GenerationConfig,
    GitConfig,
    GitForCausalLM,
    GPT2Config,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
    TimesformerConfig,
    VideoMAEImageProcessor,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

from models.pretrained.folder import Precision

CHAT = (
    "{% for part in messages[0]['content'] %}"
    "{% if part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ part['text'] }}"
    "{% endif %}{% endfor %}"
)


def write_full_size(folder: Path, name: str, precision: Precision) -> None:
    """Writes one of ``SHAPES``.

    Args:
        folder: Made, and filled with a captioner in the hub's format.
        name: A key of ``SHAPES``.
        precision: Of the weights in the file.
    """
    torch.set_default_dtype(getattr(torch, precision))
    model, processor = SHAPES[name]()
    model.save_pretrained(folder)
    for part in processor:
        part.save_pretrained(folder)


def words(size: int, special: Mapping[str, int], **said: str) -> PreTrainedTokenizerFast:
    """A tokenizer of ``size`` made-up words, with special tokens at their places. said: who is who."""
    names = {place: token for token, place in special.items()}
    vocabulary = {names.get(place, f"word{place}"): place for place in range(size)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="word1"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="word1", **said)
    fast.add_special_tokens({"additional_special_tokens": list(special)})
    return fast


def _git_base() -> tuple[Any, list[Any]]:
    model = GitForCausalLM(GitConfig(num_image_with_embedding=6))
    return model, [words(30522, {"[PAD]": 0}, pad_token="[PAD]"), CLIPImageProcessor()]


def _blip_base() -> tuple[Any, list[Any]]:
    config = BlipConfig(text_config={"num_attention_heads": 12, "encoder_hidden_size": 768})
    return BlipForConditionalGeneration(config), [
        words(30524, {"[PAD]": 0}, pad_token="[PAD]"),
        BlipImageProcessor(),
    ]


def _timesformer_gpt2() -> tuple[Any, list[Any]]:
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(TimesformerConfig(), GPT2Config())
    model = VisionEncoderDecoderModel(config)
    end = GPT2Config().eos_token_id
    model.generation_config = GenerationConfig(decoder_start_token_id=end, eos_token_id=end, pad_token_id=end)
    return model, [
        words(50257, {"<|endoftext|>": 50256}, eos_token="<|endoftext|>"),
        VideoMAEImageProcessor(),
    ]


def _smolvlm2(text: Mapping[str, int]) -> tuple[Any, list[Any]]:
    """Language models of 135 and 360 million behind one image encoder of 93 million."""
    special = {"<image>": 49190, "<video>": 49191, "<fake_token_around_image>": 49189, "<global-img>": 49152}
    special |= {"<end_of_utterance>": 49279, "<pad>": 2}
    tokenizer = words(49280, special, eos_token="<end_of_utterance>", pad_token="<pad>")
    vision = {"hidden_size": 768, "image_size": 512, "patch_size": 16, "num_attention_heads": 12}
    config = SmolVLMConfig(
        text_config={"model_type": "llama", "vocab_size": 49280, "pad_token_id": 2, **text},
        vision_config=vision,
        image_token_id=special["<image>"],
        scale_factor=4,
        tie_word_embeddings=True,
    )
    size = {"longest_edge": 512}
    processor = SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(max_image_size=size),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(
            max_image_size=size,
            size=size,
            video_sampling={"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 512}},
        ),
        image_seq_len=64,
    )
    return SmolVLMForConditionalGeneration(config), [processor]


def _smolvlm2_256m() -> tuple[Any, list[Any]]:
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    return _smolvlm2({**shape, "num_attention_heads": 9, "num_key_value_heads": 3})


def _smolvlm2_500m() -> tuple[Any, list[Any]]:
    shape = {"hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32}
    return _smolvlm2({**shape, "num_attention_heads": 15, "num_key_value_heads": 5})


def _qwen3_vl_2b() -> tuple[Any, list[Any]]:
    special = {"<|endoftext|>": 151643, "<|im_end|>": 151645, "<|vision_start|>": 151652}
    special |= {"<|vision_end|>": 151653, "<|image_pad|>": 151655, "<|video_pad|>": 151656}
    tokenizer = words(151936, special, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    text = {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "head_dim": 128}
    vision = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 2048}
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20]}
    config = Qwen3VLConfig(
        text_config={**text, "num_attention_heads": 16, "num_key_value_heads": 8, "rope_parameters": rope},
        vision_config={**vision, "deepstack_visual_indexes": [5, 11, 17]},
        tie_word_embeddings=True,
    )
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(cap_pixels_per_frame=False),
        chat_template=CHAT,
    )
    return Qwen3VLForConditionalGeneration(config), [processor]


SHAPES: Mapping[str, Callable[[], tuple[Any, list[Any]]]] = {
    "git-base": _git_base,
    "blip-base": _blip_base,
    "timesformer-gpt2": _timesformer_gpt2,
    "smolvlm2-256m": _smolvlm2_256m,
    "smolvlm2-500m": _smolvlm2_500m,
    "qwen3-vl-2b": _qwen3_vl_2b,
}
