"""Every captioner is built for every stream set, or refuses it with the reason, and takes a step on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel

from extractors.features import Features
from models.captioners.registry import find_captioner, find_stream_set, list_captioners, list_stream_sets
from models.labels.expected_meaning import LABELS, LABELS_INPUT
from models.stream_choice import StreamsDoNotFit
from models.stream_set import StreamInput, StreamSet
from models.vocabulary import Vocabulary, pad_captions
from tests.models.tiny import stream
from training.batches.training_batch import TrainingBatch
from training.batches.video_batches import VideoInputs
from training.optimization.learner import build_learner
from training.optimization.losses import supervised_loss
from training.recipes.demo_recipes import DEMO
from training.recipes.paper_recipes import list_paper_runs

#: Sets without a map over a grid, on which dualAFR's layers would have no places.
WITHOUT_MAPS = {"stats-regions", "fusion", "g2l"}
NAMES = tuple(list_captioners())
SMALL = {
    "embedded": 7,
    "encoded": 7,
    "aligned": 4,
    "channels": 6,
    "words": 8,
    "attention": 5,
    "hidden": 9,
    "query": 10,
    "samples": 2,
}


def fit(captioner: str, streams: StreamSet) -> BaseModel:
    """The configuration at the demo's widths that reads the set."""
    registered = find_captioner(captioner)
    return registered.fit(registered.make_demo_config(), streams)


def narrow(streams: StreamSet) -> StreamSet:
    """The same with few channels, each stream its own number; C3D's second and third layer are left out.

    Their convolutions, and their 6,272 cells, are those of the fourth in all that matters here.
    """
    kept = [each for each in streams.inputs if each.stream not in ("c3d_pool2", "c3d_pool3")]
    ranked = sorted({each.width for each in kept})
    widths = {each.stream: 4 + ranked.index(each.width) for each in kept} | {LABELS: LABELS_INPUT.width}
    inputs = tuple(replace(each, width=widths[each.stream]) for each in kept)
    return replace(streams, inputs=inputs)


def shrink(config: BaseModel) -> BaseModel:
    """The same captioner with few units, whatever its inputs."""
    fields = type(config).model_fields
    small = {name: value for name, value in SMALL.items() if name in fields}
    if "query" in fields:
        small |= {"tie_words": False}
    return config.model_copy(update=small)


def features_of(streams: StreamSet, seed: int) -> Features:
    """Three rows of every stream, with as many regions as it has."""
    return {
        each.stream: stream(3, each.count, each.width, seed * 100 + i)
        for i, each in enumerate(streams.inputs)
    }


def is_refused(captioner: str, streams: str) -> bool:
    return captioner == "dual_afr" and streams in WITHOUT_MAPS


@pytest.mark.parametrize("streams", list_stream_sets())
@pytest.mark.parametrize("captioner", NAMES)
def test_each_captioner_takes_a_step_on_each_set_or_says_why_not(captioner: str, streams: str) -> None:
    wanted = narrow(find_stream_set(streams))
    if is_refused(captioner, streams):
        with pytest.raises(StreamsDoNotFit, match=f"{captioner} reads .* and the stream set {streams} has"):
            fit(captioner, wanted)
        return
    torch.manual_seed(1)
    config = shrink(fit(captioner, wanted))
    network = find_captioner(captioner).kind(config, Vocabulary([f"w{i}" for i in range(9)]))
    known = {each.stream: each.width for each in wanted.inputs}
    needed = [each for each in network.inputs if each.name not in network.optional_streams - known.keys()]
    assert {each.name: each.width for each in needed}.items() <= known.items()
    batches = VideoInputs.for_captioner(network).collate([features_of(wanted, seed) for seed in (1, 2)])
    batch = TrainingBatch(("a", "b"), batches, pad_captions([[5, 6, 7], [4, 8]], 6), None)
    generator = torch.Generator().manual_seed(1)
    memory = network.phases[0].choose(network.encode_batches(batch.inputs_of(network)), generator)
    plan = DEMO.model_copy(update={"average_decay": 0.0})
    loss = supervised_loss(network, memory, batch, plan, 1.0, generator)["total"]
    before = [parameter.detach().clone() for parameter in network.parameters()]
    learner = build_learner(plan, network)
    learner.add_gradient(loss)
    learner.descend(1e-3, 5.0)
    moved = [not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True)]
    assert torch.isfinite(loss)
    assert sum(moved) > len(moved) / 2


