"""A film is read to its visitor: an example plays on load, each word leads to its moment and its place."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from models.caption import AttentionDocument
from tests.app.test_word_places import SHOTS as PLACES
from tests.app.workers import eventually
from tests.browser.conftest import Visit
from tests.browser.films import SAMPLE, SHOTS
from tests.browser.visitor import DRAWN


def test_an_example_plays_on_load_and_needs_no_service(visit: Visit) -> None:
    with visit(moving=True) as visitor:
        page = visitor.page
        page.route(re.compile(r"//[^/]+/(models|jobs|caption)"), lambda route: route.abort())
        page.reload()
        expect(page.locator("#video")).to_be_visible()
        eventually(lambda: visitor.seconds > 0.3)
        expect(page.locator(".word.is-lit")).to_have_count(1)
        eventually(lambda: visitor.heat > 0)
        first = page.locator(".word.is-lit").inner_text()
        expect(page.locator(".word.is-lit")).not_to_have_text(first)  # as the film goes on
        assert page.locator("#lane-rows .lane").count() == visitor.words.count() > 2
        for selector in ("#stage", "#lanes", "#choose"):
            assert visitor.fits_first_screen(selector), selector


def test_examples_say_how_right_they_are_and_have_an_address(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        wrong = page.locator(".example", has=page.locator(".is-wrong"))
        wrong.click()
        expect(wrong).to_have_attribute("aria-current", "true")
        said = wrong.locator(".example-said").inner_text()
        expect(page.locator("#caption")).to_have_text(said)
        expect(page.locator("#credit")).to_contain_text("CC BY")
        visitor.words.first.click()
        expect(page).to_have_url(re.compile(r"\?sample=\w+&w=\w+&t=\d"))
        word = visitor.chosen_word.inner_text()
        page.reload()
        expect(page.locator("#caption")).to_have_text(said)
        expect(visitor.chosen_word).to_have_text(word)


def test_a_video_that_was_sent_takes_the_examples_place(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SAMPLE)
        caption = visitor.wait_for_caption()
        assert len(caption.split()) > 2
        expect(page).to_have_url(re.compile(r"/f/[0-9a-f]{32}$"))
        expect(page.locator("#send")).to_be_hidden()
        for selector in ("#stage", "#caption", "#lanes"):
            assert visitor.fits_first_screen(selector), selector
        page.click("#new")
        expect(page.locator("#choose")).to_be_focused()
        expect(page.locator("#examples")).to_be_visible()


def test_the_film_plays_before_the_service_has_it(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        visitor.page.route("**/caption", lambda route: None)  # the upload hangs
        visitor.send(clips["one.mp4"])
        expect(visitor.page.locator("#video")).to_have_attribute("src", re.compile("^blob:"))
        expect(visitor.page.locator("#status")).to_contain_text("Sending one.mp4")


def test_a_word_under_the_pointer_shows_its_moment_and_a_click_keeps_it(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        for word in visitor.words.all():
            word.hover()
            expect(word).to_have_class(re.compile("is-lit"))
            expect(page.locator("#chip")).to_contain_text(word.inner_text())
            names_no_place = "no one place" in page.locator("#chip").inner_text()
            expect(page.locator("#heat")).to_be_visible(visible=not names_no_place)
            assert names_no_place or visitor.heat > 0
            page.mouse.move(5, 5)
        visitor.words.last.click()
        expect(visitor.chosen_word).to_have_text(visitor.words.last.inner_text())
        expect(page.locator(".lane.is-lit .lane-word")).to_have_text(visitor.words.last.inner_text())
        visitor.words.last.click()
        expect(visitor.chosen_word).to_have_count(0)


def test_keys_go_from_word_to_word_and_from_moment_to_moment(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        expect(visitor.words.first).to_be_visible()
        page.keyboard.press("ArrowDown")
        first = visitor.chosen_word.inner_text()
        page.keyboard.press("ArrowDown")
        assert visitor.chosen_word.inner_text() != first
        page.keyboard.press("Escape")
        expect(visitor.chosen_word).to_have_count(0)
        page.keyboard.press("0")
        page.keyboard.press("ArrowRight")
        moment = visitor.seconds
        assert moment > 0
        page.keyboard.press(".")
        assert visitor.seconds > moment
        page.keyboard.press("h")
        expect(page.locator("#heat-switch")).to_have_attribute("aria-pressed", "false")
        page.keyboard.press(" ")
        expect(page.locator("#play")).to_have_text("Pause")
        page.keyboard.press("k")
        expect(page.locator("#play")).to_have_text("Read it to me")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("Spotlight")
        page.keyboard.press("Escape")
        assert page.locator('.word[tabindex="0"]').count() == 1
        visitor.words.first.focus()
        page.keyboard.press("End")
        expect(visitor.words.last).to_be_focused()


def test_lanes_have_the_words_weights_over_real_time(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SHOTS[1])
        visitor.wait_for_caption()
        document = page.request.get(f"{visitor.address}/jobs/{visitor.job}/attention").json()
        of_labels = [part["words"] for part in document["extras"] if part["kind"] == "moments"]
        content = [word for word, is_content in enumerate(document["content"]) if is_content]
        word = next(word for word in content if not any(words[word] for words in of_labels))
        weights = document["evidence"]["temporal"][word]
        cells = page.locator("#lane-rows .lane").nth(content.index(word)).locator(".cell")
        strengths = cells.evaluate_all(
            "cells => cells.map(cell => parseFloat(cell.style.getPropertyValue('--strength')))"
        )
        assert strengths.index(max(strengths)) == weights.index(max(weights))
        lefts = cells.evaluate_all("cells => cells.map(cell => parseFloat(cell.style.left))")
        length = document["parts"][-1][1]
        for left, (start, _) in zip(lefts, document["parts"], strict=True):
            assert abs(left - 100 * start / length) < 2


#: An answer of two moments: "cat" is all along but for a label with a box in the second, "sits" has a place.
LABELLED = {
    "words": ["cat", "sits"], "content": [True, True], "times": [[0, 2], [2, 4]], "parts": [[0, 2], [2, 4]],
    "temporal": [None, None], "spatial": None,
    "extras": [{"kind": "moments", "name": "labels", "title": "Seen", "note": "", "caption": None, "words": [
        [{"moment": 1, "time": 2.0, "end": 4.0, "text": "cat", "box": [0.5, 0.5, 0.9, 0.9]}], []]}],
    "evidence": {
        "temporal": [[0.5, 0.5], [0.9, 0.1]], "moments": [None, 0], "boxes": [None, None],
        "unplaced": [True, True],
        "spatial": {"kind": "grid", "rows": 1, "columns": 2, "weights": [[[0.5, 0.5], None]] * 2},
    },
}  # fmt: skip


def test_the_page_shows_a_words_moment_and_place_as_all_others_do(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        for text, (start, end, time, _, box) in PLACES.items():
            lane = page.locator("#lane-rows .lane", has=page.get_by_text(text, exact=True))
            name = f"{text}, from {start:.1f} s to {end:.1f} s"
            expect(lane.locator(".lane-word")).to_have_attribute("aria-label", name)
            expect(lane.locator(".lane-when")).to_have_text(f"{time:.1f} s")
            assert (
                lane.locator(".is-top").evaluate("cell => cell.style.getPropertyValue('--strength')")
                == "1.00"
            )
            visitor.words.filter(has_text=text).click()
            expect(page.locator("#chip")).to_contain_text(f"{time:.1f} s")
            expect(page.locator("#chip")).to_contain_text("no one place" if box is None else text)
            expect(page.locator("#heat")).to_be_visible(visible=box is not None)


def test_a_label_gives_its_time_and_box_and_even_places_draw_no_heat(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        answer = AttentionDocument.model_validate(LABELLED).model_dump(mode="json")
        page.route("**/attention", lambda route: route.fulfill(json=answer))
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        expect(page.locator(".lane-when").first).not_to_have_text("all along")
        visitor.words.first.click()
        assert visitor.seconds > 2
        expect(page.locator("#chip")).not_to_contain_text("no one place")
        assert visitor.heat > 0
        visitor.words.last.click()
        expect(page.locator("#chip")).to_contain_text("in no one place")
        expect(page.locator("#heat")).to_be_hidden()


def test_a_narrow_film_has_its_own_picture_beside_it(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        visitor.send(clips["one.mp4"])
        backdrop = visitor.page.locator("#backdrop")
        expect(backdrop).to_be_visible()
        eventually(lambda: backdrop.evaluate(DRAWN) > 0)
        visitor.send(SAMPLE)
        expect(backdrop).to_be_hidden()


def test_a_part_that_is_dragged_over_is_played_again_and_again(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        box = page.locator("#strip").bounding_box()
        assert box is not None
        row = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.25, row)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.4, row, steps=4)
        page.mouse.up()
        page.mouse.move(5, 5)
        expect(page.locator("#band")).to_be_visible()
        expect(page.locator("#loop")).to_have_attribute("aria-pressed", "true")
        length = float(str(page.locator("#place").get_attribute("max")))
        shares = []
        for _ in range(30):
            shares.append(visitor.seconds / length)
            page.wait_for_timeout(60)
        assert 0.2 < min(shares) < max(shares) < 0.45


def test_places_are_shown_as_heat_or_by_a_spotlight_or_not(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.words.first.click()
        heat = visitor.heat
        page.click("#spotlight")
        expect(page.locator("#heat-switch")).to_have_attribute("aria-pressed", "false")
        assert visitor.heat not in (0, heat)
        page.click("#spotlight")
        expect(page.locator("#heat")).to_be_hidden()


def test_a_finger_reaches_what_a_pointer_does(visit: Visit) -> None:
    with visit((390, 844), touch=True) as visitor:
        visitor.words.first.tap()
        expect(visitor.words.first).to_have_attribute("aria-pressed", "true")
        assert visitor.heat > 0
        assert not visitor.has_sideways_scroll()


def test_a_film_that_the_browser_cannot_play_is_shown_by_its_frames(
    visit: Visit, clips: dict[str, Path]
) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(clips["old.avi"])
        visitor.wait_for_caption()
        expect(page.locator("#slide")).to_be_visible()
        expect(page.locator("#video")).to_be_hidden()
        page.keyboard.press("0")
        first = page.locator("#slide").get_attribute("src")
        page.keyboard.press("9")
        expect(page.locator("#slide")).not_to_have_attribute("src", str(first))
        page.keyboard.press("0")
        page.click("#play")
        eventually(lambda: visitor.seconds > 0.4)
        expect(page.locator("#facts")).to_contain_text("AVI")
        expect(page.locator("#facts")).not_to_contain_text(",mp4")


def test_nothing_plays_by_itself_where_motion_is_unwelcome(visit: Visit) -> None:
    with visit() as visitor:
        expect(visitor.words.first).to_be_visible()
        began = visitor.seconds
        visitor.page.wait_for_timeout(500)
        assert abs(visitor.seconds - began) < 0.01
        assert visitor.heat > 0
