"""Sentences for captioners of labels: near what was asked, none that stands in the captions."""

from __future__ import annotations

import random
from itertools import pairwise

import torch

from lab.checkpoints.write_sentences import count_chain, remember, write_sentence, write_sentences
from tests.models.labels.tiny_labels import tiny_labelled

CAPTIONS = [line.split() for line in ("a man rides a horse", "a man feeds a dog", "a dog rides a wave")]


def test_a_chain_goes_on_as_its_captions_do() -> None:
    chain = count_chain(CAPTIONS)
    written = {" ".join(write_sentence(chain, random.Random(seed)) or ()) for seed in range(60)}
    assert {"a man rides a horse", "a man rides a wave", "a dog rides a horse"} <= written
    pairs = {pair for caption in CAPTIONS for pair in pairwise(caption)}
    assert all(pair in pairs for each in written for pair in pairwise(each.split()))


def test_no_caption_is_repeated_and_no_sentence_stands_twice() -> None:
    captioner = tiny_labelled()
    words = captioner.vocabulary.words[3:]
    chance = random.Random(1)
    captions = [" ".join(chance.sample(words[:8], 5)) for _ in range(40)]
    written = [" ".join(each) for each in write_sentences(captioner, captions, 30, seed=2)]
    assert len(written) == 30 == len(set(written))
    assert not set(written) & set(captions)


def test_a_captioner_remembers_what_was_written() -> None:
    captioner = tiny_labelled()
    words = list(captioner.vocabulary.words[3:8])
    changed = remember(captioner, [words, words[::-1]])
    assert changed.remembered.tolist()[0][:5] == captioner.vocabulary.encode(words)
    assert changed.lengths.shape == (2,)
    assert torch.equal(changed.meaning.texts, captioner.meaning.texts)
