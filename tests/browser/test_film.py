"""In five seconds a stranger sees the point: the film plays, each word leads to its moment and its place."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.app.workers import eventually
from tests.browser.conftest import Visit


def test_a_sample_is_one_click_away_and_everything_is_on_the_first_screen(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        tall = page.locator("#drop").bounding_box()
        page.click("#sample")
        caption = visitor.wait_for_caption()
        assert len(caption.split()) > 2
        low = page.locator("#drop").bounding_box()
        assert tall is not None
        assert low is not None
        assert low["height"] < tall["height"] / 3
        for selector in ("#stage", "#caption", "#timeline"):
            assert visitor.fits_first_screen(selector), selector


def test_the_film_plays_and_its_playhead_moves(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#sample")
        visitor.wait_for_caption()
        expect(page.locator("#video")).to_be_visible()
        began = visitor.seconds
        page.get_by_role("button", name="Play", exact=True).click()
        eventually(lambda: visitor.seconds > began + 0.4)
        page.get_by_role("button", name="Pause", exact=True).click()
        head = page.locator("#head").evaluate("head => parseFloat(head.style.left)")
        assert abs(head - 100 * visitor.seconds / 6) < 2


def test_the_film_plays_before_the_service_has_it(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        visitor.page.route("**/caption", lambda route: None)  # the upload hangs
        visitor.send(clips["one.mp4"])
        expect(visitor.page.locator("#video")).to_be_visible()
        assert str(visitor.page.locator("#video").get_attribute("src")).startswith("blob:")
        expect(visitor.page.locator("#status")).to_contain_text("Sending one.mp4")


def test_a_word_under_the_pointer_takes_the_film_to_its_moment_with_heat(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#sample")
        visitor.wait_for_caption()
        seen = set()
        for word in visitor.words.all():
            page.mouse.move(5, 5)
            word.hover()
            expect(word).to_have_attribute("aria-pressed", "true")
            assert visitor.heat > 0
            expect(page.locator("#looked")).to_contain_text(f"“{word.inner_text()}”")
            seen.add(round(visitor.seconds, 1))
        assert len(seen) > 1
        expect(page.locator("#legend")).to_contain_text("The place of")


def test_arrows_go_from_word_to_word_and_from_moment_to_moment(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#sample")
        visitor.wait_for_caption()
        assert page.locator('.word[tabindex="0"]').count() == 1
        assert page.locator('.bar[tabindex="0"]').count() == 1
        visitor.words.first.focus()
        page.keyboard.press("ArrowRight")
        expect(visitor.words.nth(1)).to_be_focused()
        expect(visitor.words.nth(1)).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("End")
        expect(visitor.words.last).to_have_attribute("aria-pressed", "true")
        page.locator(".bar").nth(5).focus()
        page.keyboard.press("Enter")
        expect(page.locator(".bar").nth(5)).to_have_attribute("aria-pressed", "true")
        assert 3.7 < visitor.seconds < 4.5


def test_a_finger_reaches_what_a_pointer_does(visit: Visit) -> None:
    with visit((390, 844), touch=True) as visitor:
        visitor.page.tap("#sample")
        visitor.wait_for_caption()
        visitor.words.nth(1).tap()
        expect(visitor.words.nth(1)).to_have_attribute("aria-pressed", "true")
        assert visitor.heat > 0
        assert not visitor.has_sideways_scroll()


def test_the_timeline_has_the_words_weights_over_real_time(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#sample")
        visitor.wait_for_caption()
        job = page.evaluate("location.hash.slice(1)")
        document = page.request.get(f"{visitor.address}/jobs/{job}/attention").json()
        visitor.words.last.click()
        weights = document["temporal"][-1]
        heights = page.locator(".bar span").evaluate_all("spans => spans.map(span => span.style.height)")
        tallest = max([*weights, 2 / len(weights)])
        for height, weight in zip(heights, weights, strict=True):
            assert abs(float(height.rstrip("%")) - 100 * weight / tallest) < 1
        lefts = page.locator(".bar").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.left))")
        for left, (start, _) in zip(lefts, document["parts"], strict=True):
            assert abs(left - 100 * start / 6) < 1


def test_heat_can_be_switched_off(visit: Visit) -> None:
    with visit() as visitor:
        visitor.page.click("#sample")
        visitor.wait_for_caption()
        visitor.page.get_by_role("button", name="Heat").click()
        expect(visitor.page.locator("#heat")).to_be_hidden()
        visitor.words.first.click()
        expect(visitor.page.locator("#heat")).to_be_visible()


def test_a_film_that_the_browser_cannot_play_is_shown_by_its_frames(
    visit: Visit, clips: dict[str, Path]
) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send_and_wait(clips["old.avi"])
        expect(page.locator("#slide")).to_be_visible()
        expect(page.locator("#video")).to_be_hidden()
        visitor.words.first.click()
        assert visitor.heat > 0
        page.locator(".bar").first.click()
        first = page.locator("#slide").get_attribute("src")
        page.locator(".bar").nth(4).click()
        expect(page.locator("#slide")).not_to_have_attribute("src", str(first))
        began = visitor.seconds
        page.get_by_role("button", name="Play", exact=True).click()
        eventually(lambda: visitor.seconds > began + 0.5)
        expect(page.locator("#facts")).to_contain_text("AVI")
        expect(page.locator("#facts")).not_to_contain_text(",mp4")


def test_the_frames_on_a_screen_of_twice_the_pixels_are_drawn_with_twice_the_pixels(visit: Visit) -> None:
    with visit() as visitor:
        visitor.page.click("#sample")
        visitor.wait_for_caption()
        widths = visitor.page.locator("#heat").evaluate(
            "heat => [heat.width, Math.round(heat.clientWidth * devicePixelRatio)]"
        )
        assert widths[0] == widths[1]


def test_the_first_film_is_walked_through_word_by_word_unless_motion_is_unwelcome(visit: Visit) -> None:
    with visit(moving=True) as visitor:
        page = visitor.page
        page.click("#sample")
        visitor.wait_for_caption()
        page.mouse.move(5, 5)
        expect(page.locator("#tour")).to_have_text("Stop")
        expect(visitor.words.nth(2)).to_have_attribute("aria-pressed", "true")
        expect(visitor.words.nth(4)).to_have_attribute("aria-pressed", "true")
        page.click("#tour")
        expect(page.locator("#tour")).to_have_text("Word by word")
    with visit() as visitor:
        visitor.page.click("#sample")
        visitor.wait_for_caption()
        expect(visitor.page.locator("#tour")).to_have_text("Word by word")
