"""Verbs, nouns and modifiers, told by a word's form and by its company in the training captions.

No tagger: the words of many captions show by themselves what they are. A verb is a word in -ing that seldom
follows a determiner, a preposition or a modifier, as "the building" does, or another form of one ("plays",
"playing") that seldom does either. Of all other words that are not in a closed list, those that mostly stand
before a noun are modifiers: adjectives, and also a noun before a noun, as tennis in "tennis player". The rest
are nouns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DETERMINERS = _words("""
    a an the this that these those his her its their my your our some another each every both several many few
    no any all one two three four five six seven eight nine ten
""")
BEFORE_NOUNS = _words("""
    in on of with at from into onto over under through across along around near behind beside between against
    towards toward inside
""")
FUNCTION = (
    DETERMINERS
    | BEFORE_NOUNS
    | _words("""
        is are was were be been being am has have had do does did can could will would may might must should
        he she it they them him i you we me us who which what himself herself itself themselves someone
        somebody something everyone nobody nothing others other while as and or but to for by during after
        before about like up down off out outside above below past than then when where how not there here
        away together very just so too also back forward 's 're 've 'll 'd 'm 't
    """)
)
VOWELS = frozenset("aeiouy")
#: A form of a verb that follows a determiner, a preposition or a modifier more often is a noun.
NOMINAL = 0.4
#: A word that stands before a noun more often is a modifier.
LEADING = 0.5
#: A verb's form in -ing is seen at least so often for each time of another: "gaming" is no proof for "game".
IN_ING = 0.1

#: word → its neighbours on one side; "" is a caption's end.
Neighbours = Mapping[str, Counter[str]]


@dataclass(frozen=True)
class WordClasses:
    """Three sets without a word in common; words of the closed list are in none."""

    verbs: frozenset[str]
    nouns: frozenset[str]
    modifiers: frozenset[str]

    @classmethod
    def of(cls, captions: Iterable[Sequence[str]]) -> WordClasses:
        """From captions as words. What modifiers are is told by the verbs, and then the verbs by both."""
        before, after = _neighbours(captions)
        content = before.keys() - FUNCTION
        verbs = _verbs(content, before, DETERMINERS | BEFORE_NOUNS)
        modifiers = _modifiers(content - verbs, after)
        verbs = _verbs(content, before, DETERMINERS | BEFORE_NOUNS | modifiers)
        modifiers = _modifiers(content - verbs, after)
        return cls(verbs, frozenset(content - verbs - modifiers), modifiers)

    def counts(self, words: Iterable[str]) -> tuple[int, int, int]:
        """(verbs, nouns, modifiers) among the words of a caption."""
        found = list(words)
        verbs, nouns, modifiers = (
            sum(word in kind for word in found) for kind in (self.verbs, self.nouns, self.modifiers)
        )
        return verbs, nouns, modifiers


def _neighbours(captions: Iterable[Sequence[str]]) -> tuple[Neighbours, Neighbours]:
    """What stands before each word, and what after it."""
    pairs: Counter[tuple[str, str]] = Counter()
    for words in captions:
        pairs.update(pairwise(["", *words, ""]))
    before: defaultdict[str, Counter[str]] = defaultdict(Counter)
    after: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (first, second), count in pairs.items():
        before[second][first] += count
        after[first][second] += count
    before.pop("", None)
    after.pop("", None)
    return before, after


def _share(neighbours: Counter[str], of: Collection[str]) -> float:
    return sum(count for word, count in neighbours.items() if word in of) / neighbours.total()


def _modifiers(words: Collection[str], after: Neighbours) -> frozenset[str]:
    """Of words that are nouns or modifiers, those that mostly stand before another of them."""
    return frozenset(word for word in words if _share(after[word], words) > LEADING)


def _verbs(words: Collection[str], before: Neighbours, leads: Collection[str]) -> frozenset[str]:
    """leads: what stands before nouns."""
    free = [word for word in words if _share(before[word], leads) < NOMINAL]
    in_ing = frozenset(word for word in free if word.endswith("ing") and VOWELS & set(word[:-3]))

    def is_form(word: str) -> bool:
        forms = {form for base in _bases(word) for form in _participles(base)} & in_ing
        return any(before[form].total() >= IN_ING * before[word].total() for form in forms)

    return in_ing.union(word for word in free if is_form(word))


def _bases(word: str) -> list[str]:
    """What the word may be a form of: walk, walk|s, watch|es, carr|ies, walk|ed, race|d, grab|bed."""
    bases = [word]
    for ending, instead in (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("d", ""), ("ied", "y")):
        if word.endswith(ending):
            bases.append(word.removesuffix(ending) + instead)
    if word.endswith("ed") and word[-4:-3] == word[-3:-2]:
        bases.append(word[:-3])
    return [base for base in bases if len(base) > 1]


def _participles(base: str) -> list[str]:
    """walk|ing, rac|ing, run|ning, l|ying."""
    forms = [f"{base}ing", f"{base}{base[-1]}ing"]
    if base.endswith("ie"):
        forms.append(f"{base[:-2]}ying")
    elif base.endswith("e"):
        forms.append(f"{base[:-1]}ing")
    return forms
