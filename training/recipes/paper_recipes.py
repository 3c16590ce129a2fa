"""Lists how the papers trained their captioners: recipe, epochs, widths, streams and set of each.

``--recipe paper-msvd`` and its like name a set; what is done with it depends on the captioner. Numbers are
the papers'. Where they give none: batches of 32 captions, Adam, gradients clipped at 5 (as dualAFR's are), 30
epochs of which the best by validation are kept, captions of at most 19 words, searched with a beam of 5 by
log-probability over length ** 0.7, where a word may come twice; weights are chosen by the same search that
``evaluate`` makes at the end. An epoch is once through all captions, each batch having one of each of its
videos.

* STaTS: RMSprop at 1e-4, about 20 epochs, the first 10 by cross-entropy and the ranking loss with scheduled
  sampling, the others with METEOR + BLEU as MIXER mixes them; two words more every epoch (Δ is not given).
  ``-class`` tells it the category of MSR-VTT's annotations too.
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
from dataclasses import dataclass, replace

from pydantic import BaseModel

from models.captioners.dual_afr.network import DualAFRConfig
from models.captioners.g2l.network import G2LConfig
from models.captioners.refocus.network import RefocusConfig
from models.captioners.stats.network import STaTSConfig
from models.captioners.vatex.network import SpatialVatexConfig, VatexConfig
from models.decoding.options import DecodingOptions
from models.stream_set import StreamSet
from training.recipes.demo_recipes import DEMO, UnknownRecipe
from training.recipes.fitted_configs import (
    fit_dual_afr,
    fit_g2l,
    fit_refocus,
    fit_spatial,
    fit_stats,
    fit_vatex,
)
from training.recipes.recipe import CONSTANT, Decay, HoldAndDrop, Recipe, RewardWeights


@dataclass(frozen=True)
class PaperRun:
    """One captioner's training as its paper did it, on one set.

    recipe: without lengths, which ``epochs`` gives by phase. config: from the stream set that feeds the
    captioner. data_set, paper: whose splits and words, in training.datasets.
    """

    recipe: Recipe
    epochs: Mapping[str, float]
    config: Callable[[StreamSet], BaseModel]
    streams: str
    data_set: str
    paper: str

    def with_seed(self, seed: int | None) -> PaperRun:
        """Returns the same with another seed, if there is one."""
        return self if seed is None else replace(self, recipe=self.recipe.model_copy(update={"seed": seed}))

    def plan(self, captions: int, self_critical: bool = True) -> Recipe:
        """Returns the recipe in steps, for a training split of so many captions."""
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
        "decoding": DecodingOptions(name_once=False),
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
        "decoding": DecodingOptions(name_once=False, max_length=16),
        "self_critical_rate": 5e-5,
        "rewards": RewardWeights(cider=1.0, rouge_l=1.0),
        "self_critical_weight": 1.0,
    }
)
DUAL_AFR = PAPER.model_copy(update={"learning_rate": 2e-4})
VATEX = PAPER.model_copy(
    update={
        "learning_rate": 5e-4,
        "schedule": Decay(factor=0.8, epochs=3),
        "max_length": 30,
        "decoding": DecodingOptions(name_once=False, max_length=30),
        "self_critical_rate": 5e-5,
        "rewards": RewardWeights(cider=1.0, bleu=1.0),
        "baseline": "greedy",
    }
)

STATS_EPOCHS = {"cross_entropy": 10, "self_critical": 10}
REFOCUS_EPOCHS = {"first_step": 5, "combined": 25, "frozen_key_frames": 30, "self_critical": 10}
VATEX_EPOCHS = {"cross_entropy": 30, "self_critical": 10}
LONG = {"cross_entropy": 30}
DUAL_AFR_SETS = ("msvd", "msrvtt", "mvad")


def make_stats_config(streams: StreamSet) -> STaTSConfig:
    """Gives STaTS an input for each stream of frames."""
    return fit_stats(STaTSConfig(streams=()), streams)


def make_classed_stats_config(streams: StreamSet) -> STaTSConfig:
    """Tells STaTS which of MSR-VTT's twenty categories a video is of."""
    return make_stats_config(streams).model_copy(update={"classes": 20})


