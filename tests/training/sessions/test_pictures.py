"""Runs start from weights that fit, and are fed what their stream set gives."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from extractors.catalog.efficientnet_lite2 import EfficientNetLite2, EfficientNetStages
from extractors.extractor import ExtractorOptions
from extractors.features import StreamSpec
from lab.pictures.picture_batches import CachedNetwork
from lab.pictures.picture_features import VIEWS
from lab.pictures.picture_inputs import (
    PICTURE_NETWORKS,
    PictureInputs,
    fit_to_streams,
    list_streams,
)
from lab.pictures.session import freeze_all_but, freeze_start, match_weights
from models.captioner import Captioner
from models.captioners.registry import find_captioner, find_stream_set, list_captioners, list_stream_sets
from models.captioners.stats.config import StreamConfig
from models.captioners.stats.network import STaTS
from models.checkpoint import Card, CheckpointError, load_checkpoint, save_checkpoint
from models.feature_sources.stream_checks import StreamMismatch
from models.likelihood import teacher_force
from models.stream_set import DEMO, DEMO_TUNED, UnknownStream
from models.vocabulary import Vocabulary
from tests.models.tiny import SPEC, WORDS, stats_config, stream, tiny_stats
from training.recipes.demo_recipes import find_recipe
from training.recipes.train_options import NeedsVideo


@pytest.fixture
def start(tmp_path: Path) -> Path:
    path = tmp_path / "start.safetensors"
    save_checkpoint(path, tiny_stats(seed=3), Card("stats", {"grid": SPEC}, {}, {}))
    return path


def load_start_weights(start: Path, captioner: Captioner) -> dict[str, torch.Tensor]:
    return match_weights(load_checkpoint(start).captioner, captioner, start)


def test_a_run_starts_from_the_weights_of_its_like(start: Path) -> None:
    weights = load_start_weights(start, tiny_stats(seed=4))
    wanted = tiny_stats(seed=3).state_dict()
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(weights[name], wanted[name].half().float()) for name in wanted)


def test_another_order_of_words_is_refused(start: Path) -> None:
    captioner = STaTS(stats_config(), Vocabulary(WORDS[::-1]))
    with pytest.raises(CheckpointError, match="another vocabulary or config"):
        load_start_weights(start, captioner)


def test_another_config_is_refused(start: Path) -> None:
    with pytest.raises(CheckpointError, match="another vocabulary or config"):
        load_start_weights(start, tiny_stats(stats_config(dropout=0.5)))


def test_other_names_of_the_streams_are_no_other_config(start: Path) -> None:
    """A captioner goes on from the same weights on another grid of the same width."""
    elsewhere = tiny_stats(stats_config(StreamConfig(name="another_grid", width=6)), seed=4)
    weights = load_start_weights(start, elsewhere)
    assert torch.equal(
        weights["output.weight"], tiny_stats(seed=3).state_dict()["output.weight"].half().float()
    )
    wider = tiny_stats(stats_config(StreamConfig(name="another_grid", width=7)))
    with pytest.raises(CheckpointError, match="another vocabulary or config"):
        load_start_weights(start, wider)


def test_a_captioner_begins_as_its_start_when_it_reads_motion_too(start: Path) -> None:
    """What is new says nothing before the first step, and learns from there."""
    grid, motion = StreamConfig(name="grid", width=6), StreamConfig(name="motion", width=5)
    torch.manual_seed(5)
    config = tiny_stats().config.model_copy(update={"streams": (grid, motion)})
    both = STaTS(config, tiny_stats().vocabulary)
    both.load_state_dict(load_start_weights(start, both))
    alone = tiny_stats(seed=3)
    alone.load_state_dict(load_start_weights(start, alone))
    seen = {"grid": stream(3, 4, 6, 1), "motion": stream(2, 4, 5, 2)}
    words = torch.tensor([[4, 5, 6]])
    likelihoods = [
        teacher_force(captioner.eval(), captioner.encode([seen]), words).log_p for captioner in (alone, both)
    ]
    torch.testing.assert_close(*likelihoods)


def test_what_reads_motion_learns_alone(start: Path) -> None:
    """Neither old weights nor the first columns of wider ones have a gradient; what is new has one."""
    streams = (StreamConfig(name="grid", width=6), StreamConfig(name="motion", width=5))
    both = STaTS(tiny_stats().config.model_copy(update={"streams": streams}), tiny_stats().vocabulary)
    both.load_state_dict(load_start_weights(start, both))
    freeze_start(both, tiny_stats())
    seen = {"grid": stream(3, 4, 6, 1), "motion": stream(2, 4, 5, 2)}
    teacher_force(both, both.encode([seen]), torch.tensor([[4, 5, 6]])).log_p.sum().backward()
    gradients = {name: each.grad for name, each in both.named_parameters() if each.grad is not None}
    columns = gradients.pop("decoder.weight_ih")
    before = tiny_stats().decoder.weight_ih.shape[1]
    assert not columns[:, :before].any()
    assert columns[:, before:].any()
    assert gradients
    assert all(name.startswith("streams.1.") for name in gradients)


def test_a_config_is_fed_with_the_one_stream_of_its_width() -> None:
    """What the set makes already, and what it has no equal of, keep their names."""
    for name in ("stats", "g2l", "refocus", "spatial"):
        given = fit_to_streams(find_captioner(name).make_demo_config(), DEMO_TUNED)
        assert [stream.name for stream in list_streams(given)] == ["tuned_pair_grid"]
    stats = find_captioner("stats").make_demo_config()
    assert fit_to_streams(stats, DEMO) == stats
    stages = fit_to_streams(find_captioner("dual_afr").make_demo_config(), DEMO_TUNED)
    assert [stream.name for stream in list_streams(stages)] == ["tuned_pair_grid", "stage_14", "stage_7"]
    with pytest.raises(UnknownStream, match="and not stage_14, stage_7"):
        PictureInputs.build(DEMO_TUNED, [stream.name for stream in list_streams(stages)])


@pytest.mark.parametrize(("streams", "said"), [("stats", "looks at video"), ("blip", "no stream set 'blip'")])
def test_a_teacher_that_pictures_cannot_feed_is_told_by_name(streams: str, said: str) -> None:
    names = {"i3d_rgb_grid": StreamSpec("i3d_rgb", "0" * 64, "none")}
    card = Card("stats", names, {}, {"streams": streams})
    with pytest.raises(StreamMismatch, match=f"stats cannot teach here: .*{said}"):
        PictureInputs.build(DEMO, ["grid"], [card])


def _take(network: CachedNetwork, _: torch.device) -> CachedNetwork:
    return network


def test_a_teacher_of_other_weights_is_not_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    describer = CachedNetwork(EfficientNetLite2(ExtractorOptions(engine="torch", precision="fp32")), VIEWS)
    monkeypatch.setitem(PICTURE_NETWORKS, EfficientNetLite2.name, partial(_take, describer))
    older = replace(describer.network.spec, weights_sha256="0" * 64)
    with pytest.raises(StreamMismatch, match=r"stats was trained on another grid .*000000000000"):
        PictureInputs.build(DEMO, ["grid"], [Card("stats", {"grid": older}, {}, {})])


def test_the_temporal_attention_alone_is_trained_by_demo_shots() -> None:
    captioner = tiny_stats()
    freeze_all_but(captioner, find_recipe("demo-shots", "stats").only)
    trained = {name for name, parameter in captioner.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(".frame_attention." in name for name in trained)
    freeze_all_but(captioner, "")
    assert all(parameter.requires_grad for parameter in captioner.parameters())
    with pytest.raises(ValueError, match="no parameter"):
        freeze_all_but(captioner, "a part of nothing")


def test_a_checkpoint_is_readable_by_others(start: Path) -> None:
    assert start.stat().st_mode & 0o044 == 0o044


def test_pictures_feed_the_demos_sets_alone() -> None:
    """The cache of features hangs on the network's identity, which the set does not change."""
    inputs = PictureInputs.build(DEMO, ["grid"])
    assert inputs.specs["grid"].identity == EfficientNetLite2().spec.identity
    assert [each.views for each in inputs.networks] == [VIEWS]
    for name, streams in list_stream_sets().items():
        if not name.startswith("demo"):
            with pytest.raises(NeedsVideo, match=f"the stream set {name} looks at video"):
                PictureInputs.build(streams, streams.streams)


