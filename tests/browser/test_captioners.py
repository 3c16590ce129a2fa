"""Captioners side by side on the same film, each with what it has of its own, in words; options explained."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.films import SAMPLE
from tests.browser.visitor import PATIENCE

RAW = re.compile(r"-\d+\.\d+|\d\.\d{3,}|\b0\.\d+\b(?! s)")


@pytest.mark.parametrize(
    ("captioner", "words"),
    [
        ("stats", "followed things through the whole film"),
        ("g2l", "Frames read closely for"),
        ("refocus", "It first writes from the middle of the film"),
        ("dual_afr", "whole things"),
        ("fusion", "the caption that fits the film best"),
        ("ensemble", "agreed on every word"),
    ],
)
def test_each_captioner_shows_its_own_view_in_words(visit: Visit, captioner: str, words: str) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#options-box summary")
        page.select_option("#o-captioner", captioner)
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        visitor.words.last.click()
        shown = page.locator("#film").inner_text() + page.locator("#own").inner_text()
        assert words in shown
        assert not RAW.search(shown), shown
        for meter in page.locator("meter:visible").all():
            assert meter.get_attribute("aria-label")


def test_captioners_stand_side_by_side_with_differences_marked(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SAMPLE)
        said = visitor.wait_for_caption()
        page.reload()  # the browser has the file no more; the service has
        assert visitor.wait_for_caption() == said
        page.select_option("#compare-choice", "temporal")
        page.click("#compare-one")
        rows = page.locator(".compare-row")
        expect(rows).to_have_count(2)
        expect(rows.nth(1)).to_contain_text("Temporal")
        expect(rows.nth(1)).not_to_contain_text("…", timeout=PATIENCE)
        other = rows.nth(1).locator(".compare-text").inner_text()
        marked = rows.nth(1).locator("mark").all_inner_texts()
        assert set(marked) >= set(other.split()) - set(said.split())
        if other == said:
            assert marked == []
        expect(visitor.films).to_have_count(1)
        for word in page.locator(".word").all():
            doubted = str(word.text_content()) not in other.split()
            expect(word).to_have_attribute("title", "None of 1 other captioners say this" if doubted else "")
        rows.nth(1).locator("button").click()
        expect(rows.nth(1).locator("button")).to_have_attribute("aria-current", "true")
        assert visitor.wait_for_caption() == other
        expect(page.locator("#video")).to_be_visible()


def test_all_captioners_write_at_one_click(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        count = page.locator("#o-captioner option").count()
        page.click("#compare-all")
        expect(page.locator(".compare-row")).to_have_count(count, timeout=PATIENCE)
        expect(page.locator(".compare-row", has_text="…")).to_have_count(0, timeout=PATIENCE)
        expect(page.locator("#compare-one")).to_be_hidden()


def test_each_option_is_explained_in_a_sentence(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#options-box summary")
        for field in page.locator(".option:visible :is(select, input[type=number], input[type=text])").all():
            said = page.locator(f"#{field.get_attribute('aria-describedby')}").inner_text()
            assert len(said.split()) > 5
            assert said.endswith(".")
        page.select_option("#o-captioner", "fusion")
        assert page.locator("#members input:checked").count() > 1
        expect(page.locator("#members").get_by_text("STaTS", exact=True)).to_be_visible()
        for box in page.locator("#members label:visible input").all():
            box.uncheck()
        visitor.send(SAMPLE)
        expect(page.locator("#notice")).to_have_text("Tick at least one captioner under Members.")
