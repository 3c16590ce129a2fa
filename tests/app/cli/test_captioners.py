"""``captioners add``, ``list``, ``verify`` and ``remove`` as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from app.cli.main import cli
from app.settings import WEIGHTS
from tests.models.pretrained.hub_server import COMMIT, HubServer, serving
from tests.models.pretrained.tiny_folders import write_git
from tests.models.pretrained.tiny_vlm import write_smolvlm


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("REELWORD_OFFLINE", "1")
    return tmp_path / "data"


def test_a_checkpoint_is_pushed_and_added_elsewhere(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to a hub with its card and its licence, and is the same file where it is added."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for each in (ours, theirs):
        each.mkdir()
    shutil.copy(WEIGHTS / "spatial.safetensors", ours / "mine.safetensors")
    monkeypatch.setenv("REELWORD_WEIGHTS", str(ours))
    monkeypatch.delenv("REELWORD_OFFLINE")
    with serving(HubServer({}, gated=True)) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        files = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setenv("HF_TOKEN", "secret")
        code, out, said = run("push", "mine", "owner/name", "--licence", "mit")
        assert (code, f"owner/name@{COMMIT}" in out + said) == (0, True), said
        assert hub.tokens[-1][1] == "Bearer secret"
        assert set(hub.files) == {"reelword.safetensors", "README.md"}
        assert b"license: mit" in hub.files["README.md"]
        monkeypatch.setenv("REELWORD_WEIGHTS", str(theirs))
        code, _, said = run("add", "owner/name", "--name", "again")
        assert code == 0, said
        assert (theirs / "again.safetensors").read_bytes() == (ours / "mine.safetensors").read_bytes()
        assert "license: mit" in (theirs / "again.md").read_text()
        assert "called again already" in run("add", "owner/name", "--name", "again")[2]
        assert run("push", "again", "owner/name")[0] == 0  # with the card that it came with
        assert b"license: mit" in hub.files["README.md"]
        hub.files = {**hub.files, "reelword.safetensors": b"cut off"}
        assert "cannot be read as a checkpoint" in run("add", "owner/name", "--name", "third")[2]
    assert not (theirs / "third.safetensors").exists()


def test_what_came_as_it_is_is_not_pushed(data: Path, folder: Path) -> None:
    run("add", str(folder))
    code, _, said = run("push", "tiny-git", "owner/name")
    assert (code, "came from" in said) == (2, True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "Tiny-GIT"
    folder.mkdir()
    write_git(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    return folder


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["captioners", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_add_list_verify_remove(data: Path, folder: Path) -> None:
    code, out, _ = run("add", str(folder))
    assert code == 0
    assert "tiny-git: GitForCausalLM" in out
    (card,) = json.loads(run("list", "--json")[1])
    assert (card["name"], card["facts"]["family"], card["facts"]["licence"]) == ("tiny-git", "git", "mit")
    assert card["facts"]["memory"] > card["facts"]["parameters"] * 4
    assert "tiny-git" in run("list")[1]
    assert run("verify")[0] == 0
    (data / "captioners/tiny-git/config.json").write_text("{}")
    code, _, said = run("verify", "tiny-git")
    assert (code, "files_differ" in said) == (1, True)
    assert run("remove", "tiny-git")[0] == 0
    assert "No pretrained captioner is installed" in run("list")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("add", "owner/name"), 1, "REELWORD_OFFLINE is set"),
        (("add", "no folder"), 1, "neither a folder nor"),
        (("remove", "nobody"), 1, "No captioner called nobody"),
        (("verify", "nobody"), 1, "No captioner called nobody"),
        (("add",), 2, "Missing argument"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    data: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found = run(*arguments)
    assert found[0] == code
    assert said in found[2]
    assert not (data / "captioners/.name.part").exists()


@pytest.mark.parametrize("method", ["awq", "bitsandbytes", "gptq", "fp8"])
def test_quantised_weights_are_not_added(data: Path, folder: Path, tmp_path: Path, method: str) -> None:
    source = shutil.copytree(folder, tmp_path / "quantised")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method}
    (source / "config.json").write_text(json.dumps(config))
    code, _, said = run("add", str(source))
    assert (code, f"quantised by {method}" in said, "float32" in said) == (1, True, True)
    assert run("list")[1].startswith("No pretrained captioner")


def test_what_is_opened_and_captions_nothing_is_not_added(data: Path, tmp_path: Path) -> None:
    """A frame takes more tokens than the processor's settings say."""
    source = write_smolvlm(tmp_path / "tiny-vlm")
    settings = json.loads((source / "processor_config.json").read_text())
    (source / "processor_config.json").write_text(json.dumps({**settings, "image_seq_len": 9}))
    code, _, said = run("add", str(source))
    assert code == 1
    assert "cannot caption a frame" in said
    assert run("list")[1].startswith("No pretrained captioner")


@pytest.mark.parametrize("name", ["stats", "fusion", "semantic_embedding"])
def test_names_of_others_are_refused(data: Path, folder: Path, name: str) -> None:
    code, _, said = run("add", str(folder), "--name", name)
    assert (code, "There is a captioner called" in said) == (1, True)
