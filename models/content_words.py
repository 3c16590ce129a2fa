"""Tells words that name something from articles, prepositions, pronouns and auxiliary verbs."""

import re
from collections.abc import Sequence

#: English words that name neither a thing, nor what it is like, nor what happens.
FUNCTION_WORDS = frozenset(
    """
    a an the this that these those some any each every both all no another other others such one ones several
    i me my you your he him his she her hers it its we us our they them their theirs who whom whose which what
    someone something somebody anyone himself herself itself themselves there here where when while how why
    and or but nor so if as than then because although though until unless whether
    in on at by for from of off to into onto out over under above below up down with without within about
    across after against along among around before behind beside besides between beyond during inside near
    next outside close through throughout toward towards upon via together front top back
    is are am was were be been being has have had having do does did doing can could will would shall should
    may might must get gets getting not very too also just only more most much many quite while s 's 't
    """.split()  # noqa: SIM905  # a list of words is read more easily as text
)
WORD = re.compile(r"[\w']+")
MARKS = '.,;:!?"()[]'


def mark_content(words: Sequence[str]) -> list[bool]:
    """Tells of each word of a caption whether it names something; capitals and marks do not count."""
    return [bool(bare := word.lower().strip(MARKS)) and bare not in FUNCTION_WORDS for word in words]


def words_of(text: str) -> list[str]:
    """Splits a text to words as captions have them: small letters, no punctuation."""
    return WORD.findall(text.lower())
