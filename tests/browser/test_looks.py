"""Nothing keeps people from using the page, in both schemes at three sizes; pictures of it for docs/images.

``REELWORD_PICTURES=docs/images make browser`` writes the pictures there; they are looked at by a person.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.films import SAMPLE
from tests.browser.visitor import PATIENCE, Visitor

SIZES = ((1280, 800), (768, 1024), (390, 844))
SCHEMES = ("light", "dark")
QUALITY = 80


def take_picture(visitor: Visitor, name: str, scheme: str, width: int) -> None:
    folder = os.environ.get("REELWORD_PICTURES")
    if folder:
        with Image.open(io.BytesIO(visitor.page.screenshot())) as picture:
            picture.convert("RGB").save(
                Path(folder) / f"page-{name}-{scheme}-{width}.webp", quality=QUALITY, method=6
            )


#: Fields of the options that stick out of their own column.
STICKING_OUT = """options => options.filter(option => [...option.querySelectorAll("select, input")].some(
  field => field.getBoundingClientRect().right > option.getBoundingClientRect().right + 1)).length"""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_nothing_keeps_people_from_using_it(
    visit: Visit, clips: dict[str, Path], size: tuple[int, int], scheme: str
) -> None:
    with visit(size, scheme) as visitor:
        page = visitor.page
        assert visitor.find_barriers() == []
        assert not visitor.has_sideways_scroll()
        take_picture(visitor, "empty", scheme, size[0])
        page.click("summary")
        page.select_option("#o-captioner", "fusion")
        assert page.locator(".option:visible").evaluate_all(STICKING_OUT) == 0
        assert visitor.find_barriers() == []
        assert not visitor.has_sideways_scroll()
        page.select_option("#o-captioner", index=0)
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        page.mouse.move(5, 5)
        page.wait_for_timeout(300)
        assert visitor.find_barriers() == []
        assert not visitor.has_sideways_scroll()
        take_picture(visitor, "film", scheme, size[0])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_nothing_keeps_people_from_using_chapters_comparison_and_problems(
    visit: Visit, clips: dict[str, Path], size: tuple[int, int], scheme: str
) -> None:
    with visit(size, scheme) as visitor:
        page = visitor.page
        page.click("summary")
        page.select_option("#o-segments", "shots")
        page.select_option("#o-captioner", "refocus")
        visitor.send_and_wait(clips["shots.mp4"])
        for captioner in ("temporal", "g2l"):
            page.select_option("#compare-choice", captioner)
            page.click("#compare-one")
        expect(page.locator(".compare-row")).to_have_count(3)
        expect(page.locator(".compare-row", has_text="…")).to_have_count(0, timeout=PATIENCE)
        assert visitor.find_barriers() == []
        assert not visitor.has_sideways_scroll()
        page.evaluate("scrollTo(0, 0)")
        take_picture(visitor, "chapters", scheme, size[0])
        page.locator("#compare").evaluate("box => box.scrollIntoView()")
        take_picture(visitor, "compare", scheme, size[0])
        visitor.send(clips["notes.mp4"])
        expect(page.locator("#problem")).to_be_visible(timeout=PATIENCE)
        assert visitor.find_barriers() == []
        assert not visitor.has_sideways_scroll()
