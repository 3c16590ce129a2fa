"""A folder is told from its configuration and the headers of its weights; what is wrong with it, by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from models.pretrained import errors
from models.pretrained.folder import read_pretrained_info
from models.pretrained.hub import wanted_files
from models.pretrained.load import load_pretrained_captioner
from tests.models.pretrained.tiny_folders import write_git


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_git(tmp_path_factory.mktemp("models") / "tiny-git")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "tiny-git"))


def _split(folder: Path, lost: bool = False) -> None:
    """The weights in two files with an index."""
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    index: dict[str, str] = {}
    for place in (0, 1):
        part = {name: weights[name] for name in names[place::2]}
        file = f"model-0000{place + 1}-of-00002.safetensors"
        save_file(part, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "model.safetensors").unlink()
    if lost:
        (folder / "model-00002-of-00002.safetensors").unlink()


def test_size_family_and_name_are_read_without_loading(folder: Path) -> None:
    info = read_pretrained_info(folder)
    assert (info.name, info.family, info.architecture) == ("tiny-git", "git", "GitForCausalLM")
    assert info.parameters == sum(each.numel() for each in load_file(folder / "model.safetensors").values())
    assert info.memory("float32") > info.parameters * 4
    assert info.memory("bfloat16") < info.memory("float32")
    assert info.licence is None
    assert read_pretrained_info(folder, "mine").name == "mine"


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("license: mit", "mit"),
        ("license: other\nlicense_name: tongyi", "tongyi"),
        ("license: [mit, bsd]", None),
        ("tags: [x", None),
    ],
)
def test_the_card_s_licence_is_told(folder: Path, head: str, licence: str | None) -> None:
    (folder / "README.md").write_text(f"---\n{head}\n---\n# A model\n")
    assert read_pretrained_info(folder).licence == licence


def test_weights_in_several_files_are_one_model(folder: Path, whole: Path) -> None:
    _split(folder)
    assert read_pretrained_info(folder).parameters == read_pretrained_info(whole).parameters
    load_pretrained_captioner(folder)


def _damage_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "../model.safetensors"}}')


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _change(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


FAULTS = {
    "no configuration": (lambda at: (at / "config.json").unlink(), errors.NotACaptioner),
    "no model type": (lambda at: (at / "config.json").write_text("{}"), errors.NotACaptioner),
    "no JSON": (lambda at: (at / "config.json").write_text("{"), errors.PretrainedDamaged),
    "a list": (lambda at: (at / "config.json").write_text("[]"), errors.PretrainedDamaged),
    "another family": (lambda at: _change(at, model_type="bert"), errors.UnknownArchitecture),
    "another head": (
        lambda at: _change(at, architectures=["GitForSomethingElse"]),
        errors.UnknownArchitecture,
    ),
    "a number of heads": (lambda at: _change(at, architectures=5), errors.PretrainedDamaged),
    "its own code": (lambda at: _change(at, auto_map={"AutoModel": "own.Own"}), errors.RemoteCodeRefused),
    "pickles": (
        lambda at: (at / "model.safetensors").rename(at / "pytorch_model.bin"),
        errors.PickledWeightsOnly,
    ),
    "no weights": (lambda at: (at / "model.safetensors").unlink(), errors.PretrainedDamaged),
    "cut off": (_cut, errors.PretrainedDamaged),
    "a part is lost": (lambda at: _split(at, lost=True), errors.PretrainedDamaged),
    "a part elsewhere": (_damage_index, errors.PretrainedDamaged),
}


@pytest.mark.parametrize("ending", [".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5"])
def test_weights_that_could_run_code_are_told_as_such_by_folder_and_hub(folder: Path, ending: str) -> None:
    (folder / "model.safetensors").rename(folder / f"weights{ending}")
    with pytest.raises(errors.PickledWeightsOnly):
        read_pretrained_info(folder)
    with pytest.raises(errors.PickledWeightsOnly):
        wanted_files(["config.json", f"weights{ending}"], "owner/name")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_told_before_anything_is_loaded(folder: Path, fault: str) -> None:
    damage, error = FAULTS[fault]
    damage(folder)
    with pytest.raises(error) as caught:
        read_pretrained_info(folder)
    assert caught.value.code == error.code
    assert caught.value.hint


def _drop_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("git.encoder.layer.0.attention.self.key.weight")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


UNFIT = {
    "a weight is missing": _drop_weight,
    "another width": lambda at: _change(at, hidden_size=64),
    "no tokenizer": lambda at: (at / "vocab.txt").unlink(),
    "no processor": lambda at: (at / "preprocessor_config.json").unlink(),
}


@pytest.mark.parametrize("fault", UNFIT)
def test_what_does_not_fit_is_told_when_it_is_loaded(folder: Path, fault: str) -> None:
    UNFIT[fault](folder)
    with pytest.raises(errors.PretrainedDamaged, match=r"tiny-git"):
        load_pretrained_captioner(folder)
