"""Nothing keeps people from using the page, in both schemes at four sizes; pictures of it for docs/images.

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
from tests.browser.films import SAMPLE, TWO_SHOTS
from tests.browser.visitor import PATIENCE, Visitor

SIZES = ((1280, 800), (1920, 1080), (390, 844), (640, 400))  #: the last: 1280 × 800 at 200 %
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
        take_picture(visitor, "example", scheme, size[0])
        page.click("#options-box summary")
        page.select_option("#o-captioner", "fusion")
        assert page.locator(".option:visible").evaluate_all(STICKING_OUT) == 0
        assert visitor.find_barriers() == []
        assert not visitor.has_sideways_scroll()
        page.select_option("#o-captioner", "labelled_stats")
        visitor.send(TWO_SHOTS)
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
        page.click("#options-box summary")
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
        visitor.send(clips["notes.mp4"])
        expect(page.locator("#problem")).to_be_visible(timeout=PATIENCE)
        assert visitor.find_barriers() == []
        assert not visitor.has_sideways_scroll()


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(23, 24, 26)")])
def test_the_reference_of_the_interface_is_drawn_light_and_dark(
    visit: Visit, scheme: str, ground: str
) -> None:
    with visit(scheme=scheme) as visitor:
        visitor.open("reference")
        page = visitor.page
        heading = page.locator("h2", has_text="Takes a video, its address or a file")
        expect(heading).to_be_visible(timeout=30_000)
        expect(page.get_by_role("tab", name="JavaScript")).to_be_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
        visitor.faults = [
            fault for fault in visitor.faults if "cdn.redoc.ly" not in fault
        ]  # refused by our policy


def test_chosen_words_and_pressed_buttons_are_seen_in_high_contrast(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.emulate_media(forced_colors="active")
        visitor.words.first.click()
        pressed, other = (
            page.locator(button).evaluate("button => getComputedStyle(button).outlineStyle")
            for button in ("#heat-switch", "#spotlight")
        )
        assert (pressed, other) == ("solid", "none")
        shades = page.locator("#lane-rows .cell").evaluate_all(
            "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
        )
        assert len(set(shades)) > 2
        assert visitor.find_barriers() == []
        take_picture(visitor, "example", "contrast", 1280)


#: Visible buttons that are smaller than a fingertip, 44 pixels.
TOO_SMALL = """() => [...document.querySelectorAll("button, summary, select")]
  .map(button => [button.id || button.className || button.textContent, button.getBoundingClientRect()])
  .filter(([, {height}]) => height > 0 && height < 43.5).map(([name, {height}]) => `${name} ${height}`)"""


def test_a_finger_hits_what_it_aims_at(visit: Visit) -> None:
    with visit((390, 844), touch=True) as visitor:
        page = visitor.page
        expect(visitor.words.first).to_be_visible()
        if not page.evaluate("matchMedia('(pointer: coarse)').matches"):
            pytest.skip("this browser emulates no finger")
        small = page.evaluate(TOO_SMALL)
        assert [each for each in small if not each.startswith("word")] == []


SHIFTS = """() => new Promise(resolve => {
  let sum = 0;
  new PerformanceObserver(list => { for (const entry of list.getEntries()) sum += entry.value; })
    .observe({type: "layout-shift", buffered: true});
  setTimeout(() => resolve(sum), 1500);
})"""


#: Requests of a first load, and bytes of what is text.
LOADED = """() => {
  const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const texts = all.filter(({name}) => !/\\.(mp4|webp)$/.test(name));
  return [all.length, texts.reduce((sum, {transferSize}) => sum + transferSize, 0)];
}"""
#: Milliseconds of a trip, and bytes a second: 1.6 Mbit/s.
SLOW_LINE = {"offline": False, "latency": 150, "downloadThroughput": 2e5, "uploadThroughput": 1e5}


def test_a_first_load_is_light_and_paints_early_on_a_slow_line(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        session = page.context.new_cdp_session(page)
        session.send("Network.clearBrowserCache")
        session.send("Network.emulateNetworkConditions", SLOW_LINE)
        page.reload()
        expect(visitor.words.first).to_be_visible()
        page.wait_for_load_state("networkidle")
        requests, texts = page.evaluate(LOADED)
        assert requests <= 15
        assert texts < 60_000
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(f"{requests} requests, {texts} bytes of text, painted after {painted:.0f} ms")
        assert painted < 3000  # on a busy machine; 300 on one that is not


def test_nothing_jumps_while_the_page_loads(visit: Visit) -> None:
    with visit() as visitor:
        visitor.page.reload()
        assert visitor.page.evaluate(SHIFTS) < 0.05
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        visitor.page.reload()
        assert visitor.page.evaluate(SHIFTS) < 0.05
