"""Compares checkpoints on held-out pictures.

    python -m lab compare A B … --data DATA

A run keeps the best of many states by one way of decoding, and the best of many is partly luck: its score
says more of the choice than of the captioner. So captioners of different runs are compared by CIDEr-D over
several ways of decoding, and by how likely they find what people wrote, each against the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from lab.pictures.picture_batches import TrainingItem
from lab.pictures.picture_inputs import SELECTION_SET, PictureInputs
from lab.pictures.pseudo_video import sample_whole, stack_samples
from models.captioner import Captioner
from models.captioners.registry import UnknownCaptioner
from models.checkpoint import Card, CheckpointError, load_captioner
from models.decoding.decode import DecodingOptions, decode
from models.feature_sources.stream_checks import StreamMismatch, select_stream_set
from models.inputs import Batch, order_inputs
from models.likelihood import teacher_force
from models.vocabulary import pad_captions
from training.recipes.demo_recipes import DEMO
from training.scores.cider import CiderD

WAYS = tuple(
    DecodingOptions(attention=False, beam_size=beam_size, length_penalty=length_penalty)
    for beam_size, length_penalty in ((5, 0.7), (5, 0.5), (3, 0.6), (2, 0.7), (1, 0.7))
)
#: Words that are read of a caption that a person wrote, its end among them.
LONGEST = 21
#: Pictures that are captioned together.
GROUP = 50


@dataclass(frozen=True, eq=False)
class HeldOutPictures:
    """Held-out pictures, a group at a time, and what CIDEr-D says of captions of all."""

    items: Sequence[TrainingItem]
    groups: Sequence[Mapping[str, Batch]]
    scorer: CiderD

    @classmethod
    def from_items(cls, items: Sequence[TrainingItem]) -> HeldOutPictures:
        """Groups items, and counts their n-grams."""
        groups = [
            stack_samples([sample_whole(item.pictures) for item in items[start : start + GROUP]])
            for start in range(0, len(items), GROUP)
        ]
        return cls(items, groups, CiderD({item.id: item.captions for item in items}))


@dataclass(frozen=True, eq=False)
class CheckpointScore:
    """Scores of each picture. cider: (n,), ×100, the mean over WAYS. nats, words: (n,), of its captions."""

    cider: NDArray[np.float64]
    nats: NDArray[np.float64]
    words: NDArray[np.float64]

    @property
    def nats_a_word(self) -> float:
        return float(self.nats.sum() / self.words.sum())

    def compare_with(self, other: CheckpointScore) -> tuple[float, float]:
        """Returns the mean difference of ``cider`` and its standard error, picture by picture."""
        difference = self.cider - other.cider
        return float(difference.mean()), float(difference.std() / len(difference) ** 0.5)


@torch.inference_mode()
def score_checkpoint(captioner: Captioner, judged: HeldOutPictures) -> CheckpointScore:
    """Scores a captioner on the pictures of ``judged``."""
    memories = [captioner.encode_batches(order_inputs(captioner.inputs, group)) for group in judged.groups]
    ids = [item.id for item in judged.items]
    scores = []
    for options in WAYS:
        written = [best.tokens for memory in memories for best, *_ in decode(captioner, memory, options)]
        captions = [captioner.vocabulary.decode(tokens) for tokens in written]
        scores.append(100 * np.asarray(judged.scorer.score(ids, captions), np.float64))
    nats, words = _measure_likelihood(captioner, memories, judged)
    return CheckpointScore(np.mean(scores, 0), nats, words)


def _measure_likelihood(
    captioner: Captioner, memories: Sequence[Any], judged: HeldOutPictures
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns (nats, words) of all captions of each picture; one with fewer than others repeats its own."""
    nats, words, start = [], [], 0
    most = max(len(item.captions) for item in judged.items)
    for memory in memories:
        items = judged.items[start : start + memory.size]
        start += memory.size
        captions = [
            captioner.vocabulary.encode((item.captions * most)[i]) for item in items for i in range(most)
        ]
        forced = teacher_force(captioner, memory, pad_captions(captions, LONGEST))
        nats.append(-forced.log_p.sum(1).view(-1, most).sum(1))
        words.append(forced.valid.sum(1).view(-1, most).sum(1))
    return torch.cat(nats).double().numpy(), torch.cat(words).double().numpy()


def _load_held_out(cards: Sequence[Card], data: Path, cache: Path) -> list[TrainingItem]:
    """Loads the held-out pictures with all that the checkpoints read.

    Raises StreamMismatch for one that is fed unlike the first, FileNotFoundError where there are none.
    """
    inputs = PictureInputs.build(select_stream_set(cards[0]), tuple(cards[0].streams), cards)
    held_out = inputs.items(data, cache, DEMO.held_out)[1]
    if not held_out:
        raise FileNotFoundError(f"{data} lacks the set of which pictures are held out: {SELECTION_SET}")
    return held_out


def compare(
    checkpoints: Annotated[list[str], typer.Argument(help="Captioners by name, or checkpoint files.")],
    data: Annotated[Path, typer.Option(help="Folder with the training sets.")],
    cache: Annotated[Path, typer.Option(help="Where features are kept.")] = Path("data/cache"),
) -> None:
    """Compare checkpoints on held-out pictures, each with the first one."""
    try:
        loaded = {name: load_captioner(name) for name in checkpoints}
        judged = HeldOutPictures.from_items(
            _load_held_out([each.card for each in loaded.values()], data, cache)
        )
    except (CheckpointError, UnknownCaptioner, StreamMismatch, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    if len({each.captioner.vocabulary.words for each in loaded.values()}) > 1:
        raise typer.BadParameter("these know different words, and what a word costs cannot be compared")
    columns = ("checkpoint", "CIDEr-D, five ways", "above the first", "nats a word")
    table, first = Table(*columns, title=f"{len(judged.items)} held-out pictures"), None
    for name, checkpoint in loaded.items():
        score = score_checkpoint(checkpoint.captioner, judged)
        first = first or score
        difference, deviation = score.compare_with(first)
        reported = f"{difference:+.2f} ± {deviation:.2f}"
        table.add_row(name, f"{score.cider.mean():.2f}", reported, f"{score.nats_a_word:.4f}")
    Console().print(table)
