"""Measures what the defaults of decoding are worth on held-out pictures.

    python -m lab.checkpoints.choose_decoding --data DATA

The shipped captioners write the training pictures that no run trains on. The first table has each captioner's
score by the exponent of its length penalty (models/decoding/options.py has the best of all as its default).
The second has it where words may return and where nothing is named twice (models/decoding/constraints.py).
The third has their fusion's by what likelihood counts against relevance (models/combining/reranking.py); 0 is
the paper's rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import torch
import typer
from rich.console import Console
from rich.table import Table

from models.captioner import AnyCaptioner
from models.checkpoint import find_embedding, load_captioner, load_embedding
from models.combining.members import FUSION, choose_members, describe_files
from models.combining.reranking import Candidate, Reranker
from models.decoding.decode import DecodingOptions, decode
from models.inputs import Batch, order_inputs
from models.stream_set import DEMO_TUNED_STAGES
from training.batches.picture_batches import TrainingItem
from training.batches.picture_inputs import PictureInputs
from training.batches.pseudo_video import sample_whole, stack_samples
from training.recipes.demo_recipes import DEMO
from training.scores.cider import CiderD

LENGTH_PENALTIES = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LIKELIHOOD_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.6)
GROUP = 50
OPTIONS = DecodingOptions(attention=False)
Choice = TypeVar("Choice")


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

    def score(self, captions: Sequence[Sequence[str]]) -> float:
        """Computes CIDEr-D × 100."""
        return 100 * float(self.scorer.score([item.id for item in self.items], captions).mean())

    def score_by_length_penalty(self, captioner: AnyCaptioner) -> dict[float, float]:
        """Scores a captioner with each length penalty."""
        return self._score_by(captioner, {p: OPTIONS.changed(length_penalty=p) for p in LENGTH_PENALTIES})

    def score_by_name_once(self, captioner: AnyCaptioner) -> dict[bool, float]:
        """Scores a captioner where words may return, and where nothing is named twice."""
        return self._score_by(captioner, {once: OPTIONS.changed(name_once=once) for once in (False, True)})

    def _score_by(
        self, captioner: AnyCaptioner, options: Mapping[Choice, DecodingOptions]
    ) -> dict[Choice, float]:
        memories = [captioner.encode_batches(order_inputs(captioner, group)) for group in self.groups]

        def captions(options: DecodingOptions) -> list[Sequence[str]]:
            found = [hypotheses for memory in memories for hypotheses in decode(captioner, memory, options)]
            return [captioner.vocabulary.decode(best.tokens) for best, *_ in found]

        return {choice: self.score(captions(each)) for choice, each in options.items()}

    def score_by_likelihood_weight(self, fusion: Reranker) -> dict[float, float]:
        """Scores a fusion with each weight of likelihood."""
        fused = [each for group in self.groups for each in fusion.caption_batches(group, OPTIONS)]

        def winners(weight: float) -> list[Sequence[str]]:
            def merit(each: Candidate) -> float:
                return each.with_scores(each.relevance, each.likelihood, weight).merit

            return [max(each.candidates, key=merit).words for each in fused]

        return {weight: self.score(winners(weight)) for weight in LIKELIHOOD_WEIGHTS}


def load_shipped_fusion() -> Reranker:
    """Loads the members that a fusion has by default.

    Raises CheckpointError, and ValueError for no embedding.
    """
    path = find_embedding()
    if path is None:
        raise ValueError("there is no semantic embedding, which fusion needs")
    names = [each.name for each in choose_members(FUSION, describe_files())]
    return Reranker({name: load_captioner(name).captioner for name in names}, load_embedding(path)[0])


def main(
    data: Annotated[Path, typer.Option(help="Folder with the training sets.")],
    cache: Annotated[Path, typer.Option(help="Where features are kept.")] = Path("data/cache"),
) -> None:
    """Prints CIDEr-D on the held-out pictures for each choice."""
    inputs = PictureInputs.build(DEMO_TUNED_STAGES, DEMO_TUNED_STAGES.streams)
    judged, fusion = (
        HeldOutPictures.from_items(inputs.items(data, cache, DEMO.held_out)[1]),
        load_shipped_fusion(),
    )
    lengths = Table("captioner", *(f"{penalty:g}" for penalty in LENGTH_PENALTIES), title="length penalty")
    naming = Table("captioner", "words may return", "nothing named twice", title="name_once")
    weights = Table(*(f"{weight:g}" for weight in LIKELIHOOD_WEIGHTS), title="likelihood weight")
    with torch.inference_mode():
        for name, captioner in fusion.members.items():
            found = judged.score_by_length_penalty(captioner)
            lengths.add_row(name, *(f"{found[penalty]:.1f}" for penalty in LENGTH_PENALTIES))
            naming.add_row(name, *(f"{score:.1f}" for score in judged.score_by_name_once(captioner).values()))
        weights.add_row(*(f"{score:.1f}" for score in judged.score_by_likelihood_weight(fusion).values()))
    for table in (lengths, naming, weights):
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
