"""How much does searching all videos and beams at once gain over a loop over videos and beams?

    python -m benchmarks.decoding [--videos 16] [--beam-size 5] [--frames 8]

An untrained STaTS of the demo's widths captions random features twice in the same run: by
``models.decoding.decode`` and by the loop that one would write first (one video, one beam, one step at a
time). An untrained captioner never ends a caption, so both take ``max_length`` steps. The captions of both
are compared; then captions per processor second and their ratio are printed. Both run on one thread, where
processor time is what an idle machine's clock would show; rounds alternate and each side keeps its best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from extractors.features import Stream, StreamSpec
from models.captioner import AnyCaptioner, Memory
from models.captioners.stats import STaTS
from models.decoding.decode import DecodingOptions, decode
from models.vocabulary import BOS, EOS, UNK, Vocabulary
from training.recipes.demo_recipes import DEMO, make_stats_config

Captions = list[tuple[int, ...]]
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--videos", type=int, default=16)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--frames", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    captioner = STaTS(make_stats_config(), Vocabulary([f"w{i}" for i in range(DEMO.vocabulary_size)])).eval()
    options = DecodingOptions(beam_size=arguments.beam_size, max_length=DEMO.max_length, length_penalty=0.0)
    with torch.inference_mode():
        features = [{"grid": _stream(arguments.frames)} for _ in range(arguments.videos)]
        memory = captioner.encode(features)
        decode(captioner, memory, options)  # the first run pays for allocations
        fast = slow = float("inf")
        for _ in range(ROUNDS):
            batched, seconds = _timed(
                lambda: [found[0].tokens for found in decode(captioner, memory, options)]
            )
            fast = min(fast, seconds)
            looped, seconds = _timed(
                lambda: [_loop(captioner, _video(memory, v), options) for v in range(memory.size)]
            )
            slow = min(slow, seconds)
    same = sum(a == b for a, b in zip(batched, looped, strict=True))
    print(f"{memory.size} videos of {arguments.frames} frames, {options.beam_size} beams,", end=" ")
    print(f"{options.max_length} words, 1 thread")
    print(f"batched over videos and beams  {memory.size / fast:8.2f} captions per CPU second")
    print(f"loop over videos and beams     {memory.size / slow:8.2f} captions per CPU second")
    print(f"ratio                          {slow / fast:8.2f}   ({same} of {memory.size} captions identical)")


def _stream(frames: int) -> Stream:
    values = torch.rand(frames, 49, 1280).half()
    start = np.arange(frames, dtype=np.float64)
    return Stream(values, start, start + 1, StreamSpec("random", "0", "none"))


def _video(memory: Memory, video: int) -> Memory:
    return memory.select(torch.tensor([video]))


def _timed(work: Callable[[], Captions]) -> tuple[Captions, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def _loop(captioner: AnyCaptioner, memory: Memory, options: DecodingOptions) -> tuple[int, ...]:
    """Plain beam search of one video: every beam steps alone."""
    beams: list[tuple[float, tuple[int, ...], Any]] = [(0.0, (), captioner.start(memory, 1))]
    for _ in range(options.max_length):
        grown: list[tuple[float, tuple[int, ...], Any]] = []
        for total, tokens, state in beams:
            if tokens[-1:] == (EOS,):
                grown.append((total, tokens, state))
                continue
            word = torch.tensor([tokens[-1] if tokens else BOS])
            log_probs, after, _ = captioner.step(state, word, memory)
            log_probs[0, [BOS, UNK]] = -torch.inf
            best = log_probs[0].topk(options.beam_size)
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            grown += [(total + value, (*tokens, index), after) for value, index in pairs]
        beams = sorted(grown, key=lambda beam: -beam[0])[: options.beam_size]
    return tuple(token for token in beams[0][1] if token != EOS)


if __name__ == "__main__":
    main()
