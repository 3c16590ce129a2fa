"""What `make serve` does not install: each such import is named with the command that brings its group."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from app.extract.plan import choose_format
from extractors.decoder.decoder import Decoder
from extractors.errors import GROUPS, PackageMissing, name_missing_packages
from extractors.extractor import create
from tests.test_architecture import PACKAGES, _closure, _groups, _name

pytestmark = pytest.mark.slow

SERVED = ("api", "serve", "cli", "embedded")
#: Built from their repositories, or measured once: whoever runs them is told by themselves what to install.
BUILT_BY_HAND = {"detectron2", "pytorchvideo"}


def _imports(root: Path) -> Iterator[str]:
    """The packages that the source imports, anywhere in a file."""
    for folder in PACKAGES:
        for file in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                yield from (name.partition(".")[0] for name in names)


def test_each_import_beyond_what_is_served_has_its_group(root: Path) -> None:
    groups = _groups(root)
    served = _closure(entry for group in SERVED for entry in groups[group])
    owners = metadata.packages_distributions()
    optional = {
        name
        for name in set(_imports(root))
        if name in owners and not {_name(owner) for owner in owners[name]} & served
    }
    assert optional - BUILT_BY_HAND <= set(GROUPS)


@pytest.mark.parametrize("package", GROUPS)
def test_each_group_brings_what_it_is_named_for(root: Path, package: str) -> None:
    brought = _closure(_groups(root)[GROUPS[package]])
    assert {_name(owner) for owner in metadata.packages_distributions()[package]} & brought


def test_what_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(PackageMissing) as raised, name_missing_packages():
        import transformers  # noqa: F401
    assert "make setup-pretrained" in raised.value.advice
    assert "reelword-service[pretrained]" in raised.value.advice


def test_other_imports_fail_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match="nonesuch"), name_missing_packages():
        importlib.import_module("numpy.nonesuch")


def test_an_extractor_names_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(PackageMissing, match="timm is not installed"):
        create("inception_v4", weights="seeded")


def test_a_form_of_features_and_a_video_reader_name_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(PackageMissing, match="group hdf5"):
        choose_format("hdf5")
    monkeypatch.setattr("extractors.decoder.decoder.find_spec", lambda _: None)
    with pytest.raises(PackageMissing, match="group decord"):
        Decoder("decord")


@pytest.mark.parametrize(
    ("command", "group"),
    [(("bulk", "{clip}", "--out", "rows.parquet"), "bulk"), (("train", "stats", "--help"), None)],
)
def test_a_command_says_in_a_sentence_what_to_install(
    root: Path, tmp_path: Path, command: tuple[str, ...], group: str | None
) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"no film")
    hide = "import sys; sys.modules.update(dict.fromkeys({'pyarrow', 'ray', 'tqdm'})); "
    words = [word.format(clip=clip) for word in command]
    run = subprocess.run(
        [sys.executable, "-c", f"{hide}from app.__main__ import main; main()", *words],
        cwd=root, capture_output=True, text=True,
    )  # fmt: skip
    if group is None:
        assert run.returncode == 0, run.stderr
    else:
        assert run.returncode == 1
        assert f"make setup-{group}" in run.stderr
        assert "Traceback" not in run.stderr
