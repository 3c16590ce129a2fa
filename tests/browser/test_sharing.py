"""A film is taken along: as a link that leads back to its word, as files; and it is judged."""

from __future__ import annotations

import io
import json
import re

import av
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.films import SAMPLE


def test_a_link_leads_to_the_film_the_word_and_the_moment(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SAMPLE)
        caption = visitor.wait_for_caption()
        visitor.words.last.click()
        word, address, seconds = visitor.chosen_word.inner_text(), page.url, visitor.seconds
        assert address.startswith(f"{visitor.address}/f/")
        assert f"w={word}" in address
        unfurled = page.request.get(address).text()
        assert f'<meta property="og:title" content="{caption}">' in unfurled
        [picture] = re.findall(r'property="og:image" content="([^"]*)"', unfurled)
        with Image.open(io.BytesIO(page.request.get(picture).body())) as poster:
            assert poster.size == (1200, 630)
    with visit() as other:
        other.page.goto(address)
        assert other.wait_for_caption() == caption
        expect(other.chosen_word).to_have_text(word)
        assert abs(other.seconds - seconds) < 0.1


def test_poster_clip_and_subtitles_are_saved_under_the_films_name(visit: Visit) -> None:
    with visit(moving=True) as visitor:
        page = visitor.page
        expect(page.locator("#share")).to_be_visible()
        visitor.words.first.click()
        with page.expect_download() as download:
            page.click("#save-poster")
        with Image.open(download.value.path()) as poster:
            assert poster.size == (1200, 630)
        page.click("#share-more summary")
        with page.expect_download() as download:
            page.click("#save-words")
        assert re.search(r"-->.*\n.*<\d\d:\d\d:\d\d\.\d{3}>", download.value.path().read_text())
        with page.expect_download(timeout=60_000) as download:
            page.click("#save-clip")
        assert re.search(r"-clip\.(mp4|webm)$", download.value.suggested_filename)
        with av.open(download.value.path()) as clip:
            assert (clip.streams.video[0].width, clip.streams.video[0].height) == (1280, 720)
            assert sum(1 for _ in clip.decode(video=0)) > 5


def test_a_clip_of_ones_own_video_is_the_services(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        with page.expect_download(timeout=60_000) as download:
            page.click("#save-clip")
        assert download.value.suggested_filename == "coffee-clip.mp4"
        with av.open(download.value.path()) as clip:
            assert (clip.streams.video[0].width, clip.streams.video[0].height) == (1200, 630)
        page.route("**/clip.mp4", lambda route: route.fulfill(status=501, json={"code": "clip_kind_missing"}))
        with page.expect_download(timeout=60_000) as download:
            page.click("#save-clip")
        with Image.open(download.value.path()) as clip:
            assert (clip.format, clip.size) == ("WEBP", (600, 315))


def test_a_visitor_says_what_the_caption_should_be(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        visitor.send(SAMPLE)
        caption = visitor.wait_for_caption()
        page.get_by_role("button", name="Wrong").click()
        expect(page.locator("#correct-caption")).to_have_value(caption)
        page.fill("#correct-caption", "a car leaves a car park")
        page.get_by_role("button", name="Keep").click()
        expect(page.locator("#doubt-said")).to_contain_text("Thank you")
        lines = page.request.get(f"{visitor.address}/verdicts").text().splitlines()
        said = next(line for line in map(json.loads, lines) if line["job"] == visitor.job)
        assert (said["verdict"], said["correction"]) == ("wrong", "a car leaves a car park")


def test_the_request_is_shown_as_code(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.click("#options-box summary")
        page.fill("#o-beam", "3")
        visitor.send(SAMPLE)
        visitor.wait_for_caption()
        expect(page.locator("#code")).to_contain_text("-F 'beam_size=3'")
        page.click("#code-python")
        expect(page.locator("#code")).to_contain_text('open("coffee.mp4", "rb")')
