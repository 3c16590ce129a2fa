"""CLIP, SigLIP and VideoMAE from hub folders say what transformers' own forward says of the same pictures."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPImageProcessorPil,
    CLIPModel,
    CLIPVisionModelWithProjection,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipImageProcessorPil,
    SiglipModel,
    VideoMAEConfig,
    VideoMAEForVideoClassification,
    VideoMAEImageProcessor,
    VideoMAEImageProcessorPil,
    VideoMAEModel,
)
from typer.testing import CliRunner

from app.cli.main import cli
from extractors.catalog.hub_encoders import read_encoder
from extractors.extractor import create
from extractors.features import Frames, Stream
from extractors.pretrained.errors import WeightsDamaged, WeightsMissing, WrongCheckpoint
from extractors.windowing.network_extractor import NetworkExtractor
from extractors.windows import Windows
from models.captioners.registry import UnknownStreamSet, find_stream_set
from tests.extractors.moving import moving
from tests.media import write_video
from tests.models.pretrained.tiny_folders import write_git
from tests.training.laid_out import write_json

SIDE, PATCH, CELLS = 32, 8, 16
TOWER = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SEEN = {**TOWER, "image_size": SIDE, "patch_size": PATCH}
TEXT = {**TOWER, "vocab_size": 20, "max_position_embeddings": 8}


def write_clip(folder: Path) -> None:
    config = CLIPConfig(text_config=TEXT, vision_config={**SEEN, "projection_dim": 20}, projection_dim=20)
    CLIPModel(config).save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SIDE).save_pretrained(folder)


def write_siglip(folder: Path) -> None:
    SiglipModel(SiglipConfig(text_config=TEXT, vision_config=SEEN)).save_pretrained(folder)
    SiglipImageProcessor(
        size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=3
    ).save_pretrained(folder)


def write_videomae(folder: Path) -> None:
    config = VideoMAEConfig(**SEEN, num_frames=4, tubelet_size=2)
    VideoMAEForVideoClassification(config).save_pretrained(folder)
    crop = {"height": SIDE, "width": SIDE}
    VideoMAEImageProcessor(size={"shortest_edge": SIDE}, crop_size=crop).save_pretrained(folder)


@torch.inference_mode()
def clip_says(folder: Path, pictures: list[Image.Image]) -> tuple[torch.Tensor, torch.Tensor]:
    model, pixels = CLIPModel.from_pretrained(folder).eval(), see(CLIPImageProcessorPil, folder, pictures)
    embedded = model.get_image_features(pixel_values=pixels)
    vectors = getattr(embedded, "pooler_output", embedded)
    return vectors, model.vision_model(pixel_values=pixels).last_hidden_state[:, 1:]


@torch.inference_mode()
def siglip_says(folder: Path, pictures: list[Image.Image]) -> tuple[torch.Tensor, torch.Tensor]:
    model = SiglipModel.from_pretrained(folder).eval()
    output = model.vision_model(pixel_values=see(SiglipImageProcessorPil, folder, pictures))
    return output.pooler_output, output.last_hidden_state


@torch.inference_mode()
def videomae_says(folder: Path, pictures: list[Image.Image]) -> tuple[torch.Tensor, torch.Tensor]:
    model = VideoMAEModel.from_pretrained(folder).eval()
    clip = see(VideoMAEImageProcessorPil, folder, pictures)
    tokens = model(pixel_values=clip).last_hidden_state
    return tokens.mean(1), tokens.view(1, 2, CELLS, 24).mean(1)


def see(processor: Any, folder: Path, pictures: list[Image.Image]) -> torch.Tensor:
    pixels: torch.Tensor = processor.from_pretrained(folder)(pictures, return_tensors="pt")["pixel_values"]
    return pixels


Write = Callable[[Path], None]
KINDS: dict[str, tuple[Write, Any, int]] = {
    "clip": (write_clip, clip_says, 20),
    "siglip": (write_siglip, siglip_says, 24),
    "videomae": (write_videomae, videomae_says, 24),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    return tmp_path


def write(kind: str, folder: Path) -> Path:
    folder.mkdir(parents=True)
    torch.manual_seed(5)
    KINDS[kind][0](folder)
    return folder


def extract(video: Frames, engine: str = "torch", **options: Any) -> dict[str, Stream]:
    extractor = create("hub:tiny", engine=engine, precision="fp32", **options)  # type: ignore[arg-type]
    assert isinstance(extractor, NetworkExtractor)
    return extractor.extract([video])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_streams_are_what_transformers_says(kind: str, data: Path) -> None:
    folder = write(kind, data / "weights/hub/tiny")
    video = moving(4, 45, 61)
    windows = Windows(4, 4) if kind == "videomae" else None
    streams = extract(video, windows=windows)
    vectors, grid = KINDS[kind][1](folder, [Image.fromarray(frame) for frame in video.pixels])
    torch.testing.assert_close(streams["hub:tiny"].values, vectors, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(streams["hub:tiny_grid"].values, grid, atol=2e-5, rtol=1e-4)
    wanted = find_stream_set("hub:tiny")
    shapes = {each.stream: (each.count, each.width) for each in wanted.inputs}
    assert shapes == {"hub:tiny": (1, KINDS[kind][2]), "hub:tiny_grid": (CELLS, 24)}
    assert len(streams["hub:tiny"]) == (1 if kind == "videomae" else 4)


def test_openvino_runs_it_too(data: Path) -> None:
    write("clip", data / "weights/hub/tiny")
    video = moving(2, 32, 32)
    by = [extract(video, engine=engine, cache=data / "cache") for engine in ("torch", "openvino")]
    for stream in ("hub:tiny", "hub:tiny_grid"):
        torch.testing.assert_close(by[0][stream].values, by[1][stream].values, atol=1e-4, rtol=1e-3)


def test_a_short_video_is_one_window(data: Path) -> None:
    write("videomae", data / "weights/hub/tiny")
    still = Frames(np.zeros((1, 40, 40, 3), np.uint8), np.zeros(1), 0.2)
    streams = extract(still)
    assert streams["hub:tiny"].values.shape == (1, 24)


def test_what_is_not_read_of_a_folder_is_not_reported(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its text side, which transformers lists at every load."""
    folder = write("clip", data / "weights/hub/tiny")
    logging.getLogger("transformers").addHandler(caplog.handler)
    try:
        CLIPVisionModelWithProjection.from_pretrained(folder)
        assert "UNEXPECTED" in caplog.text
        caplog.clear()
        extract(Frames(np.zeros((1, 40, 40, 3), np.uint8), np.zeros(1), 0.2))
        assert "UNEXPECTED" not in caplog.text
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)


