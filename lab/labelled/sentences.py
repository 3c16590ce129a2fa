"""Reads the sentences that were written for labelled captioners: lab/labelled/sentences/*.txt.

A line has classes, a colon and what might be said of a video in which they are seen::

    P = a man | a woman | a person
    goldfish, tench .. shark: P is holding a fish; a fish is swimming in the water

A capital stands for each of the texts that its own line lists, ``first .. last`` for all classes from one to
the other, ``dog + couch`` for both at once, which gives sentences alone. motion.txt, picture.txt and box.txt
are of the classes of one kind of label each; scene.txt is of what has no class.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from extractors.label import KINDS, NAMES
from models.labels.expected_meaning import CLASS_NAMES

FOLDER = Path(__file__).parent / "sentences"
SCENES = "scene"
BOTH, RANGE = " + ", " .. "


@dataclass(frozen=True)
class WrittenLine:
    """One line: ``rows``, places among CLASS_NAMES, and sentences, those of one pattern side by side."""

    rows: tuple[int, ...]
    patterns: tuple[tuple[str, ...], ...]


def read_lines(folder: Path = FOLDER) -> list[WrittenLine]:
    """Reads all files of a folder. Raises ValueError for an unknown class and for a line without a colon."""
    first = itertools.accumulate((len(NAMES[kind]) for kind in KINDS), initial=0)
    files = [*zip(KINDS, first, strict=False), (SCENES, 0)]
    return [line for kind, offset in files for line in _read_file(folder / f"{kind}.txt", offset)]


def list_sentences(lines: Iterable[WrittenLine]) -> list[str]:
    """Lists all sentences, each once."""
    return list(dict.fromkeys(text for line in lines for pattern in line.patterns for text in pattern))


def _read_file(path: Path, offset: int) -> Iterator[WrittenLine]:
    names = CLASS_NAMES[offset : offset + len(NAMES.get(path.stem, ()))]  # type: ignore[call-overload]  # or scenes
    subjects: dict[str, list[str]] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#") or not line:
            continue
        if line[1:4] == " = ":
            subjects[line[0]] = line[4:].split(" | ")
            continue
        classes, colon, texts = line.partition(": ")
        if not colon:
            raise ValueError(f"{path.name}, line {number}: there is no colon behind the classes")
        patterns = tuple(tuple(_expand(pattern, subjects)) for pattern in texts.split("; "))
        places = () if path.stem == SCENES else _find_places(classes, names)
        yield WrittenLine(tuple(offset + place for place in places), patterns)


def _expand(pattern: str, subjects: Mapping[str, Sequence[str]]) -> Iterator[str]:
    return map(" ".join, itertools.product(*(subjects.get(word, [word]) for word in pattern.split())))


def _find_places(classes: str, names: Sequence[str]) -> list[int]:
    """Finds the places of classes; none for several at once. Raises ValueError where one is unknown."""
    parts = classes.split(BOTH) if BOTH in classes else classes.split(", ")
    ends = [[_find_place(name, names) for name in part.split(RANGE)] for part in parts]
    return [] if BOTH in classes else [row for pair in ends for row in range(pair[0], pair[-1] + 1)]


def _find_place(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise ValueError(f"{name!r} is none of the {len(names)} classes")
    return names.index(name)
