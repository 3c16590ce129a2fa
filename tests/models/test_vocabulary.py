"""Words and ids."""

from __future__ import annotations

import pytest

from models.vocabulary import BOS, EOS, UNK, Vocabulary, pad_captions

CAPTIONS = [["a", "dog", "runs"], ["a", "cat"], ["a", "dog"]]


def test_specials_come_first_and_words_by_frequency_then_alphabet() -> None:
    vocabulary = Vocabulary.from_captions(CAPTIONS)
    assert (EOS, BOS, UNK) == (0, 1, 2)
    assert vocabulary.words == ("<eos>", "<bos>", "<unk>", "a", "dog", "cat", "runs")
    assert len(vocabulary) == 7


def test_round_trip() -> None:
    vocabulary = Vocabulary.from_captions(CAPTIONS)
    assert vocabulary.decode(vocabulary.encode(["a", "cat", "runs"])) == ["a", "cat", "runs"]


def test_unknown_words_and_the_end() -> None:
    vocabulary = Vocabulary(["a"])
    assert vocabulary.encode(["a", "zebra"]) == [3, UNK]
    assert vocabulary.decode([3, EOS, 3]) == ["a"]
    assert vocabulary.decode([UNK]) == ["<unk>"]
    assert "zebra" not in vocabulary
    assert vocabulary.ids_of(["zebra", "a"]) == [3]


def test_size_and_count_limit_it() -> None:
    assert Vocabulary.from_captions(CAPTIONS, size=1).words[3:] == ("a",)
    assert Vocabulary.from_captions(CAPTIONS, min_count=2).words[3:] == ("a", "dog")


@pytest.mark.parametrize("words", [["a", "a"], ["<eos>"]])
def test_a_word_stands_once(words: list[str]) -> None:
    with pytest.raises(ValueError, match="once"):
        Vocabulary(words)


def test_captions_of_different_lengths_are_padded_behind_their_ends() -> None:
    assert pad_captions([[3, 4, 5], [6], []]).tolist() == [
        [3, 4, 5, EOS],
        [6, EOS, -1, -1],
        [EOS, -1, -1, -1],
    ]


def test_a_caption_that_is_cut_has_no_end() -> None:
    assert pad_captions([[3, 4, 5], [6, 7]], 3).tolist() == [[3, 4, 5], [6, 7, EOS]]
    ended = pad_captions([[3, 4, 5], [6, 7], [8]], 3, keep_end=True)
    assert ended.tolist() == [[3, 4, EOS], [6, 7, EOS], [8, EOS, -1]]
