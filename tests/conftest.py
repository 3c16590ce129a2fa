"""What every test gets: one thread a process, the shared material where it is, and no quiet skips.

Files with slow tests come first, then those with many: of several processes that take a file at a time none
is then left alone with a long one at the end.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# Before numpy or torch is imported anywhere: a pool of threads a process starves the others on two cores.
for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("REELWORD_CACHE", str(ROOT / "data/cache"))  # networks are converted once for all runs

#: The only reasons for which a test may be skipped; a skip for any other reason fails the run.
ALLOWED_SKIPS = (
    r"shared/\S+ absent",  # pictures, clips and golden values that the repository may not carry
    r"no CUDA device",
    r"no bf16 on this processor",
    r"no C\+\+ compiler",
    r"decord is not installed",
    r"detectron2 is not installed",
    r"pytorchvideo is not installed",
    r"chromium is not installed",
    r"gradio is not installed",
    r"label-studio-sdk is not installed",
)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of material that stands beside a developer's checkout; skips where there is none."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("shared/data absent")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sizes = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, -sizes[item.path]))  # within a file as they stand
    long = {ROOT / line for line in (ROOT / "tests/slow_files.txt").read_text().split("\n")[1:]}
    for item in items:
        if item.path in long:
            item.add_marker("slow")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def _refuse_unlisted_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = _reason(report)
    if not any(re.search(allowed, reason) for allowed in ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"{reason}\nThis reason is not in ALLOWED_SKIPS of tests/conftest.py."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_unlisted_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_unlisted_skip(report)
    return report
