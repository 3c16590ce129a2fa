"""From encoded videos to captions: the one loop that every captioner, training and the service use.

The loop knows the three methods of ``Captioner`` and nothing of what is behind them. It has no Python
loop over videos or beams, moves no attention while beams are reordered, and keeps the dtype of the
captioner's log-probabilities, so that a float64 captioner is searched in float64.

``beam.py`` searches, ``sampling.py`` walks (greedy, draws, and ``sample`` for self-critical training),
``constraints.py`` forbids words, ``options.py`` weighs lengths, ``hypothesis.py`` makes captions of rows;
models/combining/ensemble.py decodes several checkpoints as one captioner.
"""

from __future__ import annotations

import torch

from models.captioner import AnyCaptioner, Memory
from models.decoding.beam import beam_search
from models.decoding.constraints import Constraints
from models.decoding.hypothesis import Hypothesis, hypotheses
from models.decoding.options import DecodingOptions, LengthPenalty
from models.decoding.sampling import Drawn, greedy_search, sample, sample_search

__all__ = ["DecodingOptions", "Drawn", "Hypothesis", "LengthPenalty", "decode", "sample"]


@torch.no_grad()
def decode(
    captioner: AnyCaptioner,
    memory: Memory,
    options: DecodingOptions,
    generator: torch.Generator | None = None,
) -> list[list[Hypothesis]]:
    """For each video of ``memory`` its ``options.num_captions`` captions, best first.

    Fewer where the vocabulary allows fewer. ``generator`` (on the memory's device) is used by
    "sample" and wins over ``options.seed``. Raises ValueError where the captioner gives NaN.
    """
    device = memory.times.device
    constraints = Constraints.of(options, captioner.vocabulary, device)
    if options.method == "beam":
        written, attentions = beam_search(captioner, memory, options, constraints)
    elif options.method == "greedy":
        written, attentions = greedy_search(captioner, memory, options, constraints)
    else:
        if generator is None and options.seed is not None:
            generator = torch.Generator(device).manual_seed(options.seed)
        written, attentions = sample_search(captioner, memory, options, constraints, generator)
    penalty = LengthPenalty.parse(options.length_penalty)
    return hypotheses(written, attentions, penalty, memory.size, options.num_captions)
