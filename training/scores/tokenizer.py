"""Splits captions into tokens as the Penn Treebank and COCO's scorer do.

The tokeniser of the COCO code is Stanford's, in Java. It works by line, so that a caption must be one; here
it reads a pipe and leaves no file behind, and where Java does not run, rules of our own take its place.
"""

import html
import re
from collections.abc import Sequence
from typing import Final

from models.chinese import is_chinese, split_chinese
from training.scores.java import Java, JavaError, find_scorer_file

# Our own rules, for machines on which Java does not run: Stanford's PTBTokenizer is a lexer of some thousand
# lines, and captions need few of them. With those below and the punctuation dropped, the tokens were
# Stanford's for all but 48 of 398,207 captions of Flickr, COCO, MSVD and MSR-VTT, with rare abbreviations
# and smileys.
_NAMES: Final = {
    "(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-", '"': "''"
}  # fmt: skip

#: Characters that read alike are made one before the rules are asked; a byte order mark is nothing.
_FOLD: Final = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "–": "--", "—": "--", "…": "...", "\ufeff": None, "\xad": None}
)

_TOKEN: Final = re.compile(
    r"""
      (?: mr|mrs|ms|dr|st|mt|ft|jr|sr|vs|etc|corp|dept|inc|ltd|ave|blvd|rd|sgt|gen|gov|lt|col )\.(?!\w)
    | (?: [a-z]\.)+ (?=\s+\S|$)                       # initials
    | [^\W\d]{2,}(?:\.[^\W\d]+)+                     # web addresses, and a full stop without its space
    | can(?=not\b) | gon(?=na\b) | got(?=ta\b) | wan(?=na\b) | gim(?=me\b) | lem(?=me\b)
    | \w+(?=n't\b) | n't\b                            # do n't
    | '(?:s|m|d|re|ve|ll)\b | 'n'                     # man 's; rock 'n' roll
    | o'clock\b | [dlo]'(?=\w)\w+(?:-\w+)*
    | \d+/\d+
    | \d+(?:[.,:]\d+)+(?!\w) | \.\d+
    | @?\w+(?:[-/]\w+)*
    | [()\[\]{}]
    | \S
    """,
    re.VERBOSE,
)


def split_penn_treebank(caption: str) -> list[str]:
    """Splits into lower-cased tokens, punctuation included; brackets by name, as the Treebank writes them."""
    folded = html.unescape(caption).lower().translate(_FOLD)
    return [_NAMES.get(token, token) for token in _TOKEN.findall(folded)]


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
    """Returns tokens of each caption, joined by spaces; an empty caption gives an empty one.

    Without `java` the tokens come from our own rules. Where most captions are Chinese, all are split into
    words first. Raises JavaError if Java stops or falls silent, PackageMissing.
    """
    split = split_chinese if is_chinese(captions) else str.split
    lines = [" ".join(split(caption)) for caption in captions]
    tokenized = [split_penn_treebank(line) for line in lines] if java is None else _run_stanford(lines, java)
    return [" ".join(token for token in tokens if token not in PUNCTUATION) for tokens in tokenized]


def _run_stanford(lines: Sequence[str], java: Java) -> list[list[str]]:
    if not lines:
        return []
    seconds = _START_SECONDS + _CAPTION_SECONDS * len(lines)
    text = "".join(f"{line}\n" for line in lines)
    printed = java.run(["-cp", str(find_scorer_file(*_JAR)), *_LEXER], text, seconds)
    answers = printed.removesuffix("\n").split("\n")
    if len(answers) != len(lines):
        raise JavaError(f"The tokeniser answered {len(answers)} lines to {len(lines)} captions.")
    return [answer.split() for answer in answers]
