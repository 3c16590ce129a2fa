"""Several films at once, addresses, what a reload, back and forward keep; long films by their chapters."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Route, expect

from tests.app.workers import eventually
from tests.browser.conftest import Visit
from tests.browser.films import SAMPLE
from tests.browser.visitor import PATIENCE

DROP = """([kind, text]) => {
  const transfer = new DataTransfer();
  transfer.setData(kind, text);
  document.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""


def test_several_films_are_sent_two_at_a_time(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        page = visitor.page
        held: list[Route] = []
        page.route("**/caption", lambda route: held.append(route))
        visitor.send(clips["one.mp4"], clips["two.mp4"], clips["three.mp4"])
        expect(visitor.films).to_have_count(3)
        expect(page.locator(".film-said", has_text="Will be sent next")).to_have_count(1)
        page.wait_for_timeout(300)
        assert len(held) == 2
        for _ in range(3):
            eventually(lambda: bool(held))
            held.pop(0).continue_()
            page.wait_for_timeout(100)
        for name in ("one.mp4", "two.mp4", "three.mp4"):
            row = page.locator(".film-row", has_text=name)
            expect(row.locator("progress")).to_be_hidden(timeout=PATIENCE)
            expect(row.locator(".film-said")).not_to_have_text("")
            expect(row.locator("img")).to_have_js_property("naturalWidth", 160)


def test_one_film_alone_is_current_when_another_was_refused(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        visitor.send(clips["empty.mp4"])
        expect(visitor.page.locator("#problem")).to_be_visible(timeout=PATIENCE)
        visitor.send_and_wait(clips["one.mp4"])
        current = visitor.page.locator('.film-open[aria-current="true"]')
        expect(current).to_have_count(1)
        expect(current).to_contain_text("one.mp4")


def test_reload_back_and_forward_keep_everything(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        page = visitor.page
        first = visitor.send_and_wait(clips["one.mp4"])
        visitor.send(SAMPLE)
        expect(page).to_have_title("coffee.mp4 · Reelword")
        second = visitor.wait_for_caption()
        page.go_back()
        expect(page).to_have_title("one.mp4 · Reelword")
        assert visitor.wait_for_caption() == first
        page.go_forward()
        expect(page).to_have_title("coffee.mp4 · Reelword")
        assert visitor.wait_for_caption() == second
        page.reload()
        assert visitor.wait_for_caption() == second
        expect(visitor.films).to_have_count(2)
        expect(visitor.films.nth(1)).to_contain_text("one.mp4")
        expect(page.locator("#facts")).to_contain_text("coffee.mp4")
        expect(page.locator("#video")).to_be_visible()  # from the service now
        expect(page.locator("#video")).to_have_attribute("src", re.compile("^/jobs/"))


def test_a_link_from_elsewhere_shows_the_film_and_its_name(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        said = visitor.send_and_wait(clips["one.mp4"])
        link = visitor.page.evaluate("location.pathname.slice(1)")
    with visit() as visitor:
        visitor.open(link)
        visitor.page.reload()
        assert visitor.wait_for_caption() == said
        expect(visitor.films.first).to_contain_text("one.mp4")


def test_all_times_of_a_film_over_a_minute_are_written_alike(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send_and_wait(clips["long.mp4"])
        expect(page.locator("#time")).to_have_text(re.compile(r"^\d:\d\d / 1:10$"))
        expect(page.locator("#first")).to_have_text("0:00")
        page.locator(".chapter").first.click()
        expect(page.locator(".lane-when").first).to_have_text(re.compile(r"all along|\d:\d\d"))
        expect(page.locator("#strip span")).to_have_count(1)  # its one frame, again and again
        expect(page.locator("#strip span")).to_have_css("background-repeat", "repeat-x")
        for told in ("#time", "#first", "#last", "#lanes", "#chapters-list"):
            assert not re.search(r"\d\.\d s", page.locator(told).inner_text()), told


def test_an_address_that_is_typed_dropped_or_pasted_is_sent_as_one(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        bodies: list[str] = []

        def refuse(route: Route) -> None:
            bodies.append(route.request.post_data or "")
            route.fulfill(status=422, json={"code": "url_not_found", "detail": "404", "hint": ""})

        page.route("**/caption", refuse)
        page.fill("#address", "https://example.org/films/dog.mp4")
        page.press("#address", "Enter")
        expect(page.locator("#problem")).to_contain_text("There is no video at that link.")
        page.evaluate(DROP, ["text/uri-list", "https://example.org/films/cat.mp4"])
        expect(visitor.films.first).to_contain_text("cat.mp4")
        assert len(bodies) == 2
        assert all('name="url"' in body and "https://example.org/films/" in body for body in bodies)


def test_text_that_is_no_address_is_told_so(visit: Visit) -> None:
    with visit() as visitor:
        visitor.page.evaluate(DROP, ["text/plain", "a cat on a table"])
        expect(visitor.page.locator("#notice")).to_contain_text("neither a video nor the link of one")
        visitor.page.fill("#address", "dog.mp4")
        visitor.page.press("#address", "Enter")
        expect(visitor.page.locator("#notice")).to_contain_text("such as https://")


def test_videos_are_found_by_whole_words(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        page = visitor.page
        first, second = (visitor.send_and_wait(film).split() for film in (SAMPLE, clips["one.mp4"]))
        page.fill("#films-search", " ".join(word for word in second if word not in first))
        expect(visitor.films).to_have_count(1)
        page.fill("#films-search", "offee")  # a part of a word
        expect(visitor.films).to_have_count(0)
        expect(page.locator("#films")).to_be_visible()
        page.fill("#films-search", "")
        expect(visitor.films).to_have_count(2)


def test_moments_are_found_by_what_they_mean(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send_and_wait(clips["one.mp4"])
        visitor.send(SAMPLE)
        said = visitor.wait_for_caption()
        page.select_option("#compare-choice", "temporal")
        page.click("#compare-one")
        expect(page.locator(".compare-row", has_text="…")).to_have_count(0, timeout=PATIENCE)
        visitor.open(f"f/{visitor.job}")
        page.fill("#films-search", "a mug of espresso")
        moments = page.locator("#films-moments button")
        expect(moments.first).to_contain_text(said)
        expect(moments.first.locator("img")).to_have_js_property("complete", True)
        assert moments.count() <= 2  # both captions of a film are one moment
        assert visitor.find_barriers() == []
        moments.first.click()
        expect(page).to_have_title("coffee.mp4 · Reelword")
        assert visitor.wait_for_caption() == said
        sought = float(page.url.partition("?t=")[2])
        eventually(lambda: abs(visitor.seconds - sought) < 0.2)
        page.route("**/search?*", lambda route: route.fulfill(status=503, json={"code": "search_unanswered"}))
        page.click("#new")
        page.fill("#films-search", said)
        expect(page.locator("#films-found")).to_contain_text("searched by words alone")
        expect(moments).to_have_count(0)
        expect(visitor.films).to_have_count(1)


def test_a_film_is_deleted_unless_that_is_taken_back(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        job, link = f"{visitor.address}/jobs/{visitor.job}", page.url
        page.get_by_role("button", name="Delete coffee.mp4").click()
        expect(page.locator("#examples")).to_be_visible()
        expect(visitor.films).to_have_count(0)
        assert visitor.find_barriers() == []
        page.click("#undo")
        expect(visitor.films).to_have_count(1)
        assert page.request.get(job).json()["state"] == "succeeded"
        with visit() as guest:  # whom the link was sent to
            guest.page.goto(link)
            guest.wait_for_caption()
            guest.page.click("#delete-all")
            expect(guest.page.locator("#examples")).to_be_visible()
            expect(guest.films).to_have_count(1)
            guest.page.get_by_role("button", name="Take off this list: coffee.mp4").click()
            expect(guest.films).to_have_count(0)
        assert page.request.get(job).json()["state"] == "succeeded"
        page.click("#delete-all")
        expect(page.locator("#undo-box")).to_be_hidden(timeout=PATIENCE)
        eventually(lambda: page.request.get(job).json()["state"] == "expired")
        assert page.request.get(f"{job}/video").status == 404
        page.reload()
        expect(visitor.films).to_have_count(0)


def test_a_long_film_has_chapters_to_go_to_to_search_and_to_take_along(
    visit: Visit, clips: dict[str, Path]
) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#options-box summary")
        page.select_option("#o-segments", "shots")
        page.select_option("#o-segment-captioner", "refocus")
        visitor.send(clips["shots.mp4"])
        expect(page.locator("#status")).to_have_text(
            re.compile(r"Shot \d · 0:\d\d of 0:12"), timeout=PATIENCE
        )
        visitor.wait_for_caption()
        chapters = page.locator(".chapter")
        expect(chapters).to_have_count(4)
        expect(page.locator("#chapters-sum")).to_have_text(re.compile(r"^4 shots: \w+, \w+"))
        expect(visitor.films.first).to_contain_text("4 shots: ")
        chapters.nth(2).click()
        expect(chapters.nth(2)).to_have_attribute("aria-current", "true")
        eventually(lambda: abs(visitor.seconds - 7.5) <= 1.5)
        expect(visitor.words.first).to_be_visible()
        said = str(page.locator("#caption").text_content())
        expect(chapters.nth(2)).to_contain_text(said)
        visitor.words.first.click()
        word, linked = visitor.chosen_word.inner_text(), page.url
        page.locator("#place").fill("1")
        expect(chapters.first).to_have_attribute("aria-current", "true")
        expect(chapters.first).to_contain_text(str(page.locator("#caption").text_content()))
        page.fill("#chapters-search", "no such word")
        expect(page.locator(".chapter:visible")).to_have_count(0)
        expect(page.locator("#chapters-found")).to_have_text("no chapters of 4")
        page.fill("#chapters-search", said.split()[-1])
        expect(page.locator(".chapter mark").first).to_be_visible()
        for kind, begins in (("vtt", "WEBVTT"), ("srt", "1\n"), ("csv", "start,")):
            with page.expect_download() as download:
                page.click(f'#chapters-links [data-kind="{kind}"]')
            assert download.value.path().read_text().startswith(begins)
        with page.expect_download() as download:
            page.click('#chapters-links [data-kind="json"]')
        document = json.loads(download.value.path().read_text())
        assert len(document["segments"]) == 4
        assert document["model"]["options"]["segment_captioner"] == "refocus"
    with visit() as other:

        def shorten(route: Route) -> None:
            told = route.fetch().json()
            route.fulfill(json={**told, "parts": [[start / 2, end / 2] for start, end in told["parts"]]})

        other.page.route("**/segments/0/attention", shorten)
        other.page.goto(linked)
        expect(other.chosen_word).to_have_text(word)
        expect(other.page.locator("#caption")).to_have_text(said)
        expect(other.page.locator("#part")).to_be_hidden()
        other.page.locator("#place").fill("1")
        expect(other.page.locator("#part")).to_have_text(re.compile(r"^Captioned from 0\.0 s to 1\.\d s; "))
