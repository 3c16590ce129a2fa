"""A cluster of several raylets: a node is killed, the driver is killed, a video kills its engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SECONDS = 1500  #: a busy machine takes long to start some thirty processes


def test_each_video_has_one_row_whatever_is_killed(root: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.cluster_kill", "--videos", "40", "--nodes", "2"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "all promises kept" in run.stdout