def test_the_manual_names_the_sets_that_are_refused() -> None:
    manual = Path("docs/data.md").read_text(encoding="utf-8")
    named = re.search(r"sets without a map: (.*?) \|", manual)
    assert named is not None
    assert set(re.findall(r"`(.*?)`", named[1])) == WITHOUT_MAPS


@pytest.mark.parametrize("captioner", NAMES)
def test_the_demo_and_the_papers_are_built_as_they_were(captioner: str) -> None:
    registered = find_captioner(captioner)
    demo = registered.make_demo_config()
    assert registered.fit(demo, find_stream_set(registered.description.demo_streams)) == demo
    for (recipe, name), run in list_paper_runs().items():
        if name == captioner:
            config: Any = run.config(find_stream_set(run.streams))
            names = [each.name for each in config.streams]
            _, _, row = recipe.removeprefix("paper-").partition("-")
            wanted = ROW_INPUTS.get(row, PAPER_INPUTS[captioner])
            assert names == [each for each in wanted if recipe != "paper-msvd" or each != "vggish"]


def test_stats_reads_no_map_twice() -> None:
    """Neither means nor boxes of a map beside it, nor what names classes."""
    config: Any = fit("stats", find_stream_set("demo-motion"))
    assert [each.name for each in config.streams] == ["tuned_pair_grid", "i3d_brief_grid"]


FUSED = ["resnext101", "ircsn152", "vggish"]
#: What each paper feeds its captioner with, in the order that the captioner has it.
PAPER_INPUTS: Mapping[str, list[str]] = {
    "stats": ["i3d_rgb_grid"],
    "g2l": ["bottom_up:16", "inception_v4", "resnext101_3d"],
    "refocus": ["resnet152_grid", "vggish"],
    "dual_afr": ["c3d_pool5", "c3d_pool2", "c3d_pool3", "c3d_pool4", "c3d_fc7"],
    "vanilla": FUSED,
    "temporal": FUSED,
    "spatial": ["roi:resnext101@mask_rcnn:10", "roi:ircsn152@mask_rcnn:10", *FUSED],
}
#: The same of rows that leave out a part, by the end of their recipes' names.
ROW_INPUTS: Mapping[str, list[str]] = {
    **{f"pool{layer}": [f"c3d_pool{layer}", "c3d_fc7"] for layer in (2, 3, 4, 5)},
    "plain": ["resnet152_grid"],
    "kbigru": ["resnet152_grid"],
}


def make_set(*inputs: StreamInput) -> StreamSet:
    return StreamSet("mine", "any", inputs, "a test")


VECTORS = StreamInput("rgb", "rgb", 1024, kind="motion")
SOUND = StreamInput("sound", "sound", 128, kind="sound")
PICTURES = StreamInput("resnet", "resnet", 2048)


@pytest.mark.parametrize("captioner", NAMES)
def test_vectors_alone_leave_out_what_attends_to_regions(captioner: str) -> None:
    """As of VATEX' own I3D: who cannot do without regions says so."""
    if captioner in ("dual_afr", "spatial"):
        with pytest.raises(StreamsDoNotFit, match=r"the stream set mine has rgb \(motion, vectors\)"):
            fit(captioner, make_set(VECTORS))
        return
    config: Any = fit(captioner, make_set(VECTORS))
    assert {each.name for each in config.streams} - {LABELS} == {"rgb"}
    assert getattr(config, "key_frames", 0) == 0
    assert not getattr(config, "spatial", False)


@pytest.mark.parametrize("captioner", NAMES)
def test_sound_alone_is_refused(captioner: str) -> None:
    with pytest.raises(StreamsDoNotFit, match="sound, vectors"):
        fit(captioner, make_set(SOUND))


def test_each_stream_is_read_as_what_it_tells() -> None:
    mine = make_set(SOUND, VECTORS, PICTURES)
    vanilla: Any = fit("vanilla", mine)
    assert (vanilla.image.name, vanilla.motion.name, vanilla.audio.name) == ("resnet", "rgb", "sound")
    g2l: Any = fit("g2l", mine)
    assert (g2l.frames.name, g2l.clips.name, g2l.regions.name) == ("resnet", "rgb", "resnet")
    stats: Any = fit("stats", mine)
    assert [each.name for each in stats.streams] == ["rgb", "resnet"]
    refocus: Any = fit("refocus", mine)
    assert (refocus.grid.name, refocus.audio.name) == ("resnet", "sound")
    uneven = make_set(StreamInput("tall", "tall", 8, count=6, regions="grid"))
    with pytest.raises(StreamsDoNotFit, match="tall has 6 cells a step"):
        fit("dual_afr", uneven)
