"""A job's address shows its caption and picture in a chat, and nothing of it where a key is needed."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import av
import pytest
from PIL import Image

from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, finished, live_api, send
from tests.app.scripted_worker import WORDS, ScriptedWorker


def test_a_link_unfurls_with_caption_and_picture(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    page = location.replace("/jobs/", "/f/")
    answer = api.client.get(f"{page}?w={WORDS[1]}&t=1.0")
    assert f'<meta property="og:title" content="{" ".join(WORDS)}">' in answer.text
    assert f"“{WORDS[1]}”" in answer.text
    assert f"{location}/poster.png?word={WORDS[1]}" in answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_an_address_of_nothing_is_the_page_alone(api: LiveApi, worker: ScriptedWorker) -> None:
    waiting = send(api).headers["location"].replace("/jobs/", "/f/")
    for page in (waiting, "/f/nowhere", "/f/%3Cscript%3E"):
        answer = api.client.get(page)
        assert answer.status_code == 200
        assert "og:image" not in answer.text
        assert answer.text == api.client.get("/").text.replace(' class="is-empty"', "")


def test_where_a_key_is_needed_a_link_tells_nothing(tmp_path: Path, redis_server: RedisServer) -> None:
    settings = Settings(data=tmp_path, redis_url=redis_server.url, namespace="shared", access="keys")
    with live_api(settings) as api:
        plain = api.client.get("/").text
        assert api.client.get(f"/f/{'0' * 32}").text == plain.replace(' class="is-empty"', "")
        assert api.client.get(f"/jobs/{'0' * 32}/poster.png").status_code == 401


def test_a_server_without_pyav_says_that_it_writes_no_mp4(
    api: LiveApi, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = finished(api, worker)
    monkeypatch.setitem(sys.modules, "av", None)
    assert_problem(api.client.get(f"{location}/clip.mp4"), 501, "clip_kind_missing")


def test_a_poster_lights_the_place_of_its_word(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    posters = set()
    for word in ("nothing", *WORDS):
        data = api.client.get(f"{location}/poster.png", params={"word": word}).content
        with Image.open(io.BytesIO(data)) as picture:
            assert picture.size == (1200, 630)
            posters.add(picture.crop((0, 0, 1200, 400)).tobytes())  # above the caption
    assert len(posters) == 1 + len(WORDS)


def test_what_has_no_caption_has_no_poster(api: LiveApi) -> None:
    location = send(api).headers["location"]
    assert_problem(api.client.get(f"{location}/poster.png"), 409, "job_not_finished")


def test_a_clip_shows_each_word_once_and_is_named_after_the_film(
    api: LiveApi, worker: ScriptedWorker
) -> None:
    location = finished(api, worker)
    for kind in ("webp", "gif"):
        answer = api.client.get(f"{location}/clip.{kind}")
        assert answer.headers["content-type"] == f"image/{kind}"
        assert re.fullmatch(rf'inline; filename=".+-clip\.{kind}"', answer.headers["content-disposition"])
        with Image.open(io.BytesIO(answer.content)) as picture:
            assert picture.size == (600, 315)
            assert getattr(picture, "n_frames", 1) > 1
        assert api.client.get(f"{location}/clip.{kind}").content == answer.content
    answer = api.client.get(f"{location}/clip.mp4")
    assert answer.headers["content-type"] == "video/mp4"
    with av.open(io.BytesIO(answer.content)) as clip:
        stream = clip.streams.video[0]
        assert (stream.codec_context.name, stream.width, stream.height) == ("h264", 1200, 630)
        assert 30 <= stream.frames <= 60  # ten a second
    for part in ("attention.png", "captions.vtt", "poster.png"):
        assert "filename=" in api.client.get(f"{location}/{part}").headers["content-disposition"]


def test_subtitles_for_karaoke_time_the_words(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    plain, timed = (api.client.get(f"{location}/captions.vtt{q}").text for q in ("", "?karaoke=true"))
    assert "<00:00:" in timed
    assert re.sub(r"<[0-9:.]+>", "", timed) == plain
    assert "<" not in plain
