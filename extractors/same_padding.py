"""TensorFlow's SAME padding, which depends on the size of each axis."""

from __future__ import annotations


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one axis, so that ceil(size / stride) outputs come out; the odd one is after."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2
