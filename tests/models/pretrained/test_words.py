"""Words are made of their tokens: log-probabilities summed, attention averaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from models.pretrained.words import TokenWords, split_words
from tests.models.pretrained.tiny_folders import write_word_pieces


@pytest.fixture
def word_pieces(tmp_path: Path) -> PreTrainedTokenizerFast:
    write_word_pieces(tmp_path)
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(tmp_path)
    return tokenizer


@pytest.fixture
def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token: é is two of them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def test_parts_are_joined_to_their_word(word_pieces: PreTrainedTokenizerFast) -> None:
    found = split_words(word_pieces, _ids(word_pieces, "the red runner plays guitar."))
    assert found.words == ("the", "red", "runner", "plays", "guitar.")
    np.testing.assert_array_equal(found.owners, [0, 1, 2, 2, 3, 3, 4, 4])


def test_special_tokens_belong_to_the_word_that_follows(word_pieces: PreTrainedTokenizerFast) -> None:
    ids = [2, *_ids(word_pieces, "a dog"), 2]
    found = split_words(word_pieces, ids)
    assert found.words == ("a", "dog")
    np.testing.assert_array_equal(found.owners, [0, 0, 1, 1])


def test_half_letters_wait_for_the_other_half(bytes_tokenizer: PreTrainedTokenizerFast) -> None:
    found = split_words(bytes_tokenizer, _ids(bytes_tokenizer, "un café noir\n"))
    assert found.words == ("un", "café", "noir")
    np.testing.assert_array_equal(found.owners, [0] * 2 + [1] * 6 + [2] * 6)


def test_nothing_written_is_no_word(word_pieces: PreTrainedTokenizerFast) -> None:
    found = split_words(word_pieces, [])
    assert (found.words, found.summed([]), found.averaged(np.zeros((0, 3))).shape) == ((), [], (0, 3))
    assert split_words(word_pieces, [2]).owners.tolist() == [-1]


def test_log_probabilities_are_summed_and_attention_averaged() -> None:
    words = TokenWords(("one", "two", "three"), np.array([0, 0, 2]))
    assert words.summed([-1.0, -2.0, -4.0]) == [-3.0, 0.0, -4.0]
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.25, 0.75]])
    np.testing.assert_array_equal(words.averaged(rows), [[0.5, 0.5], [0.25, 0.75], [0.25, 0.75]])
