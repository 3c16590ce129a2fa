"""Extracts as many windows at a time as a GPU has memory for."""

import logging
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from extractors.windowing.window_rows import WindowRows, join_rows, move_to_cpu

log = logging.getLogger(__name__)


def extract_within_memory(
    extract: Callable[[Tensor], Mapping[str, WindowRows]], stacks: Sequence[Tensor]
) -> tuple[dict[str, WindowRows], int]:
    """Extracts windows; where a GPU has too little memory for them, in halves.

    stacks: prepared frames of each window, all of one shape. Returns the rows, on the CPU, and how many
    windows fit at a time. Raises torch.OutOfMemoryError: there is too little memory for a single window.
    """
    try:
        return move_to_cpu(extract(torch.stack(list(stacks)))), len(stacks)
    except torch.OutOfMemoryError:
        if len(stacks) == 1:
            raise
    half = len(stacks) // 2
    log.warning("%d windows at a time from now on, the GPU is full", half)
    torch.cuda.empty_cache()
    first, fitting_first = extract_within_memory(extract, stacks[:half])
    rest, fitting_rest = extract_within_memory(extract, stacks[half:])
    rows = {name: join_rows([first[name], rest[name]]) for name in first}
    return rows, min(half, fitting_first, fitting_rest)
