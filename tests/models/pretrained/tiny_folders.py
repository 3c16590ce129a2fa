"""Makes folders in the Hugging Face format: real architectures, small configurations, random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BeitConfig,
    BeitImageProcessor,
    BertConfig,
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessor,
    CLIPImageProcessor,
    DeiTConfig,
    DeiTImageProcessor,
    GenerationConfig,
    GitConfig,
    GitForCausalLM,
    GPT2Config,
    GPT2Tokenizer,
    SwinConfig,
    TimesformerConfig,
    VideoMAEConfig,
    VideoMAEImageProcessor,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
)

from extractors.features import Frames

#: Words of the tests' tokenizers; "##" marks parts that continue a word.
PIECES = [
    *(
        "a",
        "the",
        "red",
        "blue",
        "dog",
        "cat",
        "run",
        "play",
        "##s",
        "##ing",
        "##ner",
        "guitar",
        "in",
        "park",
    ),
    *("on", ".", ",", "'"),
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP = 0, 1, 2, 3
SIDE, PATCH = 32, 8
STACK = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def write_word_pieces(folder: Path, pieces: list[str] = PIECES) -> int:
    """A BERT tokenizer as the hub's older folders have it: a list of pieces. Returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *pieces]) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512})
    )
    return len(SPECIAL) + len(pieces)


#: Configurations that are quick to train: one layer each way, small weights, nothing dropped.
TRAINABLE: dict[str, Any] = {
    "num_hidden_layers": 1,
    "initializer_range": 0.1,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def write_git(
    folder: Path, frames: int | None = 6, seed: int = 1, end_bias: float = 1.0, **changes: Any
) -> Path:
    """GIT of two layers that sees frames of 32 pixels in patches of 8. end_bias: how much likelier captions
    end than chance has it."""
    words = write_word_pieces(folder)
    torch.manual_seed(seed)
    layers = changes.get("num_hidden_layers", 2)
    said: dict[str, Any] = {
        "vision_config": {**STACK, "num_hidden_layers": layers, "image_size": SIDE, "patch_size": PATCH},
        "vocab_size": words,
        **STACK,
        "num_image_with_embedding": frames,
        "bos_token_id": CLS,
        "eos_token_id": SEP,
        "pad_token_id": PAD,
        "initializer_range": 0.4,
    }
    model = GitForCausalLM(GitConfig(**{**said, **changes}))
    model.output.bias.data[SEP] += end_bias
    model.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SIDE).save_pretrained(folder)
    return folder


def write_blip(folder: Path, seed: int = 1, end_bias: float = 1.0, **changes: Any) -> Path:
    """BLIP of two layers; pictures are squashed to 32 pixels square."""
    words = write_word_pieces(folder)
    torch.manual_seed(seed)
    stack = {**STACK, **changes}
    text = {
        **stack,
        "vocab_size": words,
        "encoder_hidden_size": 32,
        "bos_token_id": CLS,
        "sep_token_id": SEP,
        "eos_token_id": SEP,
        "pad_token_id": PAD,
    }
    config = BlipConfig(text_config=text, vision_config={**stack, "image_size": SIDE, "patch_size": PATCH})
    model = BlipForConditionalGeneration(config)
    model.text_decoder.cls.predictions.bias.data[SEP] += end_bias
    model.save_pretrained(folder)
    BlipImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    return folder


#: Of each encoder its class of configuration, what it has of its own, and the processor that comes with it.
ENCODERS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "vit": (ViTConfig, {}, ViTImageProcessor(size={"height": SIDE, "width": SIDE})),
    "deit": (
        DeiTConfig,
        {},
        DeiTImageProcessor(size={"height": 40, "width": 40}, crop_size={"height": SIDE, "width": SIDE}),
    ),
    "beit": (BeitConfig, {}, BeitImageProcessor(size={"height": SIDE, "width": SIDE}, do_center_crop=False)),
    "swin": (
        SwinConfig,
        {"patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        ViTImageProcessor(size={"height": SIDE, "width": SIDE}),
    ),
    "timesformer": (
        TimesformerConfig,
        {"num_frames": 4},
        VideoMAEImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}),
    ),
    "videomae": (
        VideoMAEConfig,
        {"num_frames": 6, "tubelet_size": 2},
        VideoMAEImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}),
    ),
}


def write_encoder_decoder(
    folder: Path,
    encoder: str,
    decoder: str = "gpt2",
    seed: int = 1,
    end_bias: float = 1.0,
    **changes: Any,
) -> Path:
    """An encoder of ``ENCODERS`` with a GPT-2 or a BERT of two layers."""
    torch.manual_seed(seed)
    config_class, own, processor = ENCODERS[encoder]
    stack = {**STACK, **changes}
    seeing = config_class(
        **{**({} if "depths" in own else stack), "image_size": SIDE, "patch_size": PATCH, **own}
    )
    if decoder == "gpt2":
        words, start, end, pad = write_byte_pairs(folder), 0, 0, 0
        layers, init = stack["num_hidden_layers"], stack.get("initializer_range", 0.02)
        drops = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
        writing: Any = GPT2Config(
            vocab_size=words,
            n_embd=32,
            n_layer=layers,
            n_head=2,
            initializer_range=init,
            bos_token_id=start,
            eos_token_id=end,
            pad_token_id=pad,
            **drops,
        )
    else:
        words, start, end, pad = write_word_pieces(folder), CLS, SEP, PAD
        writing = BertConfig(
            vocab_size=words, bos_token_id=start, eos_token_id=end, pad_token_id=pad, **stack
        )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(seeing, writing)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = start, pad, end
    model = VisionEncoderDecoderModel(config)
    if decoder == "bert":
        model.decoder.cls.predictions.bias.data[SEP] += end_bias
    else:  # no bias: a longer embedding, which is the output's too, is likelier or less likely than others
        model.decoder.transformer.wte.weight.data[end] *= 1 + end_bias
    model.generation_config = GenerationConfig(
        decoder_start_token_id=start, bos_token_id=start, eos_token_id=end, pad_token_id=pad
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def write_byte_pairs(folder: Path, words: tuple[str, ...] = tuple(PIECES)) -> int:
    """A GPT-2 tokenizer in one file, with <|endoftext|> first. Returns how many tokens there are."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    text = [word.removeprefix("##") for word in words]
    tokenizer.train_from_iterator([*text, *(f" {word}" for word in text)] * 2, trainer)
    end = "<|endoftext|>"
    fast = GPT2Tokenizer(tokenizer_object=tokenizer, bos_token=end, eos_token=end, unk_token=end)
    fast.save_pretrained(folder)
    return len(fast)


def random_video(
    count: int, height: int = 48, width: int = 64, seconds: float = 6.0, seed: int = 0
) -> Frames:
    """A video of noise over a colour of its own in each of nine parts, its frames evenly spread."""
    generator = np.random.default_rng(seed)
    colours = (
        generator.integers(0, 256, (count, 3, 3, 3)).repeat(-(-height // 3), 1).repeat(-(-width // 3), 2)
    )
    noise = generator.integers(-20, 21, (count, height, width, 3))
    pixels = np.clip(colours[:, :height, :width] + noise, 0, 255).astype(np.uint8)
    return Frames(pixels, np.arange(count) * seconds / count, seconds)
