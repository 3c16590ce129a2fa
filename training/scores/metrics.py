"""Computes BLEU-1..4, METEOR, ROUGE-L, CIDEr-D and CIDEr of captions, as the COCO caption code does.

BLEU's counts and ROUGE-L come from pycocoevalcap, METEOR from its jar, CIDEr-D from
`training.scores.cider`, the similarity of sentence vectors from `training.scores.sentence_vectors`. Each
metric is kept as counts an item and a function of their sums (`training.scores.bootstrap.Metric`), from
which the corpus score, the items' scores and the intervals follow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Self

import numpy as np
from rich.table import Table

from extractors.pretrained.errors import WeightsError
from models.chinese import is_chinese
from training.scores.bootstrap import (
    RESAMPLES,
    Comparison,
    Floats,
    Metric,
    compare,
    compute_interval,
    mean_metric,
)
from training.scores.cider import CiderD
from training.scores.java import Java, JavaError, find_java
from training.scores.meteor import Meteor, compute_meteor
from training.scores.sentence_vectors import SentenceEncoder, compare_sentences
from training.scores.tokenizer import tokenize

COCO_METRICS: Final[tuple[str, ...]] = ("bleu1", "bleu2", "bleu3", "bleu4", "meteor", "rouge_l", "cider")
#: CIDEr as its authors define it: neither clipped nor less for another length, which CIDEr-D adds.
PLAIN_CIDER: Final = "plain_cider"
SIMILARITY: Final = "similarity"  #: of sentence vectors
#: What is computed unasked, of captions and references alone.
METRICS: Final[tuple[str, ...]] = (*COCO_METRICS, PLAIN_CIDER, SIMILARITY)
#: What pictures are needed for (training/scores/clip_score.py).
CLIP_METRICS: Final = ("clip_score", "ref_clip_score")

TITLES: Final = {
    "bleu1": "BLEU-1",
    "bleu2": "BLEU-2",
    "bleu3": "BLEU-3",
    "bleu4": "BLEU-4",
    "meteor": "METEOR",
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr-D",
    PLAIN_CIDER: "CIDEr",
    SIMILARITY: "sentence vectors",
    "clip_score": "CLIPScore",
    "ref_clip_score": "RefCLIPScore",
}
#: Why CIDEr-D cannot be computed of one item, or of several with the same references.
NO_CIDER: Final = "each n-gram is in the references of all items and weighs nothing"
#: What is said of scores of Chinese captions; the papers report the COCO code's METEOR of them, too.
NOTES_OF_CHINESE: Final = {
    "words": "Chinese, split by jieba",
    "meteor_matches": "METEOR knows no Chinese: it matches equal words alone, by the weights of English",
    SIMILARITY: "not computed: the sentence vectors are of English",
}
FEW_ITEMS: Final = 30  #: below which a bootstrap's intervals are told to mean little
_OWN_RULES: Final = "Penn Treebank by rules of our own"
#: What the COCO code adds to a numerator and a denominator, so that no match is not quite nothing.
_TINY, _SMALL = 1e-15, 1e-9


@dataclass(frozen=True)
class TokenizedCaptions:
    """Tokenised captions of items, in order, each with its references; `tokenizer` says whose tokens."""

    ids: tuple[str, ...]
    hypotheses: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    tokenizer: str


@dataclass(frozen=True)
class ScoreReport:
    """Scores in per cent of one set of captions; what could not be computed is in `notes` under its name."""

    captions: TokenizedCaptions
    metrics: Mapping[str, Metric]
    intervals: Mapping[str, tuple[float, float]]
    notes: Mapping[str, str]

    @property
    def n(self) -> int:
        return len(self.captions.ids)

    def to_json(self) -> dict[str, Any]:
        """Returns {"metrics": {name: score or null}, "intervals": {name: [low, high]}, "n", "notes"}."""
        missing = {name: None for name in TITLES if name in self.notes}
        scores = {name: metric.corpus for name, metric in self.metrics.items()} | missing
        return {
            "metrics": {name: scores[name] for name in TITLES if name in scores},
            "intervals": {name: list(limits) for name, limits in self.intervals.items()},
            "n": self.n,
            "notes": dict(self.notes),
        }

    def table(self) -> Table:
        """Makes a table of scores with their intervals."""
        table = Table("metric", "score", "95 % interval", title=f"{self.n} items")
        for name, title in TITLES.items():
            if metric := self.metrics.get(name):
                low, high = self.intervals[name]
                table.add_row(title, f"{metric.corpus:.1f}", f"{low:.1f} to {high:.1f}")
            elif name in self.notes:
                table.add_row(title, self.notes[name], "")
        return table

    def add(self, *metrics: Metric) -> Self:
        """Returns the report with more metrics of the same items, each with its interval."""
        named = {metric.name: metric for metric in metrics}
        intervals = {name: compute_interval(metric) for name, metric in named.items()}
        return replace(self, metrics={**self.metrics, **named}, intervals={**self.intervals, **intervals})


def evaluate(
    hypotheses: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    metrics: Sequence[str] | None = None,
    meteor: Meteor | None = None,
    java: Java | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ScoreReport:
    """Scores one caption an item against the item's references, tokenising both.

    METEOR takes ten seconds to start: leave it out of `metrics`, or hand over a running one, where that
    matters.

    Args:
        hypotheses: id → caption.
        references: id → captions that people wrote. CIDEr-D takes its document frequencies from these, also
            in the resamples.
        metrics: some of METRICS, by default all.
        meteor: a running one.
        java: by default the one found on the machine; where none runs, METEOR is not computed.
        resamples: of the bootstrap.
        seed: of the resamples.

    Raises:
        ValueError: ids differ, nothing is given, an item has no reference or a metric is unknown.
    """
    if metrics is None:
        metrics = METRICS
    _check(hypotheses, references, metrics)
    notes: dict[str, str] = {}
    try:
        java = java or (meteor.java if meteor else find_java())
    except JavaError as error:
        notes["java"] = str(error)
    captions = tokenize_captions(hypotheses, references, java)
    notes["tokenizer"] = captions.tokenizer
    if is_chinese([text for texts in captions.references for text in texts]):
        metrics = [name for name in metrics if name != SIMILARITY]
        notes |= NOTES_OF_CHINESE
    if len(hypotheses) < FEW_ITEMS:
        notes["items"] = f"intervals, and p of a comparison, mean little with fewer than {FEW_ITEMS} of them"
    built = _compute_without_java(captions, metrics)
    for name in {"cider", PLAIN_CIDER} & set(metrics) - set(built):
        notes[name] = f"not computed: {NO_CIDER}"
    if "meteor" in metrics:
        try:
            built["meteor"] = _measure_meteor(captions, meteor, java)
        except JavaError as error:
            notes["meteor"] = f"not computed: {notes.get('java', error)}"
    if SIMILARITY in metrics:
        try:
            built[SIMILARITY] = _measure_similarity(captions)
        except (WeightsError, ImportError) as error:
            notes[SIMILARITY] = f"not computed: {error}"
    ordered = {name: built[name] for name in METRICS if name in built}
    intervals = {name: compute_interval(metric, resamples, seed=seed) for name, metric in ordered.items()}
    return ScoreReport(captions, ordered, intervals, notes)


def tokenize_captions(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]], java: Java | None
) -> TokenizedCaptions:
    """Tokenises all captions in one go.

    Args:
        hypotheses: id → caption.
        references: id → captions that people wrote.
        java: runs Stanford's tokeniser; our own rules take its place where it is None or does not run.
    """
    ids = tuple(hypotheses)
    texts = [*hypotheses.values(), *(text for name in ids for text in references[name])]
    source = f"Stanford, {java.version}" if java else f"{_OWN_RULES}: Java does not run"
    try:
        tokens = iter(tokenize(texts, java))
    except JavaError as error:
        source = f"{_OWN_RULES}: {error}"
        tokens = iter(tokenize(texts, None))
    tokenized = tuple(next(tokens) for _ in ids)
    return TokenizedCaptions(
        ids, tokenized, tuple(tuple(next(tokens) for _ in references[name]) for name in ids), source
    )


def compare_with_shuffled(captions: TokenizedCaptions, shuffles: int = 100, seed: int = 0) -> Comparison:
    """Compares CIDEr-D of captions with that of the same captions handed round, so that none stays in place.

    An item's shuffled score is the mean over derangements, each a single random cycle (Sattolo). A captioner
    that does not look scores nothing here, however likely its words.

    Args:
        captions: of two items or more.
        shuffles: how many derangements.
        seed: of these and of the bootstrap.

    Raises:
        ValueError: there are fewer than two items.
    """
    if len(captions.ids) < 2:
        raise ValueError("One caption cannot be handed round: shuffling needs two items.")
    scorer = CiderD(_split_references(captions))
    words = [text.split() for text in captions.hypotheses]
    generator = np.random.default_rng(seed)
    shuffled = [
        scorer.score(captions.ids, [words[other] for other in _draw_cycle(len(words), generator)])
        for _ in range(shuffles)
    ]
    in_place = mean_metric("cider", 100 * scorer.score(captions.ids, words))
    return compare(in_place, mean_metric("cider", 100 * np.mean(shuffled, axis=0)), seed=seed)


def _check(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]], metrics: Sequence[str]
) -> None:
    if unknown := set(metrics) - set(METRICS):
        raise ValueError(f"Unknown metric {min(unknown)!r}; known are {', '.join(METRICS)}.")
    if not hypotheses:
        raise ValueError("Nothing to score: there are no captions.")
    if odd := hypotheses.keys() ^ references.keys():
        raise ValueError(f"{len(odd)} items have a caption or references but not both, such as {min(odd)!r}.")
    if bare := [name for name, texts in references.items() if not texts]:
        raise ValueError(f"Item {bare[0]!r} has no references.")


def _compute_without_java(captions: TokenizedCaptions, metrics: Sequence[str]) -> dict[str, Metric]:
    """Computes the metrics that need no Java."""
    built: dict[str, Metric] = {}
    orders = [order for order in range(1, 5) if f"bleu{order}" in metrics]
    if orders:
        counts = count_bleu(captions.hypotheses, captions.references)
        built |= {
            f"bleu{order}": Metric(f"bleu{order}", counts, partial(compute_bleu, order)) for order in orders
        }
    if "rouge_l" in metrics:
        scores = compute_rouge_l(captions.hypotheses, captions.references)
        built["rouge_l"] = mean_metric("rouge_l", 100 * scores)
    words = [text.split() for text in captions.hypotheses]
    for name in {"cider", PLAIN_CIDER} & set(metrics):
        scorer = CiderD(_split_references(captions), plain=name == PLAIN_CIDER)
        if scorer.is_computable:
            built[name] = mean_metric(name, 100 * scorer.score(captions.ids, words))
    return built


def count_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
    """Counts what BLEU is made of, (n, 10).

    Caption by caption: words, the closest reference's words, n-grams for n = 1..4, and the correct ones
    (clipped).
    """
    from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test

    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        counts = cook_test(hypothesis, cook_refs(texts), eff="closest")
        rows.append([counts["testlen"], counts["reflen"], *counts["guess"], *counts["correct"]])
    return np.array(rows, np.float64)


def compute_bleu(order: int, counts: Floats) -> Floats:
    """Computes BLEU × 100 of up to ``order`` words from counts (…, 10) of captions or of their sum."""
    precision = (counts[..., 6 : 6 + order] + _TINY) / (counts[..., 2 : 2 + order] + _SMALL)
    ratio = (counts[..., 0] + _TINY) / (counts[..., 1] + _SMALL)
    brevity = np.exp(np.minimum(0, 1 - 1 / ratio))
    return np.asarray(100 * precision.prod(axis=-1) ** (1 / order) * brevity)


def compute_rouge_l(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
    """Computes ROUGE-L, (n,) in [0, 1], caption by caption."""
    from pycocoevalcap.rouge.rouge import Rouge

    score: Callable[[list[str], list[str]], float] = Rouge().calc_score
    pairs = zip(hypotheses, references, strict=True)
    return np.array([score([hypothesis], list(texts)) for hypothesis, texts in pairs])


def _measure_meteor(captions: TokenizedCaptions, running: Meteor | None, java: Java | None) -> Metric:
    if running is not None:
        counts = running.count_matches(captions.hypotheses, captions.references)
    elif java is not None:
        with Meteor(java) as started:
            counts = started.count_matches(captions.hypotheses, captions.references)
    else:
        raise JavaError("Java does not run.")
    return Metric("meteor", counts, lambda sums: 100 * compute_meteor(sums))


def _measure_similarity(captions: TokenizedCaptions) -> Metric:
    scores = compare_sentences(SentenceEncoder.load(), captions.hypotheses, captions.references)
    return mean_metric(SIMILARITY, 100 * scores)


def _split_references(captions: TokenizedCaptions) -> dict[str, list[list[str]]]:
    return {
        name: [text.split() for text in texts]
        for name, texts in zip(captions.ids, captions.references, strict=True)
    }


def _draw_cycle(n: int, generator: np.random.Generator) -> Sequence[int]:
    order = list(range(n))
    for last in range(n - 1, 0, -1):
        other = int(generator.integers(last))
        order[last], order[other] = order[other], order[last]
    return order
