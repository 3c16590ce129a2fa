"""Words and their ids. Ids 0 to 2 are the same in every checkpoint; words follow by frequency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

EOS, BOS, UNK = 0, 1, 2
SPECIALS = ("<eos>", "<bos>", "<unk>")


class Vocabulary:
    """A fixed list of words. Shipped inside the checkpoint, so that the two can never disagree."""

    def __init__(self, words: Sequence[str]) -> None:
        """words: without the specials, most frequent first."""
        self.words = (*SPECIALS, *words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise ValueError("a vocabulary holds every word once")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids without <bos> and <eos>; unknown words become <unk>."""
        return [self._ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words of the ids up to, and without, the first <eos>."""
        words = []
        for i in ids:
            if i == EOS:
                break
            words.append(self.words[i])
        return words

    def ids_of(self, words: Iterable[str]) -> list[int]:
        """Ids of those words that are known."""
        return [self._ids[word] for word in words if word in self._ids]

    @classmethod
    def from_captions(
        cls, captions: Iterable[Sequence[str]], *, min_count: int = 1, size: int | None = None
    ) -> Vocabulary:
        """The words seen at least ``min_count`` times, at most ``size`` of them."""
        counts = Counter(word for caption in captions for word in caption)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, count in ranked[:size] if count >= min_count])
