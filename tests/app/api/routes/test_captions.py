"""A film's segments over HTTP: in the job while it runs, and as files for players and spreadsheets."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
import webvtt

from app.documents.segments import FilmDocument
from app.jobs.job_store import Claim
from app.jobs.keeping.kept_segments import PART, KeptSegments, SegmentFolder
from extractors.media.errors import TooDamaged
from tests.app.live_api import LiveApi, assert_problem, finished, send
from tests.app.scripted_worker import MOMENT_OF_WORD, TIMES, WORDS, ScriptedWorker, answer

KINDS = {
    "vtt": "text/vtt; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "coco.json": "application/json",
    "fiftyone.json": "application/json",
    "labelstudio.json": "application/json",
    "chapters.xml": "application/xml",
}


def segment(number: int, caption: str | None = None) -> dict[str, Any]:
    text = caption or f"scene {number} <b>& so on"
    words = [{"word": word, "logprob": -0.1} for word in text.split()]
    return {
        "start": 2.5 * number, "end": 2.5 * (number + 1), "representative": 2.5 * number + 1.0,
        "caption": text, "captions": [{"text": text, "score": -0.5, "words": words}],
        "sampled": [2.5 * number], "merged": 1,
    }  # fmt: skip


def begin(worker: ScriptedWorker, claim: Claim, count: int) -> SegmentFolder:
    """So many segments of a film are done, and the record says so."""
    folder = SegmentFolder(worker.blobs, claim.results, "basis")
    for number in range(count):
        add(folder, number)
    tell(worker, claim, folder, count)
    return folder


def add(
    folder: SegmentFolder, number: int, frame: bytes = b"a picture", attention: bytes | None = None
) -> None:
    folder.show(frame, attention)
    folder.hold(segment(number), {})
    folder.close()


def tell(worker: ScriptedWorker, claim: Claim, folder: SegmentFolder, done: int) -> None:
    kept = {"folder": folder.folder, "done": done}
    assert worker.jobs.beat(claim, "caption", 0.4, {"segments": kept}) == "go"


@pytest.fixture
def running(api: LiveApi, worker: ScriptedWorker) -> tuple[str, Claim]:
    location = send(api, segments="shots").headers["location"]
    return location, worker.take()


def test_the_option_stands_in_the_record(api: LiveApi, worker: ScriptedWorker) -> None:
    send(api, segments="12.50")
    assert worker.take().job.options.segments == "12.5"
    body = assert_problem(send(api, segments="scenes"), 422, "invalid_option")
    assert "shots, none, or a number of seconds" in body["detail"]


def test_a_running_job_lists_its_finished_segments(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim]
) -> None:
    location, claim = running
    assert api.client.get(location).json()["segments"] is None
    folder = begin(worker, claim, 2)
    assert api.client.get(location).json()["segments"] == [
        {"start": 0.0, "end": 2.5, "representative": 1.0, "caption": "scene 0 <b>& so on", "score": -0.5},
        {"start": 2.5, "end": 5.0, "representative": 3.5, "caption": "scene 1 <b>& so on", "score": -0.5},
    ]
    add(folder, 2)  # the record knows nothing of it yet
    assert len(api.client.get(location).json()["segments"]) == 2


def test_many_segments_are_read_in_their_order(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim]
) -> None:
    location, claim = running
    folder = begin(worker, claim, 2 * PART + 1)
    starts = [each["start"] for each in api.client.get(location).json()["segments"]]
    assert starts == [2.5 * number for number in range(2 * PART + 1)]
    tell(worker, claim, folder, PART)
    assert len(api.client.get(location).json()["segments"]) == PART


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_their_types_and_are_fresh_while_the_job_runs(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim], kind: str
) -> None:
    location, claim = running
    begin(worker, claim, 2)
    response = api.client.get(f"{location}/captions.{kind}")
    assert (response.status_code, response.headers["content-type"]) == (200, KINDS[kind])
    assert response.headers["cache-control"] == "no-store"
    assert response.text.count("scene") >= 2


def test_subtitles_say_what_the_segments_say(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim]
) -> None:
    location, claim = running
    begin(worker, claim, 3)
    cues = webvtt.from_string(api.client.get(f"{location}/captions.vtt").text).captions
    assert [(cue.start, cue.end) for cue in cues][1] == ("00:00:02.500", "00:00:05.000")
    assert cues[1].raw_text == "scene 1 &lt;b&gt;&amp; so on"
    rows = list(csv.DictReader(io.StringIO(api.client.get(f"{location}/captions.csv").text)))
    assert [row["caption"] for row in rows] == [f"scene {number} <b>& so on" for number in range(3)]
    whole = FilmDocument.model_validate_json(api.client.get(f"{location}/captions.json").text)
    assert (whole.file, len(whole.segments[2].captions[0].words)) == ("clip.mp4", 5)


def test_a_finished_film_keeps_its_segments_and_its_line(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim]
) -> None:
    location, claim = running
    folder = begin(worker, claim, 2)
    assert worker.jobs.succeed(claim, {**answer(), "segments": vars(folder.kept)})
    response = api.client.get(f"{location}/captions.json")
    whole = FilmDocument.model_validate_json(response.text)
    assert (whole.summary, len(whole.segments)) == ("a dog runs", 2)
    assert "immutable" in response.headers["cache-control"]
    api.client.delete(location)
    assert api.client.get(location).json()["segments"] is None
    assert_problem(api.client.get(f"{location}/captions.vtt"), 404, "no_captions")


def test_a_film_that_failed_shows_all_that_was_done(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim]
) -> None:
    """Also what the record was not told of any more, and what was waiting for the next one to join it."""
    location, claim = running
    folder = begin(worker, claim, 2)
    add(folder, 2)
    folder.show(b"the last", b'{"words": []}')
    folder.hold(segment(3), {})
    tell(worker, claim, folder, 2)
    assert len(api.client.get(location).json()["segments"]) == 2
    kept = {"segments": vars(KeptSegments(folder.folder, 2))}
    assert worker.jobs.fail(claim, TooDamaged("The file ends in noise."), kept)
    document = api.client.get(location).json()
    assert (document["state"], document["caption"], document["error"]["code"]) == (
        "failed",
        None,
        "too_damaged",
    )
    assert [each["caption"][:7] for each in document["segments"]] == [
        f"scene {number}" for number in range(4)
    ]
    assert len(webvtt.from_string(api.client.get(f"{location}/captions.vtt").text).captions) == 4
    assert api.client.get(f"{location}/segments/3/frame.jpg").content == b"the last"
    assert api.client.get(f"{location}/segments/3/attention").json() == {"words": []}
    api.client.delete(location)
    assert api.client.get(location).json()["segments"] is None
    assert_problem(api.client.get(f"{location}/captions.vtt"), 404, "no_captions")


def test_a_film_that_failed_before_its_first_segment_has_none(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim]
) -> None:
    location, claim = running
    folder = begin(worker, claim, 0)
    assert worker.jobs.fail(claim, TooDamaged("The file is noise."), {"segments": vars(folder.kept)})
    assert api.client.get(location).json()["segments"] is None
    assert_problem(api.client.get(f"{location}/captions.vtt"), 404, "no_captions")


def test_a_job_without_segments_is_one_cue(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    (cue,) = webvtt.from_string(api.client.get(f"{location}/captions.vtt").text).captions
    assert (cue.start, cue.end, cue.text) == ("00:00:00.000", "00:00:04.000", "a dog runs")
    assert api.client.get(location).json()["segments"] is None


def test_moments_of_words_are_written_where_a_format_has_them(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    response = api.client.get(f"{location}/captions.coco.json")
    assert 'filename="clip.coco.json"' in response.headers["content-disposition"]
    (annotation,) = response.json()["annotations"]
    assert [(each["word"], each["start"], each["end"]) for each in annotation["words"]] == [
        (word, *TIMES[moment]) for word, moment in zip(WORDS, MOMENT_OF_WORD, strict=True)
    ]
    (segment,) = api.client.get(f"{location}/captions.json").json()["segments"]
    assert segment["words"] == annotation["words"]


def test_there_are_no_captions_before_the_first_segment(
    api: LiveApi, running: tuple[str, Claim], worker: ScriptedWorker
) -> None:
    location, claim = running
    assert_problem(api.client.get(f"{location}/captions.srt"), 409, "job_not_finished")
    begin(worker, claim, 1)
    worker.jobs.cancel(claim.job.id)
    worker.jobs.stop(claim)
    body = assert_problem(api.client.get(f"{location}/captions.srt"), 404, "no_captions")
    assert "been cancelled" in body["detail"]
    assert_problem(api.client.get("/jobs/0/captions.vtt"), 404, "unknown_job")
    assert_problem(api.client.get(f"{location}/captions.doc"), 422, "invalid_request")


def test_each_segment_has_its_attention_and_its_frame(
    api: LiveApi, worker: ScriptedWorker, running: tuple[str, Claim]
) -> None:
    location, claim = running
    folder = begin(worker, claim, 1)
    add(folder, 1, b"another", b'{"words": ["scene"]}')
    tell(worker, claim, folder, 2)
    assert api.client.get(f"{location}/segments/1/attention").json() == {"words": ["scene"]}
    assert_problem(api.client.get(f"{location}/segments/0/attention"), 404, "no_attention")
    assert_problem(api.client.get(f"{location}/segments/2/attention"), 404, "unknown_segment")
    frame = api.client.get(f"{location}/segments/1/frame.jpg")
    assert (frame.content, frame.headers["content-type"]) == (b"another", "image/jpeg")
    assert_problem(api.client.get(f"{location}/segments/2/frame.jpg"), 404, "unknown_segment")
