"""Every recipe of a paper, from a set in its authors' layout to a checkpoint; two of them to served captions.

The extractors are the papers' own with small networks of random weights, captioners have small widths, and a
run takes some twenty steps. Everything between is what a full run goes through.
"""

from __future__ import annotations

import csv
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from typer.testing import CliRunner

from app.cli.main import cli as app
from app.jobs.redis_client import connect
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from extractors.decoder.decoder import Decoder
from lab.pictures.video_embedding import train_embedding_on_videos
from models.captioners.dual_afr.config import DualAFRConfig
from models.captioners.registry import find_stream_set
from models.checkpoint import load_checkpoint, load_embedding
from models.decoding.options import DecodingOptions
from models.feature_sources import feature_source
from tests.app.live_api import LiveApi, live_api, send
from tests.app.workers import service
from tests.media import Painter, write_video
from tests.training.laid_out import LAYOUTS, Captioned
from tests.training.small_networks import create_small, install
from training.batches.video_batches import CaptionedVideo, VideoInputs
from training.batches.video_features import VideoFeatures
from training.datasets.caption_set import VideoItem
from training.datasets.registry import SetFolder
from training.evaluation.captioning import CaptioningRun
from training.optimization import trainer
from training.optimization.run_folder import RunSettings
from training.optimization.validation import VideoValidation
from training.recipes.demo_recipes import read_recipes
from training.recipes.paper_recipes import PaperRun, list_paper_runs
from training.recipes.recipe import CONSTANT, RewardWeights
from training.sessions import videos
from training.sessions.videos import train_as_paper

pytestmark = pytest.mark.slow

VIDEOS, FEW, STEPS, BATCH = 24, 6, 20, 8
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (220, 20, 20),
    "green": (20, 200, 40),
    "blue": (30, 40, 230),
    "grey": (128, 128, 128),
}
#: Each captioner's, and each kind of its paper's, first set has all the videos; further sets have a few.
FIRST = {
    "stats": "paper-msrvtt-class",
    "g2l": "paper-msvd",
    "refocus": "paper-msrvtt",
    "dual_afr": "paper-mvad",
    **dict.fromkeys(("vanilla", "temporal", "spatial"), "paper-vatex"),
}
SMALL: Mapping[str, Any] = {
    "embedded": 16,
    "encoded": 16,
    "aligned": 8,
    "channels": 8,
    "attention": 8,
    "hidden": 24,
    "query": 16,
    "words": 12,
    "class_width": 4,
    "samples": 2,
    "dropout": 0.1,
    "weight_range": None,
}


