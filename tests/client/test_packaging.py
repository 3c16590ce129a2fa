"""The client's wheel: built by itself, and imported where nothing of the service is."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NEEDS = {"httpx", "httpx-sse", "pydantic", "tenacity"}
SERVICES = {"app", "extractors", "models", "training", "torch", "numpy", "av", "fastapi", "redis", "typer"}
LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
import reelword
assert reelword.__file__.startswith(sys.argv[1]), reelword.__file__
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_the_wheel_needs_and_loads_nothing_of_the_service(root: Path, tmp_path: Path) -> None:
    source = shutil.copytree(root / "client", tmp_path / "client")  # setuptools builds within it
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(source)], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("reelword-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        described = email.message_from_bytes(archive.read(metadata))
        assert "reelword/py.typed" in archive.namelist()
    needs = described.get_all("Requires-Dist", [])
    assert {re.split(r"[<>=!~ ;]", each)[0] for each in needs if "extra ==" not in each} == NEEDS
    command = [sys.executable, "-I", "-c", LOADED, str(wheel)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not SERVICES & set(run.stdout.split())
