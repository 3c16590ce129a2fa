"""Tiny models are trained on a picture pasted into one quadrant of one frame, and look there for its word."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from models.pretrained.git import GitCaptioner
from models.pretrained.load import load_pretrained_captioner
from tests.models.pretrained.pasted import Pasted, assert_finds_pasted, normalised, train
from tests.models.pretrained.tiny_folders import CLS, SEP, SIDE, TRAINABLE, write_git

FRAMES = 3


def _word_pieces(tokenizer: object, videos: list[Pasted]) -> Tensor:
    """(B, 3): begin, word, end."""
    words = [tokenizer.convert_tokens_to_ids(each.word) for each in videos]  # type: ignore[attr-defined]
    return torch.tensor([[CLS, word, SEP] for word in words])


def test_git_looks_at_the_picture(tmp_path: Path) -> None:
    captioner = load_pretrained_captioner(write_git(tmp_path / "git", frames=FRAMES, **TRAINABLE))
    assert isinstance(captioner, GitCaptioner)

    def loss(videos: list[Pasted]) -> Tensor:
        ids = _word_pieces(captioner.tokenizer, videos)
        pixels = normalised(videos, captioner.pixels.processor)
        return captioner.model(input_ids=ids, pixel_values=pixels, labels=ids).loss

    train(captioner, loss, FRAMES, SIDE, steps=120)
    assert_finds_pasted(captioner, FRAMES, SIDE, share=0.8)
