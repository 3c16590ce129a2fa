"""Writes captions by one word a step: the likeliest (greedy), or one that is drawn.

``search_greedily`` and ``search_by_sampling`` serve ``decode``; ``sample`` draws for training, with gradient
and without constraints.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from models.captioner import Captioner
from models.decoding.constraints import Constraints
from models.decoding.options import DecodingOptions
from models.decoding.partial_captions import PartialCaptions, SearchResult
from models.memory import Memory
from models.vocabulary import EOS

#: From log-probabilities (R, V) to words (R,), given the tokens (R, t) so far.
Chooser = Callable[[Tensor, Tensor], Tensor]


def apply_temperature(log_probs: Tensor, temperature: float) -> Tensor:
    """Divides log-probabilities (R, V) by ``temperature`` and normalises them again."""
    return log_probs if temperature == 1 else (log_probs / temperature).log_softmax(1)


def search_greedily(
    captioner: Captioner, memory: Memory, options: DecodingOptions, constraints: Constraints
) -> SearchResult:
    """Takes the likeliest allowed word at every step; of equal ones the lower id.

    Args:
        captioner: Writes the words.
        memory: B videos, as that captioner encoded them.
        options: Read are the greatest length and the temperature.
        constraints: Forbid words, on the memory's device.

    Returns:
        One row a video.
    """

    def choose(log_probs: Tensor, tokens: Tensor) -> Tensor:
        scores = log_probs.clone()
        constraints.forbid_(scores, tokens)
        return scores.argmax(1)

    return _roll_out(captioner, memory, 1, options, choose)


def search_by_sampling(
    captioner: Captioner,
    memory: Memory,
    options: DecodingOptions,
    constraints: Constraints,
    generator: torch.Generator | None,
) -> SearchResult:
    """Draws captions independently, from what the constraints, top_k and top_p leave.

    Args:
        captioner: Writes the words.
        memory: B videos, as that captioner encoded them.
        options: Read are the number of captions, the greatest length, the temperature, top_k and top_p.
        constraints: Forbid words, on the memory's device.
        generator: Draws, on the memory's device; None for torch's own.

    Returns:
        ``num_captions`` rows a video, those of a video side by side.
    """

    def choose(log_probs: Tensor, tokens: Tensor) -> Tensor:
        scores = log_probs.clone()
        constraints.forbid_(scores, tokens)
        return _draw(_keep_likeliest(scores, options.top_k, options.top_p), generator)

    return _roll_out(captioner, memory, options.num_captions, options, choose)


def _roll_out(
    captioner: Captioner, memory: Memory, rows: int, options: DecodingOptions, choose: Chooser
) -> SearchResult:
    """Lets ``choose`` pick the next word of each of B · ``rows`` rows until all have ended."""
    state, word = captioner.start(memory, rows), captioner.first_word(memory, rows)
    itself = torch.arange(memory.size * rows, device=word.device)
    written, attentions = PartialCaptions.begin(len(itself), word.device), []
    for _ in range(options.max_length):
        log_probs, state, attention = captioner.step(state, word, memory)
        attentions.append(attention if options.attention else None)
        log_probs = apply_temperature(log_probs, options.temperature)
        word = choose(log_probs, written.tokens).masked_fill(written.finished, EOS)
        logprob = log_probs[itself, word].masked_fill(written.finished, 0)
        written = written.append(itself, itself, word, logprob, written.total + logprob)
        if bool(written.finished.all()):
            break
    return SearchResult(written, attentions)


def _keep_likeliest(scores: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Scores with -inf for all but the k likeliest words, and then all but the nucleus of mass p.

    The nucleus (Holtzman et al. 2020) is the shortest list of likeliest words that holds p of the
    probability that is left; it is never empty.
    """
    if top_k is not None and top_k < scores.shape[1]:
        least = scores.topk(top_k, dim=1).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if top_p is not None and top_p < 1:
        sorted_scores, order = scores.sort(dim=1, descending=True, stable=True)
        probs = sorted_scores.softmax(1)
        # by the mass before a word: the one that passes p still belongs, and so does the first one always
        outside = probs.cumsum(1) - probs >= top_p
        scores = scores.masked_fill(outside.scatter(1, order, outside), -torch.inf)
    return scores


def _draw(scores: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)


@dataclass(frozen=True, eq=False)
class SampledCaptions:
    """Holds R rows of L drawn tokens for training; L ends with the longest row."""

    tokens: Tensor  #: (R, L), the end token where a row has ended
    logprobs: Tensor  #: (R, L), 0 after the end, with gradient
    mask: Tensor  #: bool (R, L), True for what was drawn, the first end token included


def sample(
    captioner: Captioner,
    memory: Memory,
    rows_per_video: int,
    max_length: int,
    generator: torch.Generator | None = None,
    prefix: Tensor | None = None,
    temperature: float = 1.0,
) -> SampledCaptions:
    """Draws from the captioner without any constraint: the policy itself, sharpened by ``temperature``.

    Label smoothing gives a share of every word to all others: at temperature 1 most long draws then hold a
    word that fits nothing, and their rewards say little of the rest.

    Args:
        captioner: Writes the words.
        memory: B videos, as that captioner encoded them.
        rows_per_video: Draws a video, K.
        max_length: Tokens at most.
        generator: Draws, on the memory's device; None for torch's own.
        prefix: (R, P) words that a row begins with, -1 from where it is drawn; ``mask`` is False for them.
        temperature: Divides the log-probabilities, which are then normalised again.

    Returns:
        R = B · K rows, those of a video side by side. The gradient flows through ``logprobs`` into captioner
        and memory; the draws have none.
    """
    state, word = captioner.start(memory, rows_per_video), captioner.first_word(memory, rows_per_video)
    ended = torch.zeros_like(word, dtype=torch.bool)
    tokens, logprobs, mask = [], [], []
    for i in range(max_length):
        log_probs, state, _ = captioner.step(state, word, memory)
        log_probs = apply_temperature(log_probs, temperature)
        # rows with a prefix draw too: in one tensor some rows cannot be left out
        word, is_fixed = _draw(log_probs.detach(), generator), torch.zeros_like(ended)
        if prefix is not None and i < prefix.shape[1]:
            is_fixed = prefix[:, i] >= 0
            word = torch.where(is_fixed, prefix[:, i], word)
        word = word.masked_fill(ended, EOS)
        logprob = log_probs.gather(1, word.unsqueeze(1)).squeeze(1)
        tokens.append(word)
        logprobs.append(logprob.masked_fill(ended | is_fixed, 0))
        mask.append(~(ended | is_fixed))
        ended = ended | (word == EOS)
        if bool(ended.all()):
            break
    return SampledCaptions(torch.stack(tokens, 1), torch.stack(logprobs, 1), torch.stack(mask, 1))
