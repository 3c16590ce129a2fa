"""Makes folders in the Hugging Face format: real architectures, small configurations, random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CLIPImageProcessor, GitConfig, GitForCausalLM

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


def write_word_pieces(folder: Path, pieces: list[str] = PIECES) -> int:
    """A BERT tokenizer as the hub's older folders have it: a list of pieces. Returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *pieces]) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512})
    )
    return len(SPECIAL) + len(pieces)


def write_git(
    folder: Path, frames: int | None = 6, seed: int = 1, end_bias: float = 1.0, **changes: Any
) -> Path:
    """GIT of two layers that sees frames of 32 pixels in patches of 8. end_bias: how much likelier captions
    end than chance has it."""
    words = write_word_pieces(folder)
    torch.manual_seed(seed)
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    said: dict[str, Any] = {
        "vision_config": {**vision, "image_size": SIDE, "patch_size": PATCH},
        "vocab_size": words,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
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
