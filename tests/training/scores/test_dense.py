"""Scores of captioned segments are those of ActivityNet's evaluation, written out pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.cider.cider import Cider

from training.scores import dense
from training.scores.dense import BOUNDS, compute_overlap, score_dense
from training.scores.java import JavaError

CAPTIONS = {
    "v_a@0-10": "a man runs on the grass",
    "v_a@4-10": "a man jumps over a bar",
    "v_a@0-7": "a dog runs",
    "v_b@1.5-9": "somebody cuts an onion",
    "v_b@20-30": "the onion is in the pan",
}
REFERENCES = {
    "v_a@0-10": ["a man runs over the grass", "the man runs fast"],
    "v_a@4-10": ["a man jumps over a high bar"],
    "v_a@0-7": ["a man runs to the bar"],
    "v_b@1.5-9": ["a woman cuts an onion on a board"],
    "v_b@20-30": ["she puts the onion into the pan"],
}
SECONDS = {
    "v_a@0-10": (0, 10),
    "v_a@4-10": (4, 10),
    "v_a@0-7": (0, 7),
    "v_b@1.5-9": (1.5, 9),
    "v_b@20-30": (20, 30),
}


def score_slowly(bound: float) -> float:
    """CIDEr as the authors' evaluation computes it: videos one after another, each with COCO's scorer."""
    of_videos = []
    for video in ("v_a", "v_b"):
        hypotheses: dict[int, list[str]] = {}
        references: dict[int, list[str]] = {}
        for name, text in CAPTIONS.items():
            for other, texts in REFERENCES.items():
                if not (name.startswith(video) and other.startswith(video)):
                    continue
                (begin, end), (start, stop) = SECONDS[name], SECONDS[other]
                both = max(0.0, min(end, stop) - max(begin, start))
                union = min(max(end, stop) - min(begin, start), end - begin + stop - start)
                for reference in texts if both / (union + 1e-8) >= bound else ():
                    hypotheses[len(hypotheses)] = [text]
                    references[len(references)] = [reference]
        of_videos.append(Cider().compute_score(references, hypotheses)[0])
    return 100 * float(np.mean(of_videos))


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No METEOR, and tokens by rules of our own."""

    def fail() -> None:
        raise JavaError("there is none")

    monkeypatch.setattr(dense, "find_java", fail)


@pytest.mark.usefixtures("no_java")
def test_cider_is_that_of_the_pairs_of_each_video() -> None:
    scores = score_dense(CAPTIONS, REFERENCES)
    assert scores is not None
    assert scores.scores.keys() == {"cider"}
    assert scores.videos == 2
    assert scores.scores["cider"][:-1] == pytest.approx([score_slowly(bound) for bound in BOUNDS])
    assert len(set(scores.scores["cider"])) > 1
    document = scores.to_json()
    assert document["cider"]["mean"] == pytest.approx(np.mean(scores.scores["cider"][:-1]))
    assert document["cider"]["0.3"] == scores.scores["cider"][0]


def test_meteor_sums_the_counts_of_a_video_s_pairs() -> None:
    scores = score_dense(CAPTIONS, REFERENCES)
    assert scores is not None
    assert all(0 < score < 100 for score in scores.scores["meteor"])
    whole = score_dense(CAPTIONS, {name: [text] for name, text in CAPTIONS.items()})
    assert whole is not None
    assert whole.scores["meteor"][-2] == pytest.approx(100)


def test_items_that_are_no_segments_have_none() -> None:
    assert score_dense({"video7": "a dog"}, {"video7": ["a dog"]}) is None


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [((0, 10), (0, 10), 1.0), ((0, 10), (5, 10), 0.5), ((0, 1), (1, 2), 0.0), ((0, 1), (5, 9), 0.0)],
)
def test_overlap(first: tuple[float, float], second: tuple[float, float], overlap: float) -> None:
    assert compute_overlap(np.array(first), np.array(second)) == pytest.approx(overlap)
    assert compute_overlap(np.array((0, 10)), np.array((0, 5))) < 0.5  # a bound that is just met, as there


@pytest.mark.usefixtures("no_java")
def test_what_counts_is_what_counts_there() -> None:
    """Characters beyond ASCII are left out, and references without a caption count."""
    one = {"v_a@0-10": "a café’s door"}
    plain = score_dense(one, {"v_a@0-10": ["a caf s door"], "v_a@0-7": ["a man"]})
    assert plain == score_dense(one, {"v_a@0-10": ["a café’s door"], "v_a@0-7": ["a man"]})
    alone = score_dense(CAPTIONS, REFERENCES)
    more = score_dense(CAPTIONS, {**REFERENCES, "v_a@0-9": ["a tree"]})
    assert alone is not None
    assert more is not None
    assert more.scores["cider"][2] != alone.scores["cider"][2]
