"""Waiting is told truthfully, and what goes wrong is said in words, with what to do."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from app.access.keys import make_key
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import LiveApi, live_api
from tests.app.serve.test_supervisor import Served
from tests.browser.conftest import Visit
from tests.browser.films import SAMPLE
from tests.browser.visitor import PATIENCE, Visitor, visiting

QUEUED: dict[str, Any] = {
    "id": "0" * 32, "state": "queued", "stage": None, "progress": 0, "filename": "one.mp4", "warnings": [],
    "media": None, "sampled": None, "segments": None, "urls": {"events": None, "video": None},
}  # fmt: skip
FOR_OPERATORS = re.compile(r"REELWORD_|mov,mp4|bytes|curl|GET /")


def show_job(visitor: Visitor, **members: Any) -> None:
    """Lets the service say of a job what a test needs."""

    def answer(route: Route) -> None:
        route.fulfill(json={**QUEUED, **members})

    visitor.page.route(re.compile(r"/jobs/0{32}$"), answer)
    visitor.open(f"#{QUEUED['id']}")
    visitor.page.reload()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"place": 1, "workers": 1, "estimated_seconds": 8}, "Next in line; it begins in about 8 seconds"),
        (
            {"place": 4, "workers": 1, "estimated_seconds": 180},
            "3 before it in line; it begins in about 3 min",
        ),
        ({"place": 1, "workers": 0, "estimated_seconds": None}, "No captioner is connected at the moment."),
        ({}, "Waiting for its turn"),
        ({"state": "running", "stage": "fetch", "progress": 0.1}, "Fetching the video from its link"),
        ({"state": "running", "stage": "extract", "progress": 0.5}, "Looking at its frames"),
    ],
)
def test_the_status_says_what_the_job_waits_for(visit: Visit, members: dict[str, Any], said: str) -> None:
    with visit() as visitor:
        show_job(visitor, **members)
        expect(visitor.page.locator("#status")).to_contain_text(said)
        assert visitor.find_barriers() == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            {"code": "worker_lost", "message": "x", "hint": "Look at the worker's log"},
            "The machine that looked",
        ),
        ({"code": "new_kind", "message": "It is so.", "hint": "Raise REELWORD_X."}, "It is so."),
    ],
)
def test_a_failure_is_said_without_what_only_operators_know(
    visit: Visit, error: dict[str, str], said: str
) -> None:
    with visit() as visitor:
        show_job(visitor, state="failed", error=error)
        expect(visitor.page.locator("#problem")).to_contain_text(said)
        assert not FOR_OPERATORS.search(visitor.page.locator("body").inner_text())


def test_no_captioner_at_all_is_told_before_anything_is_sent(visit: Visit) -> None:
    with visit() as visitor:
        visitor.page.route("**/models", lambda route: route.fulfill(json={"captioners": [], "default": None}))
        visitor.page.reload()
        expect(visitor.page.locator("#notice")).to_contain_text("No captioner is connected")


def test_a_file_that_is_no_film_is_refused_in_words(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        visitor.send(clips["notes.mp4"])
        expect(visitor.page.locator("#problem")).to_be_visible(timeout=PATIENCE)
        expect(visitor.page.locator("#problem-todo")).not_to_have_text("")
        assert not FOR_OPERATORS.search(visitor.page.locator("body").inner_text())
        for empty in ("#screen", "#controls"):
            expect(visitor.page.locator(empty)).to_be_hidden()


def test_what_was_refused_and_dead_links_leave_the_list_once_they_were_read(
    visit: Visit, clips: dict[str, Path]
) -> None:
    with visit() as visitor:
        page = visitor.page
        for name in ("empty.mp4", "notes.mp4"):
            visitor.send(clips[name])
            expect(page).to_have_title(f"{name} · Reelword")
            expect(page.locator("#problem")).to_be_visible(timeout=PATIENCE)
            expect(page.locator("#again")).to_be_hidden()
        visitor.open("f/hello")
        expect(page.locator("#problem-what")).to_contain_text("not known here any more")
        page.click("#new")
        expect(page.locator("#examples")).to_be_visible()
        expect(page.locator(".film-row", has_text="empty.mp4")).to_have_count(0)
        expect(page.locator(".film-row", has_text="A video")).to_have_count(0)


def test_what_cannot_be_captioned_is_told_before_it_is_sent(visit: Visit, tmp_path: Path) -> None:
    with visit() as visitor:
        page = visitor.page
        sent: list[Route] = []
        page.route("**/caption", lambda route: sent.append(route))
        song = tmp_path / "song.mp3"
        song.write_bytes(b"ID3")
        visitor.send(song)
        expect(page.locator("#notice")).to_have_text("song.mp3 is no video.")
        page.fill("#address", "youtube.com/watch?v=x")
        page.press("#address", "Enter")
        expect(page.locator("#notice")).to_contain_text("the link of a page with a video on it")
        page.click("#options-box summary")
        page.fill("#o-captions", "9")
        page.fill("#o-beam", "2")
        page.press("#o-beam", "Tab")
        visitor.send(SAMPLE)
        expect(page.locator("#notice")).to_have_text("Captions: at most as many as beams, 2.")
        assert sent == []
        page.reload()
        expect(page.locator("#o-beam")).to_have_value("2")


def test_a_film_that_is_too_large_is_told_how_large_it_may_be(visit: Visit, clips: dict[str, Path]) -> None:
    problem = {
        "code": "upload_too_large",
        "detail": "It has more than the 512,000,000 bytes that …",
        "hint": "",
    }
    with visit() as visitor:
        visitor.page.route("**/caption", lambda route: route.fulfill(status=413, json=problem))
        visitor.send(clips["one.mp4"])
        expect(visitor.page.locator("#problem-what")).to_contain_text("at most 512 MB")
        expect(visitor.page.locator("#again")).to_be_hidden()  # it would not become smaller


def test_a_film_that_found_no_room_is_sent_again_at_one_click(visit: Visit, clips: dict[str, Path]) -> None:
    problem = {"code": "backlog_full", "detail": "1000 jobs are waiting already.", "hint": ""}
    with visit() as visitor:
        visitor.page.route("**/caption", lambda route: route.fulfill(status=503, json=problem))
        visitor.send(clips["one.mp4"])
        expect(visitor.page.locator("#problem-what")).to_have_text("Too many videos are waiting already.")
        visitor.page.unroute("**/caption")
        visitor.page.click("#again")
        visitor.wait_for_caption()
        expect(visitor.films).to_have_count(1)


def test_an_upload_that_nothing_answers_begins_anew_by_itself(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        keys: list[str] = []
        back: list[bool] = []

        def answer(route: Route) -> None:
            keys.append(route.request.headers["idempotency-key"])
            if back:
                route.continue_()
            else:
                route.abort()

        page.route("**/caption", answer)
        visitor.send(SAMPLE)
        expect(page.locator("#status")).to_contain_text("sent again by itself", timeout=PATIENCE)
        back.append(True)
        visitor.wait_for_caption()
        assert len(set(keys)) == 1
        expect(visitor.films).to_have_count(1)


def test_a_large_film_goes_on_where_the_connection_broke(visit: Visit, tmp_path: Path) -> None:
    room = 9 * 2**20  # of a box that players pass over, at the end of a film
    film = tmp_path / "large film.mp4"
    film.write_bytes(SAMPLE.read_bytes() + room.to_bytes(4, "big") + b"free" + bytes(room - 8))
    data, half, offsets = film.read_bytes(), film.stat().st_size // 2, []
    with visit() as visitor:

        def answer(route: Route) -> None:
            """Lets one half of the first request through."""
            if route.request.method != "PATCH":
                return route.continue_()
            offsets.append(int(route.request.headers["upload-offset"]))
            if offsets[-1]:
                return route.continue_()
            names = ("tus-resumable", "upload-offset", "content-type")
            headers = {name: route.request.headers[name] for name in names}
            httpx.patch(route.request.url, content=data[:half], headers=headers, timeout=60)
            return route.abort()

        visitor.page.route("**/files/*", answer)
        visitor.send_and_wait(film)
        assert offsets == [0, half]
        name = visitor.page.request.get(f"{visitor.address}/jobs/{visitor.job}").json()["filename"]
        assert name == "large film.mp4"
        video = visitor.page.request.get(f"{visitor.address}/jobs/{visitor.job}/video")
        assert video.body() == data


def test_who_asks_too_often_is_told_for_how_long(visit: Visit) -> None:
    problem = {"code": "rate_limited", "detail": "x", "hint": ""}
    with visit() as visitor:
        answer = {"status": 429, "json": problem, "headers": {"Retry-After": "12"}}
        visitor.page.route("**/caption", lambda route: route.fulfill(**answer))
        visitor.send(SAMPLE)
        expect(visitor.page.locator("#problem-todo")).to_have_text("Go on in 12 s.")


def test_the_caption_appears_as_it_is_written(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        page.evaluate(
            """() => { window.seen = []; const caption = document.getElementById("caption");
            const note = () => window.seen.push(caption.textContent);
            new MutationObserver(note).observe(caption, {childList: true}); }"""
        )
        visitor.send(SAMPLE)
        said = visitor.wait_for_caption()
        seen = page.evaluate("window.seen.slice(window.seen.lastIndexOf('') + 1)")
        assert seen[-1] == said
        assert len(seen[0].split()) < len(said.split())
        print("written:", seen)


def test_a_film_can_be_cancelled(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        visitor.page.route("**/caption", lambda route: None)
        visitor.send(clips["one.mp4"])
        visitor.page.get_by_role("button", name="Cancel", exact=True).click()
        expect(visitor.films).to_have_count(0)
        expect(visitor.page.locator("#choose")).to_be_focused()


def test_the_caption_is_announced_once_and_waits_are_named(visit: Visit) -> None:
    with visit() as visitor:
        visitor.send(SAMPLE)
        caption = visitor.wait_for_caption()
        announced = visitor.page.locator("#announced")
        expect(announced).to_have_text(f"Caption of coffee.mp4: {caption}")
        expect(announced).to_have_attribute("aria-live", "polite")
        expect(visitor.page.get_by_role("heading", name=f"Caption: {caption}")).to_be_attached()


def test_a_job_is_followed_by_its_events(visit: Visit, clips: dict[str, Path]) -> None:
    with visit() as visitor:
        asked: list[str] = []
        visitor.page.on("request", lambda request: asked.append(request.url))
        visitor.page.click("#options-box summary")
        visitor.page.select_option("#o-segments", "shots")
        visitor.send_and_wait(clips["shots.mp4"])
        assert any(url.endswith("/events") for url in asked)
        assert sum(bool(re.search(r"/jobs/[0-9a-f]{32}$", url)) for url in asked) <= 4


def test_enter_opens_the_chooser(visit: Visit) -> None:
    with visit() as visitor:
        visitor.page.locator("#choose").focus()
        with visitor.page.expect_file_chooser() as chooser:
            visitor.page.keyboard.press("Enter")
        assert chooser.value.is_multiple()


def test_a_key_is_asked_for_where_one_is_needed_and_what_was_begun_goes_on(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.page
        keys: list[str] = []

        def lock(route: Route) -> None:
            if keys and "rw_right" in keys[-1]:
                route.continue_()
            else:
                route.fulfill(status=401, json={"code": "key_missing", "detail": "No key.", "hint": ""})

        def take(route: Route) -> None:
            keys.append(route.request.post_data or "")
            good = "rw_right" in keys[-1]
            route.fulfill(status=200 if good else 401, json={"code": "key_wrong"})

        page.route("**/models", lock)
        page.route("**/caption", lock)
        page.route("**/session", take)
        page.reload()
        expect(visitor.words.first).to_be_visible()  # the examples need none
        expect(page.get_by_role("dialog")).to_be_hidden()
        visitor.send(SAMPLE)
        expect(page.get_by_role("dialog")).to_be_visible()
        assert visitor.find_barriers() == []
        page.click("#key-show")
        expect(page.locator("#key")).to_have_attribute("type", "text")
        page.fill("#key", "rw_wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-said")).to_contain_text("not accepted")
        page.fill("#key", "rw_right")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.locator("#o-captioner option").nth(3)).to_be_attached()
        expect(page.get_by_role("button", name="Forget my key")).to_be_visible()
        visitor.wait_for_caption()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[LiveApi]:
    """A service that needs a key, and has no worker."""
    with RedisServer(tmp_path / "redis") as redis:
        settings = Settings(data=tmp_path, redis_url=redis.url, namespace="locked", access="keys")
        with live_api(settings) as running:
            yield running


def test_a_locked_service_is_opened_by_a_key_and_one_without_workers_says_so(
    browser: Browser, locked: LiveApi, clips: dict[str, Path]
) -> None:
    key, token = make_key("ada", scopes=("read", "write"))
    locked.service.keys.store.add(key)
    address = f"http://127.0.0.1:{locked.port}"
    with visiting(browser, address, (1280, 800), "light", touch=False, moving=False) as visitor:
        page = visitor.page
        visitor.send(clips["one.mp4"])
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_role("button", name="Not now").click()
        expect(page.locator("#problem-what")).to_have_text("This service asks for a key.")
        visitor.page.click("#again")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.fill("#key", token)
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_contain_text("No captioner is connected at the moment.")
        page.reload()
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.locator("#status")).to_contain_text("No captioner is connected at the moment.")
        expect(visitor.films.first).to_contain_text("one.mp4")
        page.get_by_role("button", name="Cancel", exact=True).click()
        expect(page.locator("#problem-what")).to_have_text("Cancelled.")
        expect(page.locator("#new")).to_be_focused()
        page.get_by_role("button", name="Forget my key").click()
        expect(page.get_by_role("dialog")).to_be_visible()  # for the video that the address names


def test_a_service_that_goes_away_is_told_and_found_again(visit: Visit, service: Served) -> None:
    with visit() as visitor:
        page = visitor.page
        page.route("**/jobs/*/events", lambda route: route.abort())
        gone: list[bool] = []

        def away(route: Route) -> None:
            gone.append(True)
            if len(gone) < 4:
                route.abort()
            else:
                route.continue_()

        page.route(re.compile(r"/jobs/[0-9a-f]{32}$"), away)
        visitor.send(SAMPLE)
        expect(page.locator("#status")).to_contain_text(
            "The connection is lost; trying again", timeout=PATIENCE
        )
        assert len(visitor.wait_for_caption().split()) > 2
        for pid in service.pids("app worker"):  # a worker that dies costs the film nothing
            os.kill(pid, signal.SIGKILL)
        visitor.send(SAMPLE)
        expect(page.locator("#film")).to_be_visible()
        expect(page.locator("#problem")).to_be_hidden()
        visitor.wait_for_caption()
