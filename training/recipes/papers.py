"""The papers' own ways of training, at their widths: who learns what, how and for how long.

``--recipe paper-msvd`` and its like name a set; what is done with it depends on the captioner. Numbers are
the papers'. Where they give none: batches of 32 captions, Adam, gradients clipped at 5 (as dualAFR's are), 30
epochs of which the best by validation are kept, captions of at most 19 words. An epoch is once through all
captions, each batch having one of each of its videos.

* STaTS: RMSprop at 1e-4, about 20 epochs, the first 10 by cross-entropy and the ranking loss with scheduled
  sampling, the others with METEOR + BLEU as MIXER mixes them; two words more every epoch (Δ is not given).
* G2L: Adam with decoupled decay 2e-5; the rate rises from 1e-7 to 1e-4 over 3 epochs, holds, and drops to
  1e-6 for the last 7 of 30.
* refocus: 3e-4, a quarter of the words sampled, 5 epochs of step 1, then the combined loss, then frozen key
  frames, then CIDEr + ROUGE-L. Only the first 5 are given. No sound for MSVD, which has none.
* dualAFR: Adam at 2e-4, initial weights as in the model's docstring; soft attention, or hard with 10 samples
  (``-hard``). Stopped early: kept is the best by validation.
* fusion: no number is given: 5e-4, a fifth less every 3 epochs; then CIDEr + BLEU-4, one to one, against the
  greedy caption, mixed with a tenth of cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from models.captioners.dual_afr import DualAFRConfig
from models.captioners.g2l import G2LConfig
from models.captioners.refocus import RefocusConfig
from models.captioners.stats import STaTSConfig, StreamConfig
from models.captioners.vatex import SpatialVatexConfig, VatexConfig
from models.feature_sources.stream_sets import StreamSet
from models.inputs import InputStream
from training.recipes.recipe import CONSTANT, Decay, HoldAndDrop, Recipe, RewardWeights
from training.recipes.recipe_book import DEMO, UnknownRecipe


@dataclass(frozen=True)
class PaperRun:
    """One captioner on one set. recipe: without lengths, which ``epochs`` gives by phase.

    config: from the stream set it is fed with. data_set, paper: whose splits and words, in training.datasets.
    """

    recipe: Recipe
    epochs: Mapping[str, float]
    config: Callable[[StreamSet], BaseModel]
    streams: str
    data_set: str
    paper: str

    def plan(self, captions: int, self_critical: bool = True) -> Recipe:
        """In steps, for a training split of so many captions."""
        batch = self.recipe.videos * self.recipe.captions
        lasts = {phase: n for phase, n in self.epochs.items() if self_critical or phase != "self_critical"}
        return self.recipe.in_steps(lasts, -(-captions // batch))


#: What the papers share or leave open. Lengths of pseudo-videos are not read: these are real ones.
PAPER = DEMO.model_copy(
    update={
        "name": "paper",
        "videos": 32,
        "captions": 1,
        "max_length": 20,
        "optimizer": "adam",
        "betas": (0.9, 0.999),
        "schedule": CONSTANT,
        "warmup": 0,
        "weight_decay": 0.0,
        "clip": 5.0,
        "smoothing": 0.0,
        "ranking_weight": 0.0,
        "forcing_eta": None,
        "average_decay": 0.0,
        "steps": 0,
        "self_critical_steps": 0,
        "self_critical_captions": 1,
        "self_critical_temperature": 1.0,
    }
)
STATS = PAPER.model_copy(
    update={
        "optimizer": "rmsprop",
        "learning_rate": 1e-4,
        "ranking_weight": 0.1,
        "forcing_eta": 24.0,
        "self_critical_rate": 1e-4,
        "rewards": RewardWeights(cider=0.0, bleu=1.0, meteor=1.0),
        "mixer_words": 2,
    }
)
G2L = PAPER.model_copy(
    update={
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "weight_decay": 2e-5,
        "schedule": HoldAndDrop(first=1e-3, warm=3, drop=23, last=1e-2),
    }
)
REFOCUS = PAPER.model_copy(
    update={
        "learning_rate": 3e-4,
        "forcing": 0.75,
        "max_length": 16,  # 15 words and the end
        "self_critical_rate": 5e-5,
        "rewards": RewardWeights(cider=1.0, rouge_l=1.0),
        "self_critical_weight": 1.0,
    }
)
DUAL_AFR = PAPER.model_copy(update={"learning_rate": 2e-4})
FUSION = PAPER.model_copy(
    update={
        "learning_rate": 5e-4,
        "schedule": Decay(factor=0.8, epochs=3),
        "max_length": 30,
        "self_critical_rate": 5e-5,
        "rewards": RewardWeights(cider=1.0, bleu=1.0),
        "baseline": "greedy",
    }
)

STATS_EPOCHS = {"cross_entropy": 10, "self_critical": 10}
REFOCUS_EPOCHS = {"first_step": 5, "combined": 25, "frozen_key_frames": 30, "self_critical": 10}
FUSION_EPOCHS = {"cross_entropy": 30, "self_critical": 10}
LONG = {"cross_entropy": 30}


def stats_config(streams: StreamSet) -> STaTSConfig:
    """A STaTS a stream of the set: grids, boxes, or one vector a row, which is a grid of one cell."""
    return STaTSConfig(
        streams=tuple(
            StreamConfig(
                name=each.stream, width=each.width, regions="boxes" if each.regions == "boxes" else "grid"
            )
            for each in streams.inputs
        )
    )


def g2l_config(_: StreamSet) -> G2LConfig:
    return G2LConfig(regions=InputStream(name="bottom_up:16", width=2048))


def refocus_config(_: StreamSet) -> RefocusConfig:
    return RefocusConfig(grid=InputStream(name="resnet152_grid", width=2048))


def silent_refocus_config(streams: StreamSet) -> RefocusConfig:
    return refocus_config(streams).model_copy(update={"audio": None})


def hard_config(_: StreamSet) -> DualAFRConfig:
    return DualAFRConfig(kind="hard")


def fusion_config(_: StreamSet) -> VatexConfig:
    return VatexConfig(motion=InputStream(name="ircsn152", width=2048))


def spatial_config(streams: StreamSet) -> SpatialVatexConfig:
    """Objects have both networks' maps, as the paper says."""
    objects, moving = (
        InputStream(name=f"roi:{network}@mask_rcnn:10", width=2048) for network in ("resnext101", "ircsn152")
    )
    pooled = fusion_config(streams).model_dump()
    return SpatialVatexConfig.model_validate({**pooled, "objects": objects, "moving_objects": moving})


