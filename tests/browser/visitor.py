"""Someone who uses the page: what they do, and what they then see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

PATIENCE = 60_000  #: milliseconds until a caption
#: How much of a canvas is drawn on, summed opacities of a sample of its pixels.
DRAWN = """canvas => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let sum = 0;
  for (let k = 3; k < data.length; k += 4 * 97) sum += data[k];
  return sum;
}"""


class Visitor:
    """Drives one tab. ``faults``: what the browser complained of, a breach of the content policy included."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.faults: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def open(self, fragment: str = "") -> None:
        self.page.goto(f"{self.address}/{fragment}")

    def send(self, *films: Path) -> None:
        self.page.set_input_files("#files", list(films))

    def wait_for_caption(self) -> str:
        """Waits until a film that was sent has its sentence, and returns it."""
        expect(self.page.locator("body")).not_to_have_class(re.compile("is-empty"))
        expect(self.page.locator("#share")).to_be_visible(timeout=PATIENCE)
        return str(self.page.locator("#caption").text_content())

    def send_and_wait(self, *films: Path) -> str:
        self.send(*films)
        return self.wait_for_caption()

    @property
    def words(self) -> Locator:
        return self.page.locator(".word")

    @property
    def chosen_word(self) -> Locator:
        return self.page.locator('.word[aria-pressed="true"]')

    @property
    def films(self) -> Locator:
        return self.page.locator(".film-row")

    @property
    def job(self) -> str:
        """Its id, which the address has."""
        return str(self.page.evaluate("location.pathname.split('/').pop()"))

    @property
    def seconds(self) -> float:
        """Where the film stands."""
        return float(self.page.locator("#place").input_value())

    @property
    def heat(self) -> int:
        return int(self.page.locator("#heat").evaluate(DRAWN))

    def fits_first_screen(self, selector: str) -> bool:
        box = self.page.locator(selector).bounding_box()
        size = self.page.viewport_size
        assert box is not None
        assert size is not None
        return box["y"] >= 0 and box["y"] + box["height"] <= size["height"] and box["width"] <= size["width"]

    def find_barriers(self) -> list[str]:
        """Returns what axe-core finds that keeps people from using the page."""
        found: dict[str, Any] = Axe().run(self.page).response
        return [
            f"{each['id']}: {node['target']} {node['html'][:120]}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def has_sideways_scroll(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@contextmanager
def visiting(
    browser: Browser, address: str, size: tuple[int, int], scheme: str, *, touch: bool, moving: bool
) -> Iterator[Visitor]:
    """Opens the page for a new visitor, and holds at the end that the browser had nothing to complain of.

    Args:
        browser: Chromium.
        address: the service's.
        size: width and height of the window.
        scheme: ``light`` or ``dark``.
        touch: whether fingers and not a mouse point.
        moving: whether the visitor likes things to move by themselves.

    Yields:
        The visitor, in front of the page.
    """
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="no-preference" if moving else "reduce",
        has_touch=touch,
        accept_downloads=True,
    )
    try:
        visitor = Visitor(context.new_page(), address)
        visitor.open()
        yield visitor
        assert visitor.faults == []
    finally:
        context.close()
