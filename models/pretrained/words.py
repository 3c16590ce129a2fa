"""Joins the tokens of a caption to words, with their log-probabilities and their attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TokenWords:
    """The words of a caption. words: between white space. owners: for each token the word that it is part
    of, -1 where no word is (a caption without any). Of a token of several words the last is the owner."""

    words: tuple[str, ...]
    owners: NDArray[np.int64]

    def summed(self, values: Sequence[float]) -> list[float]:
        """Sums a word's log-probability over its tokens."""
        return [float(sum(values[place] for place in of_word)) for of_word in self._tokens()]

    def averaged(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Averages words' attention (words, keys) over their tokens' rows (tokens, keys)."""
        means = np.zeros((len(self.words), rows.shape[1]))
        for word, of_word in reversed(list(enumerate(self._tokens()))):
            means[word] = rows[of_word].mean(0) if len(of_word) else means[word + 1]
        return means

    def _tokens(self) -> list[NDArray[np.int64]]:
        return [np.flatnonzero(self.owners == word) for word in range(len(self.words))]


def split_words(tokenizer: Any, tokens: Sequence[int]) -> TokenWords:
    """Finds which word each token is part of.

    A token belongs to the word in which the text ends that it and those before it decode to. One that adds
    nothing readable (a mark, white space, the first bytes of a letter) belongs to the word that follows, and
    behind the last word to that one.

    Returns the words, the same as those of the decoded whole.
    """
    text = _decode(tokenizer, tokens)
    words = tuple(text.split())
    owners = np.full(len(tokens), -1, np.int64)
    reached = 0
    waiting: list[int] = []
    for place in range(len(tokens)):
        shared = _shared_length(_decode(tokenizer, tokens[: place + 1]), text)
        waiting.append(place)
        if text[reached:shared].strip():
            begun = len(text[:shared].split())
            owners[waiting] = begun - 1
            waiting = []
        reached = max(reached, shared)
    owners[waiting] = len(words) - 1
    return TokenWords(words, owners)


def _shared_length(one: str, other: str) -> int:
    """Letters with which both begin."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True)
    return text
