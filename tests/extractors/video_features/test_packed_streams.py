"""Packed streams come out as they went in, bit by bit."""

from __future__ import annotations

import numpy as np
import torch

from extractors.features import Stream, StreamSpec
from extractors.video_features.packed_streams import count_bytes, pack_streams, unpack_streams

SPEC = StreamSpec("a network", "ab" * 32, "squashed to 224x224", "8 frames", "openvino", "bf16")


def stream(kind: torch.dtype, shape: tuple[int, ...]) -> Stream:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(kind)
    start = np.arange(shape[0]) / 3
    return Stream(values, start, start + 1 / 3, SPEC)


def test_streams_of_every_form_come_back() -> None:
    regions = stream(torch.float32, (3, 5, 7))
    packed = {
        "frames": stream(torch.float16, (3, 7)),
        "grid": Stream(regions.values, regions.start, regions.end, SPEC, view=(0.1, 0.0, 0.9, 1 / 3)),
        "boxes": Stream(
            regions.values.transpose(1, 2).contiguous().transpose(1, 2),
            regions.start,
            regions.end,
            SPEC,
            torch.rand(3, 5, 4),
            torch.tensor([[True, False] * 2 + [True]] * 3),
        ),
        "silence": stream(torch.float32, (0, 128)),
    }
    found = unpack_streams(pack_streams(packed))
    assert list(found) == list(packed)
    for name, sent in packed.items():
        got = found[name]
        assert (got.spec, got.view, got.values.dtype) == (sent.spec, sent.view, sent.values.dtype)
        assert torch.equal(got.values, sent.values)
        np.testing.assert_array_equal(got.start, sent.start)
        np.testing.assert_array_equal(got.end, sent.end)
        for member in ("boxes", "mask"):
            left, right = getattr(got, member), getattr(sent, member)
            assert (left is None) == (right is None)
            assert left is None or torch.equal(left, right)


def test_their_bytes_are_counted() -> None:
    streams = {"a": stream(torch.float16, (3, 7)), "b": stream(torch.float32, (2, 2))}
    assert count_bytes(streams) == 3 * 7 * 2 + 2 * 2 * 4