def square(colour: tuple[int, int, int], moves: bool) -> Painter:
    """A square of a colour on black, at rest or on its way to the right."""

    def paint(index: int, width: int, height: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        picture = np.zeros((height, width, 3), np.uint8)
        left = index % (width // 2) if moves else width // 4
        picture[height // 4 : 3 * height // 4, left : left + width // 2] = colour
        return picture

    return paint


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Captioned]:
    """Two seconds of a square with a tone, in four colours, at rest and moving."""
    folder = tmp_path_factory.mktemp("squares")
    made = []
    for place, (name, colour) in enumerate(islice(cycle(COLOURS.items()), VIDEOS)):
        moves = place // len(COLOURS) % 2 == 1
        file = write_video(
            folder / f"{place}.mp4",
            frames=33,
            fps=16,
            audio_seconds=2.0,
            audio_pitch=300.0 + 200 * moves,
            painter=square(colour, moves),
        )
        does = "moves to the right" if moves else "is at rest"
        made.append(Captioned(file, (f"a {name} square {does}", f"a square that is {name}")))
    return made


def narrow(config: BaseModel) -> BaseModel:
    """The same inputs at small widths; dualAFR without its first two layers, whose maps are large."""
    changes = {name: value for name, value in SMALL.items() if name in type(config).model_fields}
    if isinstance(config, DualAFRConfig):
        changes["layers"] = config.layers[2:]
    return config.model_copy(update=changes)


def shorten(run: PaperRun, root: Path) -> PaperRun:
    """The paper's phases in a few steps each, at a rate that shows in them; BLEU alone is paid for."""
    paid = run.recipe.rewards
    short = {"videos": BATCH, "learning_rate": 1e-2, "schedule": CONSTANT, "self_critical_rate": 1e-4}
    rewards = RewardWeights(**{**paid.model_dump(), "meteor": 0.0})
    captions = SetFolder(root, run.data_set, run.paper).load().in_split("train")
    epoch = -(-sum(len(video.captions) for video in captions) // BATCH)
    steps = {**dict.fromkeys(run.recipe.epochs, 2), next(iter(run.recipe.epochs)): STEPS}
    epochs = {phase: count / epoch for phase, count in steps.items()}
    recipe = run.recipe.model_copy(update={**short, "rewards": rewards, "epochs": epochs})
    return replace(run, recipe=recipe, config=lambda streams: narrow(run.config(streams)))


class PaperTrials:
    """Trains recipes on the same clips, each extractor made once, each run once."""

    def __init__(self, folder: Path, clips: Sequence[Captioned]) -> None:
        self.folder, self._clips = folder, clips
        self.train = cache(self._train)

    def root(self, recipe: str, captioner: str) -> Path:
        """The folder of the recipe's set, as its authors lay it out."""
        data_set = list_paper_runs()[recipe, captioner].data_set
        count = VIDEOS if FIRST[captioner] in (recipe, recipe.removesuffix("-hard")) else FEW
        if captioner == "stats" and recipe == "paper-msrvtt":
            count = VIDEOS  # whose features are there
        root = self.folder / f"{data_set}-{count}"
        if not root.exists():
            root.mkdir()
            LAYOUTS[data_set][1](root, self._clips[:count])
        return root

    def _train(self, recipe: str, captioner: str) -> Path:
        root, out = self.root(recipe, captioner), self.folder / "runs" / f"{recipe}-{captioner}"
        run = shorten(list_paper_runs()[recipe, captioner], root)
        settings = RunSettings(out, self.folder / "cache", lambda _: None, threads=1)
        return train_as_paper(captioner, run, root, settings)


DECODE = Decoder.decode
CHOSEN_BY: list[DecodingOptions] = []


def refuse_to_decode_at_once(*_: Any) -> None:
    raise AssertionError("features of windows are to be made in chunks")


class RecordedValidation(VideoValidation):
    """Remembers what each run's weights were chosen by."""

    def __init__(
        self, items: Sequence[CaptionedVideo], options: DecodingOptions, inputs: VideoInputs
    ) -> None:
        CHOSEN_BY.append(options)
        super().__init__(items, options, inputs)


@pytest.fixture(scope="module")
def trials(clips: Sequence[Captioned], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaperTrials]:
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        install(patch.setattr)
        patch.setattr(Decoder, "decode", refuse_to_decode_at_once)
        patch.setattr(videos, "VideoValidation", RecordedValidation)
        patch.setattr("models.feature_sources.feature_source.create", cache(create_small))
        patch.setattr(trainer, "REPORT_EVERY", 1)
        yield PaperTrials(tmp_path_factory.mktemp("papers"), clips)
    torch.set_num_threads(threads)


def losses(run: Path, phase: str) -> list[float]:
    with (run / "log.csv").open(newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file) if row["phase"] == phase and row["loss"]]


@pytest.mark.parametrize(
    ("recipe", "captioner"),
    [each for each, run in list_paper_runs().items() if not run.row],  # rows differ by a configuration
    ids=lambda name: name,
)
def test_a_recipe_learns_on_its_set(trials: PaperTrials, recipe: str, captioner: str) -> None:
    CHOSEN_BY.clear()
    best = trials.train(recipe, captioner)
    run = list_paper_runs()[recipe, captioner]
    assert [run.recipe.search] == CHOSEN_BY
    found = losses(best.parent, next(iter(run.recipe.epochs)))
    assert len(found) >= STEPS - 1
    assert np.mean(found[STEPS // 2 :]) < 0.95 * np.mean(found[:3]), found
    with (best.parent / "log.csv").open(newline="") as file:
        assert {row["phase"] for row in csv.DictReader(file)} >= set(run.recipe.epochs)
    kept = load_checkpoint(best)
    assert kept.card.training["recipe"]["decoding"] == run.recipe.decoding.model_dump()
    assert kept.card.training["streams"] == run.streams
    assert {spec.weights_sha256 for spec in kept.card.streams.values()} <= {"seeded", "seeded+seeded", ""}


def test_features_made_in_chunks_are_those_that_the_service_makes(
    trials: PaperTrials, clips: Sequence[Captioned], tmp_path: Path
) -> None:
    source = feature_source.FeatureSource(find_stream_set("g2l"))
    video = VideoItem("a", clips[1].file, "train", clips[1].captions)
    features = VideoFeatures(source, tmp_path)
    with Decoder() as decoder:
        assert features.make([video], decoder) == []
        [wanted] = source.extract([DECODE(decoder, clips[1].file, source.request).footage])
    found = features.load(video)
    assert set(found) == {"inception_v4", "resnext101_3d", "bottom_up:16"}
    for name, stream in found.items():
        torch.testing.assert_close(stream.values, wanted[name].values, atol=1e-4, rtol=1e-4)
        np.testing.assert_array_equal(stream.start, wanted[name].start)
        assert stream.spec == wanted[name].spec


def test_a_papers_checkpoint_is_evaluated_as_it_was_chosen(
    trials: PaperTrials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the same features; the search is the recipe's until an option says otherwise."""
    recipe, captioner = "paper-vatex", "spatial"
    best, root = trials.train(recipe, captioner), trials.root(recipe, captioner)
    command = ["evaluate", str(best), "--data", str(root), "--cache", str(trials.folder / "cache"), "--json"]
    searched: list[dict[str, Any]] = []

    def remembered(*arguments: Any) -> CaptioningRun:
        searched.append(vars(arguments[2]))
        return CaptioningRun(*arguments)

    monkeypatch.setattr("training.evaluation.report.CaptioningRun", remembered)
    for options in ([], ["--name-once", "--method", "greedy", "--max-length", "9"]):
        done = CliRunner().invoke(app, [*command, *options])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout.splitlines()[-1])["n"] == 1
    wanted = list_paper_runs()[recipe, captioner].recipe.search
    assert searched[0] == vars(wanted)
    assert searched[1] == vars(wanted.changed(name_once=True, method="greedy", max_length=9))


def test_the_fused_rows_are_one_command(trials: PaperTrials) -> None:
    """By an embedding that learned from the same videos, and reads the same streams as the members."""
    temporal, spatial = (trials.train("paper-vatex", each) for each in ("temporal", "spatial"))
    root, kept = trials.root("paper-vatex", "spatial"), trials.folder / "cache"
    short = {"steps": 4, "validate_every": 2, "warmup": 0, "videos": 4, "captions": 2}
    recipe = read_recipes().recipes["demo-embedding"].model_copy(update=short)
    settings = RunSettings(trials.folder / "embedding", kept, lambda _: None, threads=1)
    folder = SetFolder(root, "vatex", "fusion")
    best = train_embedding_on_videos(recipe, folder, find_stream_set("fusion"), settings)
    card = load_embedding(best)[1]
    assert (card.training["streams"], set(card.streams)) == ("fusion", {"resnext101", "ircsn152", "vggish"})
    words = ["evaluate", "fusion", "--members", f"{temporal},{spatial}", "--embedding", str(best)]
    words += ["--fusion-rule", "relevance", "--data", str(root), "--cache", str(kept), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["n"] == 1


@pytest.fixture(scope="module")
def served(trials: PaperTrials, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApi]:
    """An API and a worker on the checkpoints of fusion's spatial member and of STaTS with classes."""
    folder = tmp_path_factory.mktemp("served")
    weights = folder / "weights"
    weights.mkdir()
    for recipe, captioner in (("paper-vatex", "spatial"), ("paper-msrvtt-class", "stats")):
        (weights / f"{captioner}.safetensors").symlink_to(trials.train(recipe, captioner))
    settings = Settings(
        data=folder / "data",
        weights=weights,
        namespace=f"papers-{uuid.uuid4().hex[:12]}",
        engine="tests.training.small_networks:SmallEngine",
        captioner="spatial",
        min_free_bytes=0,
    )
    with RedisServer(tmp_path_factory.mktemp("redis")) as redis, connect(redis.url, patience=5) as client:
        settings = settings.model_copy(update={"redis_url": redis.url})
        with service(client, redis.url, settings) as running, live_api(settings) as api:
            running.start_worker(600, PYTHONPATH=str(root))
            yield api


def caption(api: LiveApi, clip: Path, **options: Any) -> dict[str, Any]:
    answer = send(api, clip.read_bytes(), {"Prefer": "wait=60"}, **options)
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    assert job["state"] == "succeeded", job
    return job


def test_motion_boxes_and_sound_are_served_with_the_attention_over_boxes(
    served: LiveApi, clips: Sequence[Captioned]
) -> None:
    # who has learned for twenty steps ends at once unless length is paid for
    job = caption(
        served, clips[5].file, name_once="false", max_length=12, length_penalty=2, explanation="both"
    )
    assert job["caption"]
    used = job["model"]["features"]
    assert {"resnext101", "ircsn152", "vggish"} <= used.keys()
    assert {name for name in used if name.startswith("roi:")} == {
        "roi:resnext101@mask_rcnn:10",
        "roi:ircsn152@mask_rcnn:10",
    }
    assert used["vggish"]["weights_sha256"] == "seeded"
    assert job["model"]["options"]["name_once"] is False
    document = served.client.get(f"/jobs/{job['id']}/attention").json()
    spatial = document["spatial"]
    assert spatial["kind"] == "boxes"
    assert len(spatial["boxes"]) == len(document["times"])
    assert all(0 <= edge <= 1 for moment in spatial["boxes"] for box in moment for edge in box)
    for word in spatial["weights"]:
        assert sum(sum(moment) for moment in word if moment) > 0
    picture = served.client.get(f"/jobs/{job['id']}/attention.png")
    assert picture.headers["content-type"] == "image/png"
    assert len(picture.content) > 1000


def test_a_category_is_taken_by_who_knows_classes_and_refused_by_others(
    served: LiveApi, clips: Sequence[Captioned]
) -> None:
    known = {one["name"]: one["classes"] for one in served.client.get("/models").json()["captioners"]}
    assert (known["spatial"], known["stats"]) == (0, 20)
    told = caption(served, clips[0].file, captioner="stats", category=7)
    untold = caption(served, clips[0].file, captioner="stats")
    assert told["model"]["options"]["category"] == 7
    assert "category" not in untold["model"]["options"]
    assert told["captions"][0]["score"] != untold["captions"][0]["score"]
    refused = send(served, clips[0].file.read_bytes(), category=7)
    assert (refused.status_code, refused.json()["code"]) == (422, "option_not_taken")