def _of(
    data_set: str,
    paper: str,
    recipe: Recipe,
    epochs: Mapping[str, float],
    config: Callable[[StreamSet], BaseModel],
    suffix: str = "",
) -> PaperRun:
    named = recipe.model_copy(update={"name": f"paper-{data_set}{suffix}"})
    return PaperRun(named, epochs, config, paper, data_set, paper)


#: (recipe, captioner) → what the captioner's paper did with that set.
PAPER_RUNS: Mapping[tuple[str, str], PaperRun] = {
    (run.recipe.name, captioner): run
    for captioner, run in (
        *(("stats", _of(data, "stats", STATS, STATS_EPOCHS, stats_config)) for data in ("msvd", "msrvtt")),
        *(("g2l", _of(data, "g2l", G2L, LONG, g2l_config)) for data in ("msvd", "msrvtt")),
        ("refocus", _of("msvd", "refocus", REFOCUS, REFOCUS_EPOCHS, silent_refocus_config)),
        ("refocus", _of("msrvtt", "refocus", REFOCUS, REFOCUS_EPOCHS, refocus_config)),
        *(
            ("dual_afr", _of(data, "dual_afr", DUAL_AFR, LONG, lambda _: DualAFRConfig()))
            for data in ("msvd", "msrvtt")
        ),
        *(
            ("dual_afr", _of(data, "dual_afr", DUAL_AFR, LONG, hard_config, "-hard"))
            for data in ("msvd", "msrvtt")
        ),
        ("vanilla", _of("vatex", "fusion", FUSION, FUSION_EPOCHS, fusion_config)),
        ("temporal", _of("vatex", "fusion", FUSION, FUSION_EPOCHS, fusion_config)),
        ("spatial", _of("vatex", "fusion", FUSION, FUSION_EPOCHS, spatial_config)),
    )
}
PAPER_NAMES = tuple(dict.fromkeys(recipe for recipe, _ in PAPER_RUNS))


def paper_run(recipe: str, captioner: str) -> PaperRun:
    """Raises UnknownRecipe for a set that the captioner's paper does not have."""
    if (recipe, captioner) not in PAPER_RUNS:
        whose = ", ".join(who for name, who in PAPER_RUNS if name == recipe)
        own = ", ".join(name for name, who in PAPER_RUNS if who == captioner) or "none"
        raise UnknownRecipe(
            f"the paper of {captioner} has no {recipe}, which is for: {whose}; {captioner} has: {own}"
        )
    return PAPER_RUNS[recipe, captioner]