def test_what_is_no_encoder_is_refused(data: Path) -> None:
    hub = data / "weights/hub"
    with pytest.raises(WeightsMissing, match="add OWNER/NAME --as hub:gone"):
        read_encoder("hub:gone")
    with pytest.raises(UnknownStreamSet, match="hub:gone is not here"):
        find_stream_set("hub:gone")
    (hub / "git").mkdir(parents=True)
    write_git(hub / "git")
    with pytest.raises(WrongCheckpoint, match="is a git_vision_model"):
        read_encoder("hub:git")
    cut = write("clip", hub / "cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-9])
    with pytest.raises(WeightsDamaged, match="cannot be opened"):
        create("hub:cut", engine="torch")


def test_it_is_added_by_the_command_and_extracts(data: Path, tmp_path: Path) -> None:
    source = write("siglip", tmp_path / "made")
    run = CliRunner(env={"COLUMNS": "200"})
    added = run.invoke(cli, ["weights", "add", str(source), "--as", "hub:seen"])
    assert (added.exit_code, "SiglipVisionModel" in added.stdout) == (0, True), added.stderr
    assert json.loads((data / "weights/hub/seen/reelword.json").read_text())["name"] == "seen"
    listed = run.invoke(cli, ["weights", "list"])
    [row] = [line for line in listed.stdout.splitlines() if line.split()[:1] == ["hub:seen"]]
    assert "yes" in row
    assert "hub:seen_grid: " in run.invoke(cli, ["models", "--sets"]).stdout
    assert run.invoke(cli, ["weights", "verify", "hub:seen"]).exit_code == 0
    again = run.invoke(cli, ["weights", "add", str(source), "--as", "hub:seen"])
    assert (again.exit_code, "called seen already" in again.stderr) == (1, True)
    (data / "weights/hub/seen/preprocessor_config.json").write_text("{}")
    broken = run.invoke(cli, ["weights", "verify", "hub:seen"])
    assert (broken.exit_code, "files_differ" in broken.stderr) == (1, True)
    other = tmp_path / "git"
    other.mkdir()
    write_git(other)
    refused = run.invoke(cli, ["weights", "add", str(other), "--as", "hub:git"])
    assert (refused.exit_code, "opened here are" in refused.stderr) == (1, True)
    assert not (data / "weights/hub/git").exists()


#: A captioner that is quick to train.
SMALL = ("embedded=7", "words=8", "attention=5", "hidden=9", "query=10", "self_critical_steps=0", "videos=2")


@pytest.mark.slow
def test_a_captioner_is_trained_on_encoders_and_served_by_them(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("siglip", "videomae"):
        write(kind, data / "weights/hub" / kind)
    films, weights = tmp_path / "films", tmp_path / "own"
    films.mkdir()
    for name in ("a", "b", "c"):
        write_video(films / f"{name}.mp4", frames=20)
    write_json(films / "captions.json", {f"{name}.mp4": f"a {name} square" for name in ("a", "b", "c")})
    run = CliRunner()
    sets = [part for each in SMALL for part in ("--set", each)]
    options = ["--recipe", "demo", "--data-set", "folder", "--steps", "2", "--threads", "1", *sets]
    options += ["--out", str(weights), "--cache", str(tmp_path / "cache")]
    trained = run.invoke(
        cli,
        ["train", "stats", "--data", str(films), "--streams", "hub:siglip+hub:videomae", *options],
    )
    assert trained.exit_code == 0, trained.stderr
    (weights / "best.safetensors").rename(weights / "mine.safetensors")
    monkeypatch.setenv("REELWORD_WEIGHTS", str(weights))
    monkeypatch.setenv("REELWORD_CACHE", str(tmp_path / "converted"))
    written = run.invoke(cli, ["caption", str(films / "a.mp4"), "--captioner", "mine", "--json"])
    assert written.exit_code == 0, written.stderr
    assert json.loads(written.stdout)["captions"]
    shutil.rmtree(data / "weights/hub/videomae")
    gone = run.invoke(cli, ["caption", str(films / "a.mp4"), "--captioner", "mine", "--json"])
    assert (gone.exit_code, "--as hub:videomae" in gone.stderr + gone.stdout) == (2, True)
