"""Makes folders of small video-language models with random weights, in the hub's format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    InternVLVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

from tests.models.pretrained.tiny_folders import PIECES

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}VIDEO{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.3,
}
QWEN = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
SMOL = ("<image>", "<video>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
INTERN = ("<img>", "</img>", "<IMG_CONTEXT>", "<video>")


def byte_tokenizer(special: tuple[str, ...], **said: str) -> PreTrainedTokenizerFast:
    """A token for every byte, one for each word of the tests, and the model's own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: place for place, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(words, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    own = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *special]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=said,
    )
    fast.add_special_tokens({"additional_special_tokens": own})
    fast.add_tokens([f" {piece}" for piece in PIECES if piece.isalpha()])
    return fast


def _save(
    folder: Path, model: Any, processor: Any, tokenizer: PreTrainedTokenizerFast, end_bias: float
) -> Path:
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.generation_config = GenerationConfig(eos_token_id=[end, pad], pad_token_id=pad)
    head = model.lm_head.weight.data
    head[end] *= 1 + end_bias
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def write_smolvlm(folder: Path, seed: int = 1, end_bias: float = 0.0, **changes: Any) -> Path:
    """Frames squashed to 32 pixels square, patches of 4, each 2 x 2 of them one visual token: a grid of 4."""
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer(SMOL)
    config = SmolVLMConfig(
        text_config={
            "model_type": "llama",
            **TEXT,
            **changes,
            "vocab_size": len(tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": changes.get("num_hidden_layers", 2),
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 4,
            "initializer_range": changes.get("initializer_range", 0.3),
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    processor = SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(max_image_size={"longest_edge": 32}, size={"longest_edge": 64}),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(
            max_image_size={"longest_edge": 32},
            video_sampling={"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 64}},
            size={"longest_edge": 64},
        ),
        image_seq_len=16,
    )
    return _save(folder, SmolVLMForConditionalGeneration(config), processor, tokenizer, end_bias)


def _write_qwen(folder: Path, kind: str, seed: int, end_bias: float, changes: dict[str, Any]) -> Path:
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer(QWEN)
    ids = tokenizer.convert_tokens_to_ids
    third = kind == "qwen3_vl"
    text = {
        **TEXT,
        **changes,
        "vocab_size": len(tokenizer),
        "head_dim": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
    }
    vision: dict[str, Any] = {
        "depth": changes.get("num_hidden_layers", 2),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 32,
        "initializer_range": changes.get("initializer_range", 0.3),
    }
    vision |= (
        {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
        if third
        else {"window_size": 16, "fullatt_block_indexes": [1]}
    )
    config_class, model_class = (
        (Qwen3VLConfig, Qwen3VLForConditionalGeneration)
        if third
        else (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration)
    )
    config = config_class(
        text_config=text,
        vision_config=vision,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    sizes = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
    limits = {"shortest_edge": 8 * 8 * (8 if third else 1), "longest_edge": 40 * 40 * (8 if third else 1)}
    video_class = Qwen3VLVideoProcessor if third else Qwen2VLVideoProcessor
    processor_class = Qwen3VLProcessor if third else Qwen2_5_VLProcessor
    processor = processor_class(
        image_processor=Qwen2VLImageProcessor(**sizes, size=limits),
        tokenizer=tokenizer,
        video_processor=video_class(**sizes, size=limits, fps=2, cap_pixels_per_frame=False),
        chat_template=TEMPLATE.replace("VIDEO", "<|vision_start|><|video_pad|><|vision_end|>"),
    )
    return _save(folder, model_class(config), processor, tokenizer, end_bias)


def write_qwen2_5_vl(folder: Path, seed: int = 1, end_bias: float = 0.0, **changes: Any) -> Path:
    """Frames of any size in pairs, patches of 4, each 2 x 2 of them one visual token."""
    return _write_qwen(folder, "qwen2_5_vl", seed, end_bias, changes)


def write_qwen3_vl(folder: Path, seed: int = 1, end_bias: float = 0.0, **changes: Any) -> Path:
    """The same with features of an earlier layer beside, and each moment's time in the prompt."""
    return _write_qwen(folder, "qwen3_vl", seed, end_bias, changes)


def write_internvl(folder: Path, seed: int = 1, end_bias: float = 0.0, **changes: Any) -> Path:
    """Frames squashed to 32 pixels square, patches of 4, each 2 x 2 of them one visual token."""
    torch.manual_seed(seed)
    names = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
    }
    tokenizer = byte_tokenizer(INTERN, **names, video_token="<video>")
    config = InternVLConfig(
        text_config={
            "model_type": "qwen2",
            **TEXT,
            **changes,
            "vocab_size": len(tokenizer),
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": changes.get("num_hidden_layers", 2),
            "num_attention_heads": 2,
            "image_size": [32, 32],
            "patch_size": [4, 4],
            "initializer_range": changes.get("initializer_range", 0.3),
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=16,
        tie_word_embeddings=False,
    )
    size = {"height": 32, "width": 32}
    processor = InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=size),
        image_seq_length=16,
        chat_template=TEMPLATE.replace("VIDEO", "<video>\n"),
    )
    return _save(folder, InternVLForConditionalGeneration(config), processor, tokenizer, end_bias)


WRITERS: dict[str, Callable[..., Path]] = {
    "smolvlm": write_smolvlm,
    "qwen2_5_vl": write_qwen2_5_vl,
    "qwen3_vl": write_qwen3_vl,
    "internvl": write_internvl,
}
