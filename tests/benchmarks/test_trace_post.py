"""One request passes few files, and the count of them is of a whole trip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.trace_post import HOOK, MOST_FILES, Trace, files_passed, trace_one_post

pytestmark = pytest.mark.slow

SCRIPT = """
import asyncio, time
from pathlib import Path

async def sleep_twice():
    await asyncio.sleep(0)
    await asyncio.sleep(0)

def numbers():
    yield from (1, 2, 3)

def plain():
    return list(numbers())

folder = Path(__file__).parent
(folder / "armed").touch()
time.sleep(0.2)
asyncio.run(sleep_twice())
plain()
plain()
(folder / "over").touch()
time.sleep(0.5)
"""


def test_one_post_that_decodes_passes_few_files(tmp_path: Path) -> None:
    traces = trace_one_post(tmp_path)  # raises where the decoder did nothing
    files = files_passed(traces)
    assert {"app/api/routes/submit.py", "extractors/media/frame_reader.py"} <= files
    assert len(files) <= MOST_FILES, sorted(files)


def test_what_is_resumed_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOOK.format(folder=str(tmp_path), root=str(tmp_path)))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, str(script)], env=environment, check=True)
    (left,) = tmp_path.glob("*.json")
    calls = Trace.read(left).calls
    assert {name: calls["script.py", name] for name in ("sleep_twice", "numbers", "plain")} == {
        "sleep_twice": 1,
        "numbers": 2,
        "plain": 2,
    }
