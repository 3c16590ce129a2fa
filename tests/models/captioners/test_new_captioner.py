"""A captioner is one folder: no other file has to know it, for it to be trained, saved, served and drawn."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from app.attention_picture.render import draw_attention_picture
from app.cli.models import describe_set
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress
from app.settings import Settings
from extractors.media.decode import decode_here
from lab.__main__ import lab as app
from models.caption import AttentionDocument
from models.captioners.registry import CaptionerFolderDamaged, find_captioner, find_stream_set, list_folders
from models.checkpoint import load_checkpoint
from tests.media import write_video
from tests.models.captioners.toy_folder import add_folder, registered
from tests.models.parts import list_names
from tests.training.killed_training import RECIPE
from tests.training.small_demo import use_recipe
from tests.training.tiny_corpus import write_corpus
from training.recipes.demo_recipes import find_recipe
from training.recipes.paper_recipes import find_paper_run


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[None]:
    add_folder(tmp_path / "elsewhere")
    with registered(tmp_path / "elsewhere"):
        yield


@pytest.mark.usefixtures("toy")
def test_it_is_described_fitted_and_has_its_recipes(tmp_path: Path) -> None:
    captioner = find_captioner("mean")
    demo: Any = captioner.make_demo_config()
    assert ([each.name for each in demo.streams], demo.hidden) == (["grid"], 6)
    assert captioner.description.plain == "Looks at the whole film alike."
    assert describe_set(find_stream_set("mean"), tmp_path)["captioner"] == "mean"
    assert find_recipe("demo-mean", "mean").phases == {"again": 2}
    run = find_paper_run("paper-vatex", "mean")
    paper: Any = run.config(find_stream_set(run.streams))
    assert ([each.name for each in paper.streams], paper.hidden) == (["resnext101"], 8)


@pytest.mark.usefixtures("toy")
def test_it_is_trained_saved_served_explained_and_drawn(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = train(tmp_path, monkeypatch)
    with (best.parent / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["phase"] for row in rows} == {"cross_entropy", "again"}
    assert any(row["halved"] for row in rows if row["phase"] == "again")
    assert not any(row["halved"] for row in rows if row["phase"] == "cross_entropy")
    state = torch.load(best.parent / "last.pt", weights_only=True)
    assert not state["last"].isnan().all()
    assert load_checkpoint(best).captioner.name == "mean"

    weights = tmp_path / "weights"
    weights.mkdir()
    best.rename(weights / "mean.safetensors")
    engine = Engine(Settings(weights=weights, data=root / "data", device="cpu"))
    (info,) = engine.info.captioners
    assert (info.name, info.about) == ("mean", "Mean: a GRU over the mean of the video")
    footage = decode_here(write_video(tmp_path / "clip.mp4", frames=20), engine.info.request).footage
    options = engine.info.resolve(CaptionOptions(captioner="mean"))
    (answer,) = engine.describe_and_caption([footage], [options], ignore_progress)
    assert isinstance(answer, EngineAnswer)
    assert answer.attention is not None
    document = AttentionDocument.model_validate_json(answer.attention)
    assert list_names(document) == {"firsts", "thirds", "said", "others"}
    frames = [Image.fromarray(pixels) for pixels in footage.pixels]
    times = footage.pts.tolist()
    bare = document.model_copy(update={"extras": []})
    explained, plain = (draw_attention_picture(each, frames, times) for each in (document, bare))
    assert explained.height > plain.height


def train(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """By the command line, on drawn pictures through the shipped network."""
    patch.setattr("training.optimization.trainer.REPORT_EVERY", 1)
    numbers = {"steps": 2, "validate_every": 1, "phases": {"again": 2}, "soft_weight": 0.0}
    use_recipe(patch, RECIPE.model_copy(update={**numbers, "self_critical_steps": 0}), "demo-mean")
    archive, captions = write_corpus(folder, 16)
    archive.rename(folder / "flickr8k_train.tar")
    captions.rename(folder / "flickr8k_captions.json")
    places = ["--data", str(folder), "--cache", str(folder / "cache"), "--out", str(folder / "run")]
    words = ["train", "mean", "--recipe", "demo-mean", *places, "--threads", "1"]
    trained = CliRunner().invoke(app, words)
    assert trained.exit_code == 0, trained.output
    return folder / "run" / "best.safetensors"


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("captioner.toml", "about", "abuot", "abuot"),
        ("captioner.toml", "captioners.mean", "captioners.median", "describes median, and network.py"),
        ("streams.py", "def fit", "def read", "fit"),
        ("captioner.toml", "width = 2048", "breadth = 2048", "breadth"),
        ("network.py", "import torch.nn", "import nowhere.nn", "nowhere"),
    ],
)
def test_a_folder_that_lacks_something_is_told_by_name(
    tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    folder = add_folder(tmp_path, file, old, new)
    with registered(tmp_path), pytest.raises(CaptionerFolderDamaged, match=said) as raised:
        list_folders()
    assert str(folder) in str(raised.value)


@pytest.mark.usefixtures("toy")
def test_a_captioner_is_known_only_where_its_folder_is(tmp_path: Path) -> None:
    assert {folder.name for folder in list_folders()} > {"mean", "stats"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.captioners.__path__", [str(tmp_path / "nothing")])
        assert list_folders() == ()
