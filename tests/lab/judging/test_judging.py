"""Judging captions by eye: sheets, marks that stay, the page's routes, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from app.errors import UsageError
from app.jobs.captioner_choice import clips_judged, default_captioner
from app.jobs.captioner_info import CaptionerInfo
from app.pipeline.installed_captioners import pretrained_captioners, pretrained_infos
from app.settings import Settings
from lab.judging.command import write_scores
from lab.judging.page import judging_app
from lab.judging.session import (
    STATE,
    JudgingSession,
    Score,
    Seconds,
    WrittenCaption,
    card_scores,
    draw_sheet,
    score_rows,
    unjudged,
)
from models.pretrained.installed import ModelFacts


@pytest.fixture
def session(tmp_path: Path) -> JudgingSession:
    session = JudgingSession(tmp_path)
    for number in range(2):
        frames = np.full((8, 48, 64, 3), 100 + number, np.uint8)
        texts = {"stats": "a dog runs", "g2l": "a cat", "refocus": "a dog runs"}
        captions = {
            name: WrittenCaption(text=text, feature_seconds=number, caption_seconds=0.5)
            for name, text in texts.items()
        }
        session.add(f"clip-{number}.mp4", frames, captions)
    return session


def test_a_caption_of_several_is_judged_once(session: JudgingSession) -> None:
    captions = session.clips[0].captions
    assert [(each.text, each.captioners) for each in captions] == [
        ("a cat", ("g2l",)),
        ("a dog runs", ("stats", "refocus")),
    ]


def test_marks_stay_and_become_scores(session: JudgingSession, tmp_path: Path) -> None:
    session.mark(0, 1, "right")
    session.mark(0, 0, "wrong")
    session.mark(1, 1, "partly")
    again = JudgingSession(tmp_path)
    assert again.scores() == {
        "refocus": Score(1, 1, 0),
        "stats": Score(1, 1, 0),
        "g2l": Score(0, 0, 1),
    }
    assert list(unjudged(again.clips)) == [1]
    assert again.seconds["stats"] == Seconds(features=1.0, captions=1.0, clips=2)
    again.mark(0, 1, None)
    assert JudgingSession(tmp_path).scores()["stats"] == Score(0, 1, 0)
    assert score_rows({"g2l": Score(1, 1, 2)}) == [("g2l", "1", "1", "2", "4", "38")]


def test_a_card_with_the_scores_takes_part_in_the_choice_of_the_default(session: JudgingSession) -> None:
    scores = card_scores(Score(right=3, partly=2, wrong=5), clips=10)
    info = CaptionerInfo(name="git", weights_sha256="", features={}, scores=scores)
    assert clips_judged(info) == 40.0


def test_the_sheet_shows_every_frame_in_its_place() -> None:
    frames = np.zeros((6, 30, 40, 3), np.uint8)
    frames[5] = 255
    sheet = np.asarray(draw_sheet(frames))
    assert sheet.shape == (480, 1280, 3)
    assert sheet[360, 480].min() > 250
    assert sheet[360, 160].max() < 50
    assert sheet[120, 480].max() < 50


def test_the_page_marks_and_tells_who_wrote_when_a_clip_is_done(
    session: JudgingSession, tmp_path: Path
) -> None:
    with TestClient(judging_app(session)) as client:
        assert "Judge captions" in client.get("/").text
        with Image.open(tmp_path / "sheets/0001.jpg") as sheet:
            assert sheet.size == (1280, 480)
        assert client.get("/sheets/1").headers["content-type"] == "image/jpeg"
        first = client.get("/clips").json()[0]
        assert [each["captioners"] for each in first["captions"]] == [None, None]
        client.post("/marks", json={"clip": 0, "caption": 0, "mark": "partly"})
        done = client.post("/marks", json={"clip": 0, "caption": 1, "mark": "right"}).json()
        assert [each["captioners"] for each in done["captions"]] == [["g2l"], ["stats", "refocus"]]
    saved = json.loads((tmp_path / STATE).read_text())
    assert [each["mark"] for each in saved["clips"][0]["captions"]] == ["partly", "right"]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"clip": 9, "caption": 0, "mark": "right"}, 404),
        ({"clip": 0, "caption": -1, "mark": "right"}, 404),
        ({"clip": 0, "caption": 0, "mark": "fine"}, 422),
    ],
)
def test_marks_that_mean_nothing_change_nothing(
    session: JudgingSession, given: dict[str, object], status: int
) -> None:
    before = session.clips
    with TestClient(judging_app(session)) as client:
        assert client.post("/marks", json=given).status_code == status
        assert client.get("/sheets/9").status_code == 404
        assert client.get("/clips", headers={"host": "evil.example"}).status_code == 400
        whole = json.dumps({"clip": 0, "caption": 0, "mark": "right"})
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "",
        ):  # that other sites' pages may send
            assert client.post("/marks", content=whole, headers={"content-type": kind}).status_code == 422
    assert session.clips == before


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text("[]")
    with pytest.raises(UsageError, match="choose another --out"):
        JudgingSession(tmp_path)


def test_cards_get_marks_when_all_are_given_and_the_default_follows(
    session: JudgingSession, tmp_path: Path
) -> None:
    settings = Settings(data=tmp_path / "data", weights=tmp_path / "none")
    source = tmp_path / "model"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).write_text("{}")
    facts = ModelFacts(family="git", architecture="GitForCausalLM", parameters=1, memory=1)
    installed = pretrained_captioners(settings)
    installed.add(str(source), lambda _: facts, name="g2l")
    with pytest.raises(UsageError, match="2 clips have captions without a mark"):
        write_scores(session, settings)
    for clip in range(2):
        for caption in range(2):
            session.mark(clip, caption, "right")
    write_scores(session, settings)
    card = installed.card("g2l")
    assert card.scores == {"2 clips judged by eye": {"right": 2, "partly": 0, "wrong": 0, "n": 2}}
    assert card.speed is not None
    assert (card.speed.feature_seconds, card.speed.caption_seconds) == (0.5, 0.5)
    assert default_captioner(pretrained_infos(settings)) == "g2l"


def test_what_people_said_on_the_page_counts_beside_the_marks(session: JudgingSession) -> None:
    def line(file: str, caption: str, verdict: str) -> str:
        said = {"job": "0", "file": file, "captioner": "stats", "caption": caption, "time": 1.0}
        return json.dumps({**said, "verdict": verdict})

    lines = [line("clip-0.mp4", "a dog runs", "wrong"), line("clip-0.mp4", "a dog runs", "right")]
    session.take_verdicts([*lines, "", line("other.mp4", "a bird", "partly")])
    scores = session.scores()
    assert scores["stats"] == Score(right=1, partly=1, wrong=0)
    assert scores["refocus"] == Score(right=1, partly=0, wrong=0)
    assert [clip.name for clip in JudgingSession(session.folder).clips][-1] == "other.mp4"
    with pytest.raises(UsageError, match="verdict"):
        session.take_verdicts(["no JSON"])
