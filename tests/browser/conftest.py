"""A real service (embedded Redis, a worker, the demo captioners) and Debian's Chromium, to test the page.

``make browser`` runs these tests; ``make test`` leaves them out, since the service takes half a minute to
start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.app.serve.test_supervisor import Served, served
from tests.browser.films import write_shots
from tests.browser.visitor import Visitor, visiting
from tests.media import write_video

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def service(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(root, tmp_path_factory.mktemp("served") / "data") as running:
        yield running


@pytest.fixture
def visit(browser: Browser, service: Served) -> Visit:
    """Opens the page as a new visitor would, whose browser knows nothing of it."""
    return Visit(browser, service.address)


class Visit:
    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address = browser, address

    def __call__(
        self,
        size: tuple[int, int] = (1280, 800),
        scheme: str = "light",
        *,
        touch: bool = False,
        moving: bool = False,
    ) -> AbstractContextManager[Visitor]:
        return visiting(self.browser, self.address, size, scheme, touch=touch, moving=moving)


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Films by what they are for: three that a browser plays, one that it does not, one of many shots."""
    folder = tmp_path_factory.mktemp("films")
    found = {
        name: write_video(folder / name, codec=codec, frames=40, width=320, height=240)
        for name, codec in (
            ("one.mp4", "libx264"),
            ("two.mp4", "libx264"),
            ("three.mp4", "libx264"),
            ("old.avi", "mpeg4"),
        )
    }
    found["shots.mp4"] = write_shots(folder / "shots.mp4")
    found["long.mp4"] = write_video(folder / "long.mp4", frames=140, fps=2, width=320, height=240)
    found["notes.mp4"] = folder / "notes.mp4"
    found["notes.mp4"].write_text("These are notes and no film.\n" * 100)
    found["empty.mp4"] = folder / "empty.mp4"
    found["empty.mp4"].touch()
    return found
