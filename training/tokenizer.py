"""Captions to the tokens that the COCO scorers compare: Penn Treebank, lower case, no punctuation.

The tokeniser of the COCO code is Stanford's, in Java. It works by line, so that a caption must be one; here
it reads a pipe and leaves no file behind, and where Java does not run, rules of our own take its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from training.java import Java, JavaError, scorer_file
from training.penn_treebank import penn_treebank

#: What the COCO code drops. Names of brackets are in upper case there, so that lower-cased ones stay words.
PUNCTUATION: Final = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)

_JAR: Final = ("tokenizer", "stanford-corenlp-3.4.1.jar")
_LEXER: Final = (
    "edu.stanford.nlp.process.PTBTokenizer",
    "-preserveLines",
    "-lowerCase",
    "-encoding",
    "UTF-8",
)
#: Seconds for Java to start on a busy machine, and for one caption (measured: 8 µs).
_START_SECONDS: Final = 60.0
_CAPTION_SECONDS: Final = 0.001


def tokenize(captions: Sequence[str], java: Java | None) -> list[str]:
    """Tokens of each caption, joined by spaces; an empty caption gives an empty one.

    Without `java` the tokens come from our own rules. Raises JavaError if Java stops or falls silent.
    """
    lines = [" ".join(caption.split()) for caption in captions]
    tokenized = [penn_treebank(line) for line in lines] if java is None else _stanford(lines, java)
    return [" ".join(token for token in tokens if token not in PUNCTUATION) for tokens in tokenized]


def _stanford(lines: Sequence[str], java: Java) -> list[list[str]]:
    if not lines:
        return []
    seconds = _START_SECONDS + _CAPTION_SECONDS * len(lines)
    text = "".join(f"{line}\n" for line in lines)
    printed = java.run(["-cp", str(scorer_file(*_JAR)), *_LEXER], text, seconds)
    answers = printed.removesuffix("\n").split("\n")
    if len(answers) != len(lines):
        raise JavaError(f"The tokeniser answered {len(answers)} lines to {len(lines)} captions.")
    return [answer.split() for answer in answers]
