"""Tiny models are trained on a picture pasted into one quadrant of one frame, and look there for its word.

An even share of attention would leave a picture 1 / 12 of it where there are three frames.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.pretrained.load import load_pretrained_captioner
from models.pretrained.opening import LoadSettings
from tests.models.pretrained.pasted import Pasted, assert_finds_pasted, normalised, paste, train
from tests.models.pretrained.tiny_folders import (
    CLS,
    SEP,
    SIDE,
    TRAINABLE,
    write_blip,
    write_encoder_decoder,
    write_git,
)
from tests.models.pretrained.tiny_vlm import write_internvl

FRAMES = 3


def _ids(tokenizer: Any, videos: list[Pasted]) -> Tensor:
    """(B, 3): begin, word, end."""
    words = [tokenizer.convert_tokens_to_ids(each.word) for each in videos]
    return torch.tensor([[CLS, word, SEP] for word in words])


def test_git_looks_at_the_picture(tmp_path: Path) -> None:
    captioner: Any = load_pretrained_captioner(
        write_git(tmp_path / "git", frames=FRAMES, seed=3, end_bias=0.0, **TRAINABLE)
    )

    def loss(videos: list[Pasted]) -> Tensor:
        ids, pixels = _ids(captioner.tokenizer, videos), normalised(videos, captioner.pixels.processor)
        found: Tensor = captioner.model(input_ids=ids, pixel_values=pixels, labels=ids).loss
        return found

    train(captioner, loss, FRAMES, SIDE, steps=100)
    assert_finds_pasted(captioner, FRAMES, SIDE, share=0.4)


def test_blip_looks_at_the_picture(tmp_path: Path) -> None:
    folder = write_blip(tmp_path / "blip", seed=3, end_bias=0.0, **TRAINABLE)
    captioner: Any = load_pretrained_captioner(folder, LoadSettings(frames=FRAMES))

    def loss(videos: list[Pasted]) -> Tensor:
        ids, pixels = _ids(captioner.tokenizer, videos), normalised(videos, captioner.pixels.processor)
        memory = captioner.model.vision_model(pixels.flatten(0, 1)).last_hidden_state
        output = captioner.model.text_decoder(
            input_ids=ids,
            encoder_hidden_states=memory.view(len(videos), -1, memory.shape[-1]),
            labels=ids,
            is_decoder=True,
        )
        found: Tensor = output.loss
        return found

    train(captioner, loss, FRAMES, SIDE, steps=100)
    assert_finds_pasted(captioner, FRAMES, SIDE, share=0.4)


def test_a_timesformer_s_decoder_looks_at_the_picture(tmp_path: Path) -> None:
    folder = write_encoder_decoder(tmp_path / "ts", "timesformer", "bert", seed=3, end_bias=0.0, **TRAINABLE)
    captioner: Any = load_pretrained_captioner(folder)

    def loss(videos: list[Pasted]) -> Tensor:
        ids, pixels = _ids(captioner.tokenizer, videos), normalised(videos, captioner.pixels.processor)
        output = captioner.model(pixel_values=pixels, decoder_input_ids=ids[:, :-1], labels=ids[:, 1:])
        found: Tensor = output.loss
        return found

    train(captioner, loss, 4, SIDE, steps=100)
    assert_finds_pasted(captioner, 4, SIDE, share=0.4)


def test_a_video_language_model_looks_at_the_picture(tmp_path: Path) -> None:
    folder = write_internvl(tmp_path / "internvl", seed=3, num_hidden_layers=1, initializer_range=0.1)
    captioner: Any = load_pretrained_captioner(folder, LoadSettings(frames=FRAMES, prompt="?"))
    (prompt,) = captioner._encode([captioner._choose(paste(0, FRAMES, SIDE).video)], None)
    end = captioner.tokens.ends[0]

    def loss(videos: list[Pasted]) -> Tensor:
        words = captioner.tokenizer.convert_tokens_to_ids([f" {each.word}" for each in videos])
        written = torch.tensor([[word, end] for word in words])
        asked = prompt.ids.expand(len(videos), -1)
        pixels = normalised(videos, captioner.processor.video_processor)
        output = captioner.model(
            input_ids=torch.cat([asked, written], 1),
            pixel_values=pixels.flatten(0, 1),
            labels=torch.cat([torch.full_like(asked, -100), written], 1),
        )
        found: Tensor = output.loss
        return found

    train(captioner, loss, FRAMES, SIDE, steps=120)
    assert_finds_pasted(captioner, FRAMES, SIDE, share=0.4)
