"""A pretrained captioner is fine-tuned on one's own videos, goes on where it was stopped, and is served."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.torch import load_file
from typer.testing import CliRunner

from app.cli.captioners import try_captioner
from app.cli.main import cli
from extractors.media.decode import decode_here
from models.decoding.options import DecodingOptions
from models.pretrained import errors
from models.pretrained.adapters.card import WEIGHTS
from models.pretrained.folder import read_pretrained_info
from models.pretrained.installed import InstalledCaptioners
from models.pretrained.load import load_pretrained_captioner
from tests.media import write_video
from tests.models.pretrained.hub_server import HubServer, serving
from tests.models.pretrained.pasted import COLOURS
from tests.models.pretrained.tiny_folders import TRAINABLE, write_git
from tests.training.stopped import stopped_before
from training.batches.video_frames import FrameBatches
from training.datasets.registry import SetFolder
from training.optimization.run_folder import RunSettings
from training.recipes.demo_recipes import FINETUNE_LORA
from training.recipes.recipe import LoraOptions, Recipe
from training.sessions.pretrained import AlreadyAdapted, finetune_pretrained

pytestmark = pytest.mark.slow

CAPTIONS = {"red": "red guitar", "blue": "blue park"}
RECIPE = FINETUNE_LORA.model_copy(
    update={"videos": 4, "captions": 1, "steps": 80, "validate_every": 20, "warmup": 1, "learning_rate": 2e-2}
    | {"lora": LoraOptions(targets=("query", "value", "dense"))}
)
SHORT = RECIPE.model_copy(update={"steps": 4, "validate_every": 1})


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos with a colour in a corner, two of each colour."""
    folder = tmp_path_factory.mktemp("clips")
    entries = []
    for number, word in enumerate(["red", "blue"] * 2):

        def picture(_: int, width: int, height: int, word: str = word, number: int = number) -> np.ndarray:
            pixels = np.full((height, width, 3), 120 + 5 * number, np.uint8)
            pixels[: height // 2, : width // 2] = COLOURS[word]
            return pixels

        write_video(folder / f"{number}.mp4", frames=12, width=64, height=64, painter=picture)
        entries.append({"file": f"{number}.mp4", "captions": [CAPTIONS[word]]})
    (folder / "captions.json").write_text(json.dumps(entries))
    return folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstalledCaptioners:
    """A data folder with a tiny GIT."""
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    write_git(tmp_path / "tiny", frames=2, end_bias=0.0, **TRAINABLE)
    (tmp_path / "tiny" / "README.md").write_text("---\nlicense: mit\n---\n")
    installed = InstalledCaptioners(tmp_path / "data" / "captioners")
    installed.add(str(tmp_path / "tiny"), try_captioner)
    return installed


def run(out: Path, recipe: Recipe = RECIPE, clips: Path = Path()) -> Path:
    settings = RunSettings(out, out.parent / "cache", lambda _: None, threads=1)
    return finetune_pretrained("tiny", recipe, SetFolder(clips).load(), settings)


def write(folder: Path, clips: Path) -> Sequence[str]:
    """What the captioner of a folder writes of the clips."""
    captioner = load_pretrained_captioner(read_pretrained_info(folder))
    videos = [decode_here(clips / f"{number}.mp4", captioner.request).footage for number in range(4)]
    options = DecodingOptions(beam_size=2, attention=False)
    return [best.text for best, *_ in captioner.caption(videos, options)]


def read_scores(log: Path) -> list[tuple[str, str]]:
    """The steps at which a run was judged, and what it scored."""
    rows = csv.DictReader(log.read_text().splitlines())
    return [(row["step"], row["cider"]) for row in rows if row["cider"]]


def test_what_was_learned_is_added_served_and_bound_to_its_base(
    installed: InstalledCaptioners, clips: Path, tmp_path: Path
) -> None:
    adapter = run(tmp_path / "run", RECIPE, clips)
    assert {each.name for each in adapter.iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors", "README.md", "reelword.json",
    }  # fmt: skip
    base = installed.card("tiny")
    card = installed.add(str(adapter), try_captioner, name="mine")
    assert card.base is not None
    assert (card.base.name, card.base.weights_sha256) == ("tiny", base.weights_sha256)
    assert card.facts.licence == "mit"
    assert next(iter(card.scores.values()))["n"] == 4
    assert card.weights_sha256 != base.weights_sha256
    assert write(installed.path("mine"), clips) == list(CAPTIONS.values()) * 2
    assert write(installed.path("tiny"), clips) != write(installed.path("mine"), clips)
    assert installed.verify("mine") == card
    with pytest.raises(AlreadyAdapted, match="mine is an adapter of tiny"):
        finetune_pretrained("mine", RECIPE, SetFolder(clips).load(), RunSettings(adapter, adapter, print))

    shutil.copytree(installed.path("mine"), tmp_path / "mine")
    installed.remove("mine")
    installed.remove("tiny")
    with pytest.raises(errors.BaseMissing, match=r"tiny \(.*\), which it adapts, is not here"):
        installed.add(str(tmp_path / "mine"), try_captioner)
    write_git(tmp_path / "tiny", frames=2, seed=2)
    installed.add(str(tmp_path / "tiny"), try_captioner)
    with pytest.raises(errors.BaseDiffers, match=f"had the weights {base.weights_sha256[:12]}"):
        installed.add(str(tmp_path / "mine"), try_captioner)
    (tmp_path / "mine" / "reelword.json").unlink()
    with pytest.raises(errors.PretrainedDamaged, match="names its base"):
        installed.add(str(tmp_path / "mine"), try_captioner)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    installed: InstalledCaptioners, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole", SHORT, clips)
    with monkeypatch.context() as stopped:
        stopped.setattr(FrameBatches, "at", stopped_before(2, FrameBatches))
        with pytest.raises(InterruptedError):
            run(tmp_path / "stopped", SHORT, clips)
    again = run(tmp_path / "stopped", SHORT, clips)
    ours, theirs = (load_file(folder / WEIGHTS) for folder in (whole, again))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    scores = [read_scores(tmp_path / name / "log.csv") for name in ("whole", "stopped")]
    assert scores[0] == scores[1]
    assert (tmp_path / "whole" / "last.pt").stat().st_size < 100_000  # adapters alone, and no base


def test_an_adapter_is_pushed_and_added_elsewhere(
    installed: InstalledCaptioners, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It captions there as here, merged into the same base."""
    mine = installed.add(str(run(tmp_path / "run", SHORT, clips)), try_captioner, name="mine").name
    here = write(installed.path(mine), clips)
    elsewhere = InstalledCaptioners(tmp_path / "elsewhere" / "captioners")
    elsewhere.add(str(tmp_path / "tiny"), try_captioner)
    with serving(HubServer({}, gated=True)) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        files = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setenv("HF_TOKEN", "secret")
        pushed = CliRunner().invoke(cli, ["captioners", "push", "mine", "owner/name"])
        assert pushed.exit_code == 0, pushed.stderr
        assert WEIGHTS in hub.files
        assert "tiny.safetensors" not in hub.files
        monkeypatch.setenv("REELWORD_DATA", str(tmp_path / "elsewhere"))
        added = CliRunner().invoke(cli, ["captioners", "add", "owner/name", "--name", "theirs"])
        assert added.exit_code == 0, added.stderr
    card = elsewhere.card("theirs")
    assert card.base == installed.card(mine).base
    assert write(elsewhere.path("theirs"), clips) == here


def test_the_command_trains_what_is_installed_and_refuses_the_rest(
    installed: InstalledCaptioners, clips: Path, tmp_path: Path
) -> None:
    def train(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["train", *arguments, "--data", str(clips)], env={"COLUMNS": "300"})
        return done.exit_code, done.output

    code, said = train("tiny", "--recipe", "finetune-lora", "--steps", "2", "--out", "run", "--device", "cpu")
    assert code == 0, said
    assert "best checkpoint: run/adapter" in said
    for arguments, sentence in {
        ("tiny", "--recipe", "finetune"): "no recipe 'finetune' for tiny; there are: finetune-lora",
        ("stats", "--recipe", "finetune-lora"): "no recipe 'finetune-lora' for stats",
        ("nobody", "--recipe", "finetune-lora"): "semantic_embedding, tiny",
        ("tiny", "--start", "a.safetensors"): "--start: finetune-lora begins at the captioner itself",
        ("tiny", "--streams", "demo"): "--streams: finetune-lora begins at",
    }.items():
        code, said = train(*arguments)
        assert (code, sentence in said) == (2, True), said
