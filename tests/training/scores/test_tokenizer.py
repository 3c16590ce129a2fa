from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training import coco_golden
from tests.training.fake_java import fake_java
from training.scores.java import Java, JavaError, find_java, find_scorer_file
from training.scores.tokenizer import split_penn_treebank, tokenize


@pytest.fixture(scope="module")
def java() -> Java:
    return find_java()


@pytest.fixture(params=["Stanford", "own rules"])
def tokenizer(request: pytest.FixtureRequest, java: Java) -> Callable[[list[str]], list[str]]:
    chosen = java if request.param == "Stanford" else None
    return lambda captions: tokenize(captions, chosen)


@pytest.mark.parametrize(
    "corpus", [coco_golden.small, lambda: coco_golden.shared("all")], ids=["small", "all"]
)
def test_tokens_are_those_of_the_coco_code(
    tokenizer: Callable[[list[str]], list[str]], corpus: Callable[[], coco_golden.Corpus]
) -> None:
    items = corpus().items.values()
    texts = [text for item in items for text in (item.hypothesis, *item.references)]
    want = [tokens for item in items for tokens in (item.tokens_hypothesis, *item.tokens_references)]
    assert tokenizer(texts) == want


def test_every_caption_stays_in_its_line(tokenizer: Callable[[list[str]], list[str]]) -> None:
    captions = ["a\u2028b\x85c\rd\x0be\x1cf", "", "\n", "a ||| b", "\ud800", "a man 😀 smiles", "the last"]
    tokens = tokenizer(captions)
    assert len(tokens) == len(captions)
    assert tokens[0] == "a b c d e f"
    assert tokens[1] == tokens[2] == ""
    assert tokens[3] == "a | | | b"
    assert tokens[-1] == "the last"


def test_nothing_to_tokenise(tokenizer: Callable[[list[str]], list[str]]) -> None:
    assert tokenizer([]) == []


def test_the_locale_does_not_matter(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    assert tokenize(["Crème brûlée"], java) == ["crème brûlée"]


def test_no_file_is_left_beside_the_jar(java: Java) -> None:
    folder = find_scorer_file("tokenizer")
    before = {path.name for path in folder.iterdir()}
    tokenize(["a man walks"], java)
    assert {path.name for path in folder.iterdir()} == before


def test_a_jar_below_a_folder_with_a_space(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced = tmp_path / "a folder"
    spaced.symlink_to(find_scorer_file("."), target_is_directory=True)
    monkeypatch.setattr("training.scores.tokenizer.find_scorer_file", spaced.joinpath)
    assert tokenize(["He can't swim."], java) == ["he ca n't swim"]


def test_a_tokeniser_that_loses_lines_is_not_believed(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="answered 1 lines to 2 captions"):
        tokenize(["a", "b"], fake_java(tmp_path, "cat >/dev/null; echo one"))


def test_rules_of_the_treebank() -> None:
    assert split_penn_treebank('"Gonna" go; they\'re in the U.S. (3.5 ft. deep)') == [
        *[
            "''",
            "gon",
            "na",
            "''",
            "go",
            ";",
            "they",
            "'re",
            "in",
            "the",
            "u.s.",
            "-lrb-",
            "3.5",
            "ft.",
            "deep",
        ],
        "-rrb-",
    ]
    assert split_penn_treebank("Mr. O'Hara's R&B at five o'clock, 3/4 full &amp; well-known") == [
        *[
            "mr.",
            "o'hara",
            "'s",
            "r",
            "&",
            "b",
            "at",
            "five",
            "o'clock",
            ",",
            "3/4",
            "full",
            "&",
            "well-known",
        ],
    ]