@pytest.mark.slow
def test_a_captioner_is_fed_by_the_networks_that_it_needs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run by torch, for which nothing has to be converted."""
    for network in (EfficientNetLite2, EfficientNetStages):
        describer = CachedNetwork(network(ExtractorOptions(engine="torch", precision="fp32")), VIEWS)
        monkeypatch.setitem(PICTURE_NETWORKS, network.name, partial(_take, describer))
    stages = find_stream_set("demo-stages")
    assert [each.network.spec.network for each in PictureInputs.build(stages, ["grid"]).networks] == [
        "efficientnet-lite2"
    ]
    names = [stream.name for stream in list_streams(find_captioner("dual_afr").make_demo_config())]
    inputs = PictureInputs.build(stages, names)
    assert list(inputs.specs) == names
    shapes = [sorted(each.network.shapes) for each in inputs.networks]
    assert shapes == [["efficientnet-lite2_logits", "grid"], ["stage_14", "stage_7"]]


@pytest.mark.parametrize("name", list_captioners())
def test_every_demo_captioner_eats_what_its_stream_set_makes(name: str) -> None:
    captioner = find_captioner(name)
    config: Any = captioner.make_demo_config()
    streams = find_stream_set(captioner.description.demo_streams)
    widths = {each.stream: each.width for each in streams.inputs}
    assert all(widths[stream.name] == stream.width for stream in config.streams)
