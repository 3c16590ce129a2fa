"""What decoding is measured against: a plain loop that finds the same captions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from benchmarks.decoding import search_plainly
from models.captioner import AnyCaptioner
from models.decoding.decode import DecodingOptions, decode
from tests.models.tiny import tiny_dual_afr, tiny_g2l, tiny_refocus, tiny_spatial, tiny_stats, videos

TINY: tuple[Callable[[], AnyCaptioner], ...] = (
    tiny_stats,
    tiny_g2l,
    tiny_refocus,
    tiny_dual_afr,
    tiny_spatial,
)


@pytest.mark.parametrize("make", TINY)
def test_the_plain_loop_finds_what_decoding_finds(make: Callable[[], AnyCaptioner]) -> None:
    captioner = make()
    options = DecodingOptions(beam_size=3, max_length=6)
    with torch.inference_mode():
        memory = captioner.encode(videos())
        for video, [found] in enumerate(decode(captioner, memory, options)):
            plain = search_plainly(captioner, memory.select(torch.tensor([video])), options)
            assert plain.tokens == found.tokens
            assert found.attention is not None
            words = zip(plain.attention, found.attention.temporal, strict=False)
            for each, temporal in words:
                expected = torch.zeros_like(temporal) if each is None else each.temporal[0]
                torch.testing.assert_close(temporal, expected)