def make_g2l_config(streams: StreamSet) -> G2LConfig:
    """Gives G2L frames, clips and boxes."""
    return fit_g2l(G2LConfig(), streams)


def make_refocus_config(streams: StreamSet) -> RefocusConfig:
    """Gives refocus maps, and sound."""
    return fit_refocus(RefocusConfig(), streams)


def make_silent_refocus_config(streams: StreamSet) -> RefocusConfig:
    """Gives refocus no sound, for sets that have none."""
    return make_refocus_config(streams).model_copy(update={"audio": None})


def make_dual_afr_config(streams: StreamSet) -> DualAFRConfig:
    """Gives dualAFR layers, and soft attention."""
    return fit_dual_afr(DualAFRConfig(), streams)


def make_hard_dual_afr_config(streams: StreamSet) -> DualAFRConfig:
    """Gives dualAFR layers, and hard attention."""
    return fit_dual_afr(DualAFRConfig(kind="hard"), streams)


def make_fusion_config(streams: StreamSet) -> VatexConfig:
    """Gives the members of the fusion pictures, motion and sound."""
    return fit_vatex(VatexConfig(), streams)


def make_spatial_config(streams: StreamSet) -> SpatialVatexConfig:
    """Gives objects both networks' maps, as the paper says."""
    return fit_spatial(SpatialVatexConfig(), streams)


def _make_run(
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
        *(
            ("stats", _make_run(data, "stats", STATS, STATS_EPOCHS, make_stats_config))
            for data in ("msvd", "msrvtt")
        ),
        (
            "stats",
            _make_run("msrvtt", "stats", STATS, STATS_EPOCHS, make_classed_stats_config, "-class"),
        ),
        *(("g2l", _make_run(data, "g2l", G2L, LONG, make_g2l_config)) for data in ("msvd", "msrvtt")),
        ("refocus", _make_run("msvd", "refocus", REFOCUS, REFOCUS_EPOCHS, make_silent_refocus_config)),
        ("refocus", _make_run("msrvtt", "refocus", REFOCUS, REFOCUS_EPOCHS, make_refocus_config)),
        *(
            ("dual_afr", _make_run(data, "dual_afr", DUAL_AFR, LONG, make_dual_afr_config))
            for data in DUAL_AFR_SETS
        ),
        *(
            ("dual_afr", _make_run(data, "dual_afr", DUAL_AFR, LONG, make_hard_dual_afr_config, "-hard"))
            for data in DUAL_AFR_SETS
        ),
        ("vanilla", _make_run("vatex", "fusion", VATEX, VATEX_EPOCHS, make_fusion_config)),
        ("temporal", _make_run("vatex", "fusion", VATEX, VATEX_EPOCHS, make_fusion_config)),
        ("spatial", _make_run("vatex", "fusion", VATEX, VATEX_EPOCHS, make_spatial_config)),
    )
}
PAPER_NAMES = tuple(dict.fromkeys(recipe for recipe, _ in PAPER_RUNS))


def find_paper_run(recipe: str, captioner: str) -> PaperRun:
    """Returns what the captioner's paper did. Raises UnknownRecipe where it has no such set."""
    if (recipe, captioner) not in PAPER_RUNS:
        whose = ", ".join(who for name, who in PAPER_RUNS if name == recipe)
        own = ", ".join(name for name, who in PAPER_RUNS if who == captioner) or "none"
        raise UnknownRecipe(
            f"the paper of {captioner} has no {recipe}, which is for: {whose}; {captioner} has: {own}"
        )
    return PAPER_RUNS[recipe, captioner]
