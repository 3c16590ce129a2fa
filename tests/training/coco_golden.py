"""What the COCO caption code makes of a few captions (in the repository) and of sixty (in ../shared)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
SMALL = _ROOT / "tests" / "golden" / "metrics_small.json"
SHARED = _ROOT.parent / "shared" / "golden" / "metrics.json"
SHARED_NAMES = {
    "bleu1": "BLEU-1",
    "bleu2": "BLEU-2",
    "bleu3": "BLEU-3",
    "bleu4": "BLEU-4",
    "meteor": "METEOR",
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr-D",
    "plain_cider": "CIDEr",
}


@dataclass(frozen=True)
class Item:
    hypothesis: str
    references: tuple[str, ...]
    tokens_hypothesis: str
    tokens_references: tuple[str, ...]
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Corpus:
    items: Mapping[str, Item]
    scores: Mapping[str, float]

    @property
    def hypotheses(self) -> dict[str, str]:
        return {name: item.hypothesis for name, item in self.items.items()}

    @property
    def references(self) -> dict[str, tuple[str, ...]]:
        return {name: item.references for name, item in self.items.items()}


def small() -> Corpus:
    document = json.loads(SMALL.read_text("utf-8"))
    items = {str(n): _item(entry, entry["scores"]) for n, entry in enumerate(document["items"])}
    return Corpus(items, document["corpus"])


def shared(name: str) -> Corpus:
    """Corpus "all", "plain" or "one_item"; skips where ../shared is absent."""
    if not SHARED.exists():
        pytest.skip("shared/golden/metrics.json absent")
    corpora = json.loads(SHARED.read_text("utf-8"))["corpora"]
    scores = [_renamed(entry.get("scores", entry)) for entry in corpora[name]["items"]]
    texts = corpora["all"]["items"][: len(scores)]
    items = {str(n): _item(*pair) for n, pair in enumerate(zip(texts, scores, strict=True))}
    return Corpus(items, _renamed(corpora[name]["corpus"]))


def _renamed(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: scores[theirs] for name, theirs in SHARED_NAMES.items() if theirs in scores}


def _item(text: Mapping[str, Any], scores: Mapping[str, float]) -> Item:
    return Item(
        text["hypothesis"],
        tuple(text["references"]),
        text["tokens_hypothesis"],
        tuple(text["tokens_references"]),
        scores,
    )
