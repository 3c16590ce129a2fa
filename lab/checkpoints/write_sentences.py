"""Writes the sentences that a captioner of labels recalls; none stands in the captions they are learned from.

    python -m lab sentences CHECKPOINT --captions FILE … --out FILE

A second-order Markov chain is counted on the captions nearest to an anchor (a class name's vector, or a
caption's), so that what it writes is of one topic. Its sentences are kept where they stand in no caption,
letters and digits compared; of an anchor those nearest to it.
"""

from __future__ import annotations

import gzip
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import torch
import typer
from torch import Tensor

from models.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.labels.labelled_captioner import LabelledCaptioner
from models.vocabulary import EOS, UNK, split_words

#: Two words → each word that followed them, as often as it did; None is the end.
Chain: TypeAlias = Mapping[tuple[str, str], Sequence[str | None]]
START = ("", "")
NEIGHBOURS = 60  #: captions that a chain is counted on
TRIES = 12  #: sentences written for each that is kept
OF_A_NAME = 5  #: sentences kept of a class name; of a caption one
SHORTEST, LONGEST = 4, 11  #: words of a sentence
#: Captions of what is told and shown say nothing of what is seen.
TOLD = re.compile(
    r"\b(talk|explain|tell|describ|discuss|review|present|speak|interview|video(?! game)|clip|scene)"
)


def count_chain(captions: Iterable[Sequence[str]]) -> Chain:
    """Counts which word follows which two."""
    followers: dict[tuple[str, str], list[str | None]] = defaultdict(list)
    for words in captions:
        before = START
        for word in (*words, None):
            followers[before].append(word)
            before = (before[1], word or "")
    return followers


def write_sentence(chain: Chain, chance: random.Random) -> list[str] | None:
    """Writes one sentence by a chain; None where it grows too long."""
    before, words = START, list[str]()
    while len(words) <= LONGEST:
        word = chance.choice(chain[before])
        if word is None:
            return words
        words.append(word)
        before = (before[1], word)
    return None


def write_sentences(
    captioner: LabelledCaptioner, captions: Sequence[str], count: int, seed: int
) -> Iterator[list[str]]:
    """Writes sentences near class names, then near captions drawn at random, each sentence once.

    Args:
        captioner: Its words' vectors say what is near.
        captions: What chains are counted on, and what no sentence repeats.
        count: Sentences to write; fewer where the captions run out.
        seed: Of the draws.
    """
    chance, taken = random.Random(seed), {_letters(caption) for caption in captions}
    usable = [words for words in map(split_words, captions) if _is_usable(captioner, words)]
    vectors = torch.cat([_embed(captioner, usable[at : at + 4096]) for at in range(0, len(usable), 4096)])
    drawn = vectors[chance.sample(range(len(usable)), len(usable))]
    names = captioner.meaning.texts.float()
    for place, anchor in enumerate(torch.cat([names, drawn])):
        near = (vectors @ anchor).topk(min(NEIGHBOURS, len(usable))).indices.tolist()
        chain = count_chain(usable[index] for index in near)
        share = OF_A_NAME if place < len(names) else 1
        written = filter(None, (write_sentence(chain, chance) for _ in range(TRIES * share)))
        fresh = {_letters(" ".join(words)): words for words in written if len(words) >= SHORTEST}
        fresh = {letters: words for letters, words in fresh.items() if letters not in taken}
        if not fresh:
            continue
        nearest = (
            (_embed(captioner, list(fresh.values())) @ anchor).topk(min(share, len(fresh), count)).indices
        )
        best = [list(fresh.items())[index] for index in nearest.tolist()]
        taken.update(letters for letters, _ in best)
        yield from (words for _, words in best)
        count -= len(best)
        if not count:
            return


def _letters(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


def _is_usable(captioner: LabelledCaptioner, words: Sequence[str]) -> bool:
    is_known = UNK not in captioner.vocabulary.encode(words)
    return is_known and SHORTEST <= len(words) <= LONGEST and not TOLD.search(" ".join(words))


def _embed(captioner: LabelledCaptioner, sentences: Sequence[Sequence[str]]) -> Tensor:
    with torch.no_grad():
        return captioner.meaning.embed_captions(_pad(captioner, sentences, LONGEST + 1))


def _pad(captioner: LabelledCaptioner, sentences: Sequence[Sequence[str]], length: int) -> Tensor:
    ids = torch.full((len(sentences), length), EOS)
    for row, words in zip(ids, sentences, strict=True):
        row[: len(words)] = torch.tensor(captioner.vocabulary.encode(words))
    return ids


def remember(captioner: LabelledCaptioner, sentences: Sequence[Sequence[str]]) -> LabelledCaptioner:
    """Copies a captioner that recalls these sentences in the place of its own."""
    sizes = captioner.config.remembered.model_copy(update={"sentences": len(sentences)})
    other = type(captioner)(captioner.config.model_copy(update={"remembered": sizes}), captioner.vocabulary)
    kept = {k: v for k, v in captioner.state_dict().items() if k not in ("remembered", "lengths")}
    other.load_state_dict(kept, strict=False)
    other.remembered.copy_(_pad(captioner, sentences, sizes.words).to(torch.int16))
    with torch.no_grad():
        other.lengths.copy_(other.meaning.measure_lengths(other.remembered.long()))
    return other.eval()


def sentences(
    checkpoint: Annotated[Path, typer.Argument(help="A captioner of labels.")],
    captions: Annotated[list[Path], typer.Option(help="Captions, a line each; .gz is unpacked.")],
    out: Annotated[Path, typer.Option(help="Where the checkpoint with new sentences is written.")],
    count: Annotated[int, typer.Option(min=1, help="Sentences to write.")] = 32_000,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 7,
) -> None:
    """Write anew the sentences that a captioner of labels recalls, from captions of which it repeats none."""
    try:
        loaded = load_checkpoint(checkpoint)
    except CheckpointError as error:
        raise typer.BadParameter(str(error)) from error
    if not isinstance(loaded.captioner, LabelledCaptioner):
        raise typer.BadParameter(f"{loaded.card.captioner} recalls no sentences")
    lines = [line.strip() for path in captions for line in _read(path).splitlines() if line.strip()]
    written = list(write_sentences(loaded.captioner, lines, count, seed))
    card = replace(loaded.card, scores={}, speed=None)
    save_checkpoint(out, remember(loaded.captioner, written), card)
    typer.echo(f"{len(written)} sentences: {out}")


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
