"""Forbids words that may not come next, as minus infinity in their scores."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from models.decoding.options import DecodingOptions
from models.vocabulary import BOS, EOS, UNK, Vocabulary

#: Words after which a caption has not said what it set out to say (self-critical.pytorch's list).
BAD_ENDINGS = (
    "a", "an", "the", "in", "for", "at", "of", "with", "before", "after", "on", "upon", "near", "to",
    "is", "are", "am",
)  # fmt: skip
#: Words that name nothing and may stand in a caption as often as they like.
FUNCTION_WORDS = (
    "a", "an", "and", "another", "are", "as", "at", "be", "being", "by", "down", "for", "from", "her", "his",
    "in", "into", "is", "it", "its", "next", "of", "off", "on", "one", "other", "out", "over", "s", "'s",
    "several", "some", "that", "the", "their", "them", "there", "they", "this", "three", "through", "to",
    "together", "two", "up", "very", "while", "with",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Constraints:
    """Holds the constraints that some options ask for, on one device."""

    never: Tensor  #: bool (V,), never written
    #: bool (V,), words that no caption ends with, or None where it may end with any
    no_end_after: Tensor | None
    once: Tensor | None  #: bool (V,), written once at most, or None where all words may return
    no_immediate_repeat: bool  #: no word twice in a row
    no_repeated_trigram: bool  #: no three words in a row that stand in the caption already

    @classmethod
    def from_options(cls, options: DecodingOptions, vocabulary: Vocabulary, device: torch.device) -> Self:
        """Looks up the words that the options speak of.

        Args:
            options: Say which constraints hold.
            vocabulary: The captioner's, of V words.
            device: Where the scores will be.

        Returns:
            Masks (V,) on that device.
        """
        banned = [BOS, UNK] if options.suppress_unk else [BOS]
        endings = _mask_ids(vocabulary.ids_of(BAD_ENDINGS), len(vocabulary), device)
        naming = ~_mask_ids([EOS, *vocabulary.ids_of(FUNCTION_WORDS)], len(vocabulary), device)
        return cls(
            never=_mask_ids(banned, len(vocabulary), device),
            no_end_after=endings if options.remove_bad_endings else None,
            once=naming if options.name_once else None,
            no_immediate_repeat=options.decoding_constraint,
            no_repeated_trigram=options.block_trigrams,
        )

    def forbid_(self, scores: Tensor, tokens: Tensor) -> None:
        """Sets forbidden words' scores (R, V) to -inf, in place; tokens: (R, t) written so far.

        A row with nothing left to say may end: no constraint can leave a video without a caption.
        """
        end = scores[:, EOS].clone()
        scores.masked_fill_(self.never, -torch.inf)
        if tokens.shape[1]:
            self._forbid_after_(scores, tokens[:, -1])
        if self.once is not None:
            _forbid_again_(scores, tokens, self.once)
        if self.no_repeated_trigram and tokens.shape[1] > 2:
            _forbid_repeated_trigrams_(scores, tokens)
        stuck = scores.amax(1) == -torch.inf
        scores[:, EOS] = torch.where(stuck, end, scores[:, EOS])

    def _forbid_after_(self, scores: Tensor, last: Tensor) -> None:
        if self.no_immediate_repeat:
            scores.scatter_(1, last.unsqueeze(1), -torch.inf)
        if self.no_end_after is not None:
            scores[:, EOS].masked_fill_(self.no_end_after[last], -torch.inf)


def _forbid_again_(scores: Tensor, tokens: Tensor, once: Tensor) -> None:
    """Forbids the words of ``once`` (V,) that are written already."""
    limit = torch.where(once[tokens], -torch.inf, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, tokens, limit, "amin")


def _forbid_repeated_trigrams_(scores: Tensor, tokens: Tensor) -> None:
    """Forbids what followed the last two words where they stood before."""
    before = (tokens[:, :-2] == tokens[:, -2:-1]) & (tokens[:, 1:-1] == tokens[:, -1:])
    limit = torch.where(before, -torch.inf, torch.inf).to(scores.dtype)
    # amin, since one word can be among the followers both of this pair and of another
    scores.scatter_reduce_(1, tokens[:, 2:], limit, "amin")


def _mask_ids(ids: list[int], size: int, device: torch.device) -> Tensor:
    """bool (size,), True at ``ids``."""
    mask = torch.zeros(size, dtype=torch.bool, device=device)
    mask[ids] = True
    return mask
