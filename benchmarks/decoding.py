"""How much does searching all videos and beams at once gain over what one would write first?

    python -m benchmarks.decoding [--quick] [--results FILE] [--only stats,g2l] [--frames 8] [--beam-size 5]

Each captioner in weights/ that stands alone captions 1 and then 8 videos of random features, by
``models.decoding.decode`` and, in turn with it, by a plain loop as public code of captioners has it
(ruotianluo/ImageCaptioning.pytorch): video by video, the video repeated for its beams, one call of the
captioner a step for the beams together, everything sorted, candidates and beams kept in Python lists. The
captioner is the same but for torch's own tanh, its keys are computed once a video, and the same words are
forbidden; captions of both are compared and counted.

Both run on one thread and are timed in processor seconds, which is what an idle machine's clock would show.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.support.rows import Row, add_options, measure_in_turns, medians, tell
from extractors.features import Features, Stream
from models.captioner import AnyCaptioner
from models.captioners import attention_layers
from models.checkpoint import Checkpoint, list_checkpoints, load_captioner
from models.decoding.constraints import Constraints
from models.decoding.decode import DecodingOptions, decode
from models.decoding.length_penalty import LengthPenalty
from models.memory import Memory, StepAttention
from models.vocabulary import EOS

BATCHES = (1, 8)
PLAIN = "plain loop over videos"


def main() -> None:
    """Measures what is asked for, and tells the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--only", default="", help="captioners with commas between")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--frames", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    names = [name for name in arguments.only.split(",") if name] or list(list_checkpoints())
    options, rounds = DecodingOptions(beam_size=arguments.beam_size), 1 if arguments.quick else 5
    rows = [row for name in names for row in measure(load_captioner(name), arguments.frames, options, rounds)]
    tell(rows, arguments.results)


@torch.inference_mode()
def measure(checkpoint: Checkpoint, frames: int, options: DecodingOptions, rounds: int) -> list[Row]:
    """Measures one captioner against the plain loop, with each size of batch.

    Args:
        checkpoint: The captioner with its streams.
        frames: Of each video.
        options: How captions are searched.
        rounds: That count.
    """
    captioner = checkpoint.captioner.eval()
    rows: list[Row] = []
    for videos in BATCHES:
        memory = captioner.encode([_draw(checkpoint, frames, brightness=0.2 + v / 5) for v in range(videos)])
        rows += _compare(captioner, memory, options, rounds)
    return rows


def _compare(captioner: AnyCaptioner, memory: Memory, options: DecodingOptions, rounds: int) -> Iterator[Row]:
    """Lets both caption the videos in turns."""

    def search_all() -> list[PlainCaption]:
        taken = [memory.select(torch.tensor([video])) for video in range(memory.size)]
        with patch.object(attention_layers, "find_scale", return_value=1):
            return [search_plainly(captioner, video, options) for video in taken]

    plain, ours = search_all(), [found[0].tokens for found in decode(captioner, memory, options)]
    same = sum(tokens == caption.tokens for tokens, caption in zip(ours, plain, strict=True))
    ways = {
        "ours": lambda: decode(captioner, memory, options),
        PLAIN: search_all,
    }
    taken = medians(measure_in_turns(ways, rounds, clock=time.process_time))
    yield Row(
        "decoding",
        f"{captioner.name}, videos: {memory.size}, beams: {options.beam_size}",
        1000 * taken["ours"],
        "CPU ms",
        1000 * taken[PLAIN],
        PLAIN,
        goal="ratio >= 5" if memory.size > 1 else "",
        repeats=rounds,
        note=f"{same} of {memory.size} captions identical",
    )


def _draw(checkpoint: Checkpoint, frames: int, brightness: float) -> Features:
    """Random features of one video in the shapes of the image net's stages."""
    sides, start = {"stage_14": 14}, np.arange(frames, dtype=np.float64)
    return {
        each.name: Stream(
            (brightness * torch.rand(frames, sides.get(each.name, 7) ** 2, each.width)).half(),
            start,
            start + 1,
            checkpoint.card.streams[each.name],
        )
        for each in checkpoint.captioner.inputs
    }


@dataclass(frozen=True)
class PlainBeam:
    """Holds one beam of the plain loop. attention: one a word, of the beam's own row."""

    tokens: tuple[int, ...]
    total: float
    finished: bool
    attention: tuple[StepAttention | None, ...]


@dataclass(frozen=True)
class PlainCaption:
    """Holds the best caption of one video."""

    tokens: tuple[int, ...]
    attention: Sequence[StepAttention | None]


def search_plainly(captioner: AnyCaptioner, video: Memory, options: DecodingOptions) -> PlainCaption:
    """Searches the caption of one video with its beams as rows of a batch, all else in Python.

    Args:
        captioner: Writes the words.
        video: One video's memory.
        options: How captions are searched, as ``decode`` reads them.
    """
    constraints = Constraints.from_options(options, captioner.vocabulary, video.times.device)
    repeated = video.select(torch.zeros(options.beam_size, dtype=torch.long))
    state, word = captioner.start(repeated, 1), captioner.first_word(repeated, 1)
    beams, steps = [PlainBeam((), 0.0, False, ())], 0
    while steps < options.max_length and not all(beam.finished for beam in beams):
        log_probs, state, attention = captioner.step(state, word, repeated)
        steps += 1
        grown = [
            (row, extended)
            for row, beam in enumerate(beams)
            for extended in _extend(beam, row, log_probs, attention, options.beam_size, constraints)
        ]
        kept = sorted(grown, key=lambda pair: -pair[1].total)[: options.beam_size]
        beams = [beam for _, beam in kept]
        state = state.select(torch.tensor([row for row, _ in kept]))
        word = torch.tensor([beam.tokens[-1] for beam in beams])
    penalty = LengthPenalty.parse(options.length_penalty)
    best = max(beams, key=lambda beam: beam.total / float(penalty.divisor(torch.tensor(len(beam.tokens)))))
    return PlainCaption(best.tokens[:-1] if best.finished else best.tokens, best.attention)


def _extend(
    beam: PlainBeam,
    row: int,
    log_probs: Tensor,
    attention: StepAttention | None,
    width: int,
    constraints: Constraints,
) -> list[PlainBeam]:
    """The ``width`` likeliest continuations of a beam; itself, where it has ended."""
    if beam.finished:
        return [beam]
    scores = log_probs[row : row + 1].clone()
    constraints.forbid_(scores, torch.tensor([beam.tokens], dtype=torch.long))
    values, words = torch.sort(scores[0], descending=True)
    seen = None if attention is None else attention.select(torch.tensor([row]))
    return [
        PlainBeam((*beam.tokens, word), beam.total + value, word == EOS, (*beam.attention, seen))
        for word, value in zip(words[:width].tolist(), values[:width].tolist(), strict=True)
    ]


if __name__ == "__main__":
    main()
