"""The loop with a real captioner: STaTS, untrained, small."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from extractors.features import Features, Stream, StreamSpec
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.combining.ensemble import Ensemble
from models.decoding.decode import DecodingOptions, decode, sample
from models.vocabulary import Vocabulary

CONFIG = STaTSConfig(
    streams=(StreamConfig(name="grid", width=6),), embedded=8, words=8, attention=8, hidden=12, query=8
)


def _captioner(seed: int) -> STaTS:
    torch.manual_seed(seed)
    captioner = STaTS(CONFIG, Vocabulary([f"w{i}" for i in range(20)])).eval()
    for parameter in captioner.parameters():  # far from uniform, so that beams have something to choose
        torch.nn.init.normal_(parameter, std=0.8)
    return captioner


def _video(frames: int, seed: int) -> Features:
    values = torch.randn(frames, 4, 6, generator=torch.Generator().manual_seed(seed))
    start = np.arange(frames, dtype=np.float64)
    return {"grid": Stream(values, start, start + 1, StreamSpec("random", "0", "none"))}


FEATURES = [_video(3, 1), _video(1, 2), _video(7, 3)]
OPTIONS = DecodingOptions(beam_size=4, num_captions=4, max_length=8)


def test_a_video_gets_the_same_captions_alone_and_in_a_padded_batch() -> None:
    captioner = _captioner(seed=0)
    together = decode(captioner, captioner.encode(FEATURES), OPTIONS)
    for features, found in zip(FEATURES, together, strict=True):
        [alone] = decode(captioner, captioner.encode([features]), OPTIONS)
        frames = len(features["grid"])
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        for ours, own in zip(found, alone, strict=True):
            assert ours.score == pytest.approx(own.score, abs=1e-5)
            assert ours.attention is not None
            assert own.attention is not None
            assert torch.allclose(ours.attention.temporal[:, :frames], own.attention.temporal, atol=1e-5)
            assert torch.allclose(ours.attention.extras["branch"], own.attention.extras["branch"], atol=1e-5)


def test_scores_are_those_of_forcing_the_words_through_the_captioner() -> None:
    captioner = _captioner(seed=1)
    memory = captioner.encode(FEATURES[:1])
    [found] = decode(captioner, memory, OPTIONS)
    for h in found:
        state, word = captioner.start(memory, 1), captioner.first_word(memory, 1)
        for token, logprob in zip(h.tokens, h.logprobs, strict=True):
            log_probs, state, _ = captioner.step(state, word, memory)
            assert logprob == pytest.approx(float(log_probs[0, token].detach()), abs=1e-5)
            word = word.new_tensor([token])


def test_training_samples_reach_every_parameter_in_use() -> None:
    captioner = _captioner(seed=2).train()
    drawn = sample(captioner, captioner.encode(FEATURES), 3, 6, torch.Generator().manual_seed(0))
    (drawn.logprobs * drawn.mask).sum().backward()
    unused = {name for name, p in captioner.named_parameters() if p.grad is None}
    assert not unused


def test_an_ensemble_of_two_checkpoints_captions_real_memories() -> None:
    members = [_captioner(seed=3), _captioner(seed=4)]
    ensemble = Ensemble(members)
    found = decode(ensemble, ensemble.encode(FEATURES), OPTIONS)
    for features, captions in zip(FEATURES, found, strict=True):
        [alone] = decode(ensemble, ensemble.encode([features]), OPTIONS)
        assert [h.tokens for h in captions] == [h.tokens for h in alone]
        assert captions[0].attention is not None
        weights = captions[0].attention.temporal.sum(1)
        assert torch.allclose(weights, torch.ones_like(weights), atol=1e-5)
