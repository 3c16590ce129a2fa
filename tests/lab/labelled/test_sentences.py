"""What was written for labelled captioners: its format, and that every class and word is usable."""

from __future__ import annotations

from pathlib import Path

import pytest

from extractors.label import NAMES
from lab.labelled.sentences import list_sentences, read_lines
from models.labels.expected_meaning import CLASS_NAMES
from models.vocabulary import split_words

LONGEST = 11


def write_files(folder: Path, **texts: str) -> Path:
    for name in ("motion", "picture", "box", "scene"):
        (folder / f"{name}.txt").write_text(texts.get(name, ""))
    return folder


def test_capitals_and_ranges_stand_for_what_they_list(tmp_path: Path) -> None:
    picture = "# a comment\nP = a man | a woman\n\ntench .. great white shark, hen: P is eating; a fish"
    folder = write_files(tmp_path, picture=picture, box="dog + cat: a dog and a cat", scene="sky: clouds")
    first, pair, scene = read_lines(folder)
    assert [CLASS_NAMES[row] for row in first.rows] == ["tench", "goldfish", "great white shark", "hen"]
    assert first.patterns == (("a man is eating", "a woman is eating"), ("a fish",))
    assert pair.rows == () == scene.rows
    sentences = ["a man is eating", "a woman is eating", "a fish", "a dog and a cat", "clouds"]
    assert list_sentences([first, pair, scene, first]) == sentences


@pytest.mark.parametrize("line", ["juggling cats: a man", "archery, juggling cats: a man", "archery a man"])
def test_a_wrong_line_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=r"juggling cats|line 1: there is no colon"):
        read_lines(write_files(tmp_path, motion=line))


def test_every_action_and_thing_has_a_sentence_and_all_are_short_and_lower_case() -> None:
    lines = read_lines()
    described = {CLASS_NAMES[row] for line in lines for row in line.rows}
    assert {*NAMES["motion"], *NAMES["box"]} <= described
    for text in list_sentences(lines):
        assert 3 <= len(split_words(text)) <= LONGEST, text
        assert text == " ".join(split_words(text)), text
