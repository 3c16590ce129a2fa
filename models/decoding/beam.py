"""Searches the likeliest captions of all videos at once: beam search, and its diverse variant.

Beams are pruned by their plain log-probability and ranked by the normalised one at the end. Finished
beams stay and compete unchanged, and the captioner is asked no more of them, nor of a video whose captions
nothing can change. Diverse search (Vijayakumar et al. 2018, algorithm 1, Hamming
diversity) splits the beams into groups that choose one after the other within a step; the penalty for
words that earlier groups chose steers the choice and is no part of a score.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from models.captioner import Captioner
from models.decoding.constraints import Constraints
from models.decoding.length_penalty import LengthPenalty
from models.decoding.options import DecodingOptions
from models.decoding.partial_captions import PartialCaptions, SearchResult
from models.decoding.sampling import apply_temperature
from models.memory import Memory
from models.vocabulary import EOS


@dataclass(frozen=True, eq=False)
class BeamStep:
    """Says how the beams of the next step are made, all tensors (B, beams)."""

    parent: Tensor  #: the row that is continued
    word: Tensor  #: by which id
    total: Tensor  #: its log-probability then


def search_beams(
    captioner: Captioner, memory: Memory, options: DecodingOptions, constraints: Constraints
) -> SearchResult:
    """Keeps the ``beam_size`` likeliest rows of each video from step to step.

    The first step has one row a video, since all beams are the same before it.

    Args:
        captioner: Writes the words.
        memory: B videos, as that captioner encoded them.
        options: Read are the beams and groups, the greatest length and the temperature.
        constraints: Forbid words, on the memory's device.

    Returns:
        B · ``beam_size`` rows, those of a video side by side, unranked.
    """
    state, word = captioner.start(memory, 1), captioner.first_word(memory, 1)
    beams, attentions = PartialCaptions.begin(memory.size, word.device), []
    open_beams, open_memory = AskedBeams.all_of(beams, memory.size), memory
    for _ in range(options.max_length):
        log_probs, state, attention = captioner.step(state, word, open_memory)
        attentions.append(attention if options.attention else None)
        log_probs = apply_temperature(log_probs, options.temperature)
        candidates = _score_continuations(log_probs, beams, open_beams, constraints)
        chosen = _prune(candidates, beams, memory.size, options)
        parent, word = chosen.parent.flatten(), chosen.word.flatten()
        place = open_beams.find_places(parent)
        beams = beams.append(parent, place, word, log_probs[place, word], chosen.total.flatten())
        if options.listener is not None:
            score = LengthPenalty.parse(options.length_penalty).score(beams.total, beams.length)
            options.listener(captioner.vocabulary.decode(beams.tokens[int(score.argmax())].tolist()))
        settled = _find_settled(beams, memory.size, options)
        if bool(settled.all()):
            break
        if memory.size > 1:  # of a single video, being settled has ended the loop
            beams = _close(beams, settled)
        open_beams = AskedBeams.open_of(beams, memory.size)
        if len(open_beams.videos) < open_memory.size:
            # else it stays: selecting copies every video's features
            open_memory = memory.select(open_beams.videos)
        state, word = state.select(open_beams.pick(place)), open_beams.pick(word)
    return SearchResult(beams, attentions)


@dataclass(frozen=True, eq=False)
class AskedBeams:
    """Says of which of R beams a step asks the captioner, as many of each video."""

    beams: int  #: R
    rows: Tensor  #: (S,), those beams, in their order
    videos: Tensor  #: (A,), which of the B videos they are of

    @classmethod
    def all_of(cls, beams: PartialCaptions, videos: int) -> Self:
        """Asks of every beam."""
        count, device = len(beams.total), beams.total.device
        return cls(count, torch.arange(count, device=device), torch.arange(videos, device=device))

    @classmethod
    def open_of(cls, beams: PartialCaptions, videos: int) -> Self:
        """Asks of open beams; finished ones go along where another video has more open ones."""
        finished = beams.finished.view(videos, -1)
        if not bool(finished.any()):
            return cls.all_of(beams, videos)
        opened = finished.shape[1] - finished.sum(1)
        most, some = int(opened.max()), opened.nonzero().flatten()
        # bool cannot be sorted stably on every device
        order = finished[some].to(torch.uint8).sort(dim=1, stable=True).indices[:, :most].sort(dim=1).values
        rows = (order + some.unsqueeze(1) * finished.shape[1]).flatten()
        return cls(len(beams.total), rows, some)

    def pick(self, of_beams: Tensor) -> Tensor:
        """Picks what is of the beams asked of: (R, …) → (S, …)."""
        return of_beams if len(self.rows) == self.beams else of_beams[self.rows]

    def find_places(self, beams: Tensor) -> Tensor:
        """Finds the rows of the step that beams (…) had; without meaning for those not asked of."""
        if len(self.rows) == self.beams:
            return beams
        places = torch.zeros(self.beams, dtype=torch.long, device=beams.device)
        places[self.rows] = torch.arange(len(self.rows), device=beams.device)
        return places[beams]


def _score_continuations(
    log_probs: Tensor, beams: PartialCaptions, asked: AskedBeams, constraints: Constraints
) -> Tensor:
    """Scores every continuation of R beams; a finished beam's only one is to stay as it is.

    log_probs: (S, V), of the beams that the captioner was asked of. Returns (R, V) log-probabilities.
    """
    total = beams.total.to(log_probs.dtype)
    open_total = total.masked_fill(beams.finished, -torch.inf)
    candidates = log_probs + asked.pick(open_total).unsqueeze(1)
    constraints.forbid_(candidates, asked.pick(beams.tokens))
    if len(candidates) < asked.beams:
        # back to R rows: beams that were not asked of compete too, by what they are
        impossible = candidates.new_full((asked.beams, candidates.shape[1]), -torch.inf)
        candidates = impossible.index_copy_(0, asked.rows, candidates)
    candidates[:, EOS] = torch.where(beams.finished, total, candidates[:, EOS])
    return candidates


def _prune(candidates: Tensor, beams: PartialCaptions, videos: int, options: DecodingOptions) -> BeamStep:
    """The best continuations of every video, group by group. candidates: (R, V)."""
    rows, size = candidates.shape[0] // videos, candidates.shape[1]
    groups = 1 if rows == 1 else options.group_size
    by_group = candidates.view(videos, groups, rows // groups, size)
    finished = beams.finished.view(videos, groups, -1)
    taken = candidates.new_zeros(videos, size)
    choices = []
    for group in range(options.group_size):
        g = group % groups  # before the first word all groups share one row
        lost = None if group == 0 else options.diversity_lambda * taken
        choice = _prune_group(by_group[:, g], finished[:, g], lost, options.beam_size // options.group_size)
        if group + 1 < options.group_size:
            # a finished beam's end token and a dead beam's word were not chosen, so they repel no group
            written = ~finished[:, g].gather(1, choice.parent) & (choice.total > -torch.inf)
            taken = taken.scatter_add(1, choice.word, written.to(taken.dtype))
        first_row = torch.arange(videos, device=taken.device).unsqueeze(1) * rows + g * (rows // groups)
        choices.append(BeamStep(choice.parent + first_row, choice.word, choice.total))
    return BeamStep(*(torch.cat([getattr(c, f) for c in choices], 1) for f in ("parent", "word", "total")))


def _prune_group(candidates: Tensor, finished: Tensor, lost: Tensor | None, beams: int) -> BeamStep:
    """candidates: (B, rows, V), finished: (B, rows), lost: (B, V). Parents are numbered within the group."""
    videos, _, size = candidates.shape
    flat = candidates.flatten(1)
    steered = flat
    if lost is not None:
        open_rows = ~finished.unsqueeze(2)
        steered = (candidates - lost.unsqueeze(1) * open_rows).flatten(1)
    index = _find_largest(steered, min(beams, flat.shape[1]))
    total = flat.gather(1, index)  # of what was not steered: the penalty is no part of a score
    if index.shape[1] < beams:  # fewer continuations than beams: the rest are dead
        missing = beams - index.shape[1]
        index = torch.cat([index, index.new_zeros(videos, missing)], 1)
        total = torch.cat([total, total.new_full((videos, missing), -torch.inf)], 1)
    return BeamStep(index // size, index % size, total)


def _find_largest(values: Tensor, count: int) -> Tensor:
    """Indices (B, count) of the largest of (B, M), in order; of equal ones the lower index first.

    ``topk`` leaves open which of several equal values it takes (half-precision logits are often
    equal), so it is asked for more until all that equal the last one are in hand.
    """
    reach = count
    while True:
        largest = values.topk(min(reach + 1, values.shape[1]), dim=1)
        last, beyond = largest.values[:, count - 1], largest.values[:, -1]
        if reach >= values.shape[1] or not bool(((beyond == last) & (last > -torch.inf)).any()):
            break
        reach *= 2
    index = largest.indices.sort(dim=1).values
    order = values.gather(1, index).sort(dim=1, descending=True, stable=True).indices
    return index.gather(1, order[:, :count])


def _find_settled(beams: PartialCaptions, videos: int, options: DecodingOptions) -> Tensor:
    """Finds the videos (B,) of which further steps could change no returned caption.

    A finished caption whose score beats all that open beams can reach has a greater plain total than every
    one of them too, and so cannot be pruned any more.
    """
    penalty, groups = LengthPenalty.parse(options.length_penalty), videos * options.group_size
    total, finished = beams.total.view(groups, -1), beams.finished.view(groups, -1)
    best = penalty.score(total, beams.length.view(groups, -1)).masked_fill(~finished, -torch.inf)
    kept = best.topk(min(options.num_captions, best.shape[1]), dim=1).values
    open_total = total.masked_fill(finished, -torch.inf).amax(1)
    reach = penalty.highest_score(open_total, options.max_length)
    return ((kept[:, -1] > reach) | (open_total == -torch.inf)).view(videos, -1).all(1)


def _close(beams: PartialCaptions, settled: Tensor) -> PartialCaptions:
    """Gives up the open beams of settled videos (B,)."""
    given_up = ~beams.finished & settled.repeat_interleave(len(beams.finished) // len(settled))
    return replace(
        beams, total=beams.total.masked_fill(given_up, -torch.inf), finished=beams.finished | given_up
    )
