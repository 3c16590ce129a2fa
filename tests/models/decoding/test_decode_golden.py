"""Beam search against exhaustive search and plain beam search of published tiny language models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.decoding.decode import DecodingOptions, decode
from tests.models.toy_captioners import HashToy, videos

SMALL = Path(__file__).resolve().parents[2] / "golden" / "beam_search_small.json"
#: Every sequence of at most five tokens fits, so nothing is pruned.
EXHAUSTIVE = 9331
#: Enough for the best by plain log-probability.
EXHAUSTIVE_BY_SUM = 1555


def _cases(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def _captioner(case: dict[str, Any]) -> HashToy:
    return HashToy(case["case"], 2 if case["context"] == "last 2 tokens" else None)


def _search(captioner: HashToy, beams: int, captions: int, penalty: float) -> list[dict[str, Any]]:
    options = DecodingOptions(
        beam_size=beams,
        num_captions=captions,
        max_length=5,
        length_penalty=penalty,
        suppress_unk=False,
        name_once=False,
    )
    (found,) = decode(captioner, videos(0), options)
    return [
        {
            "tokens": [int(captioner.vocabulary.words[i]) for i in h.tokens] + [0] * h.finished,
            "logprob": sum(h.logprobs) + (h.end_logprob or 0.0),
            "score": h.score,
        }
        for h in found
    ]


def _check(found: list[dict[str, Any]], wanted: list[dict[str, Any]], tolerance: float) -> None:
    assert [f["tokens"] for f in found] == [w["tokens"] for w in wanted]
    for f, w in zip(found, wanted, strict=True):
        for name in w.keys() - {"tokens"}:
            assert f[name] == pytest.approx(w[name], abs=tolerance)


def _check_case(case: dict[str, Any], tolerance: float) -> None:
    captioner = _captioner(case)
    for width, wanted in case["beam"].items():
        _check(_search(captioner, int(width), int(width), 0.0), wanted, tolerance)
    best = case["best"]
    _check(_search(captioner, EXHAUSTIVE_BY_SUM, 5, 0.0), best["sum"], tolerance)
    for name, wanted in best.items():
        if name.startswith("length_norm_") and "words" not in name:
            exponent = float(name.removeprefix("length_norm_"))
            _check(_search(captioner, EXHAUSTIVE, 5, exponent), wanted, tolerance)


SMALL_CASES = _cases(SMALL)


@pytest.mark.parametrize("case", SMALL_CASES["cases"], ids=lambda case: case["case"])
def test_agrees_with_the_cases_carried_here(case: dict[str, Any]) -> None:
    _check_case(case, SMALL_CASES["tolerance"])


def test_agrees_with_all_golden_cases(shared: Path) -> None:
    golden = _cases(shared / "golden" / "beam_search.json")
    assert len(golden["cases"]) == 20
    for case in golden["cases"]:
        _check_case(case, golden["tolerance"])


def test_the_language_models_are_the_published_ones() -> None:
    """A wrong rule for the toy would make every other test here compare nonsense."""
    for case in SMALL_CASES["cases"]:
        captioner = _captioner(case)
        for prefix, wanted in case["rows"].items():
            ids = captioner.vocabulary.encode(prefix.split(",") if prefix else [])
            memory = videos(0)
            state, word = captioner.start(memory, 1), captioner.first_word(memory, 1)
            log_probs, state, _ = captioner.step(state, word, memory)
            for i in ids:
                log_probs, state, _ = captioner.step(state, word.new_tensor([i]), memory)
            assert log_probs[0, [0, 3, 4, 5, 6, 7, 8]].tolist() == pytest.approx(wanted, abs=1e-12)
