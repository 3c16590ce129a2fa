"""Adapters of tiny random captioners learn what is pasted into a video, and are the same when merged."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from extractors.features import Frames
from models.decoding.options import DecodingOptions
from models.pretrained.adapters.merging import merge_adapter
from models.pretrained.errors import OptionRefused
from models.pretrained.load import AnyPretrainedCaptioner, load_pretrained_captioner
from models.pretrained.opening import LoadSettings
from tests.models.pretrained.pasted import paste
from tests.models.pretrained.tiny_folders import (
    CLS,
    SEP,
    TRAINABLE,
    write_blip,
    write_encoder_decoder,
    write_git,
)
from tests.models.pretrained.tiny_vlm import WRITERS
from training.optimization.adapted_captioner import AdaptedCaptioner, list_targets
from training.recipes.recipe import LoraOptions

FRAMES, SIDE = 4, 32
#: Random weights that say something, and nothing that is dropped from one step to another.
BERT_LIKE = {**TRAINABLE, "initializer_range": 0.3}
FAMILIES: dict[str, Callable[[Path], Path]] = {
    "git": partial(write_git, frames=FRAMES, **BERT_LIKE),
    "blip": partial(write_blip, **BERT_LIKE),
    "gpt2": partial(write_encoder_decoder, encoder="vit", decoder="gpt2", initializer_range=0.3),
    "bert": partial(write_encoder_decoder, encoder="timesformer", decoder="bert", **BERT_LIKE),
    **WRITERS,
}
#: Every layer of a decoder: tiny random ones learn little by their queries and values alone.
ALL = LoraOptions(
    targets=(*LoraOptions().targets, "dense", "c_fc", "c_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
)
GREEDY = DecodingOptions(method="greedy", max_length=8, attention=False)


pytestmark = pytest.mark.slow


def two_videos() -> tuple[list[Frames], list[list[str]]]:
    """A video with something pasted and one with something else, each with its caption."""
    pasted = {each.word: each for each in (paste(seed, FRAMES, SIDE) for seed in range(8))}
    first, second = list(pasted.values())[:2]
    return [first.video, second.video], [[first.word], [second.word]]


def load(folder: Path) -> AnyPretrainedCaptioner:
    return load_pretrained_captioner(folder, LoadSettings(frames=FRAMES))


def loss_of(captioner: AnyPretrainedCaptioner) -> Tensor:
    videos, texts = two_videos()
    logits, tokens = captioner.read_captions(videos, texts, most=40)
    return cross_entropy(logits.flatten(0, 1), tokens.flatten())


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_learn_to_name_what_is_pasted(family: str, tmp_path: Path) -> None:
    videos, texts = two_videos()
    folder = FAMILIES[family](tmp_path / family)
    network = AdaptedCaptioner(load(folder), ALL)
    copied, untrained = deepcopy(network), load(folder).score_texts(videos, texts)
    optimizer = torch.optim.AdamW(network.parameters(), 2e-2)
    network.train()
    losses = []
    for _ in range(40):
        loss = loss_of(network.captioner)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    assert losses[-1] < 0.5 * losses[0]
    assert [best.text for (best,) in network.captioner.caption(videos, GREEDY)] == [text for (text,) in texts]
    shared = copied.eval().captioner.score_texts(videos, texts)  # its own adapters change nothing yet
    assert shared == [pytest.approx(each, abs=1e-4) for each in untrained]
    network.save(tmp_path / "adapter")
    merged = load(folder)
    merged.model = merge_adapter(merged.model, tmp_path / "adapter").eval()
    trained = network.captioner.score_texts(videos, texts)
    assert merged.score_texts(videos, texts) == [pytest.approx(each, abs=1e-3) for each in trained]


def test_the_loss_is_that_of_the_model_s_own_labels(tmp_path: Path) -> None:
    """What transformers computes of GIT's captions when it is given them as labels."""
    captioner: Any = load(write_git(tmp_path / "git", frames=FRAMES))
    videos, texts = two_videos()
    rows = [captioner.tokenizer(text, add_special_tokens=False)["input_ids"] for (text,) in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([[CLS, *row, SEP, *[0] * (longest - len(row))] for row in rows])
    labels = ids.masked_fill(ids == 0, -100)
    pixels = torch.stack([captioner.pixels(video.pixels) for video in videos])
    with torch.no_grad():
        own = captioner.model(input_ids=ids, pixel_values=pixels, labels=labels).loss
        assert float(loss_of(captioner)) == pytest.approx(float(own), abs=1e-4)


def test_adapters_lie_on_the_text_decoder_alone(tmp_path: Path) -> None:
    captioner = load(write_git(tmp_path / "git", frames=FRAMES))
    targets = list_targets(captioner, LoraOptions().targets)
    assert len(targets) == 4
    assert all(name.startswith("git.encoder.layer.") for name in targets)
    with pytest.raises(OptionRefused, match="no layer called nothing"):
        list_targets(captioner, ["nothing"])
    network = AdaptedCaptioner(captioner, LoraOptions(rank=2))
    assert len(network.state_dict()) == 2 * len(targets)
    assert sum(each.numel() for each in network.parameters()) == len(targets) * 2 * (32 + 32)
