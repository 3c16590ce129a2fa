"""The file of a job is served while it is kept, whole or in part, from a folder and from an object store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.api.refusals import RangeNotSatisfied
from app.api.routes.jobs import disposition
from app.api.routes.video import HEAD_BYTES, media_type, requested_part
from app.errors import EngineCrashed
from app.jobs.job import Submission
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, finished, live_api, send
from tests.app.scripted_worker import ScriptedWorker

MP4 = b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isomiso2" + bytes(range(256)) * 4


@pytest.fixture(params=["folder", "object store"])
def served(request: pytest.FixtureRequest, settings: Settings) -> Iterator[LiveApi]:
    url = None if request.param == "folder" else f"memory://{settings.namespace}"
    with live_api(settings.model_copy(update={"blobs": url})) as running:
        yield running


def test_a_video_is_served_whole(served: LiveApi) -> None:
    response = served.client.get(f"{send(served, MP4).headers['location']}/video")
    assert (response.status_code, response.content) == (200, MP4)
    headers = response.headers
    assert headers["content-type"] == "video/mp4"
    assert headers["content-length"] == str(len(MP4))
    assert headers["accept-ranges"] == "bytes"
    assert headers["content-disposition"] == 'inline; filename="clip.mp4"'
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=100-", 100, len(MP4)), ("bytes=-7", len(MP4) - 7, len(MP4))],
)
def test_a_part_is_served(served: LiveApi, wanted: str, start: int, end: int) -> None:
    address = f"{send(served, MP4).headers['location']}/video"
    response = served.client.get(address, headers={"Range": wanted})
    assert (response.status_code, response.content) == (206, MP4[start:end])
    assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{len(MP4)}"
    assert response.headers["content-length"] == str(end - start)


def test_bytes_that_are_not_there_are_refused(served: LiveApi) -> None:
    address = f"{send(served, MP4).headers['location']}/video"
    response = served.client.get(address, headers={"Range": f"bytes={len(MP4)}-"})
    assert_problem(response, 416, "range_not_satisfied")
    assert response.headers["content-range"] == f"bytes */{len(MP4)}"


def test_a_part_of_another_file_is_not_sent(served: LiveApi) -> None:
    address = f"{send(served, MP4).headers['location']}/video"
    tag = served.client.get(address).headers["etag"]
    for sent, status in ((tag, 206), ('"another"', 200)):
        response = served.client.get(address, headers={"Range": "bytes=0-9", "If-Range": sent})
        assert response.status_code == status


def test_a_file_that_is_known_is_not_sent_again(served: LiveApi) -> None:
    address = f"{send(served, MP4).headers['location']}/video"
    tag = served.client.get(address).headers["etag"]
    for known, status in ((tag, 304), (f'"another", {tag}', 304), ("*", 304), ('"another"', 200)):
        response = served.client.get(address, headers={"If-None-Match": known})
        assert response.status_code == status
        assert response.headers["etag"] == tag


def test_head_reads_nothing_of_the_file(served: LiveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"{send(served, MP4).headers['location']}/video"

    read = served.service.blobs.pieces

    def pieces(key: str, start: int, end: int) -> Iterator[bytes]:
        assert end <= HEAD_BYTES, "more of the file was read than tells its type"
        return read(key, start, end)

    monkeypatch.setattr(served.service.blobs, "pieces", pieces)
    response = served.client.head(address)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(MP4))
    part = served.client.head(address, headers={"Range": "bytes=0-9"})
    assert (part.status_code, part.headers["content-length"]) == (206, "10")


def test_a_finished_job_keeps_its_video_until_it_is_deleted(served: LiveApi, jobs: Jobs) -> None:
    address = finished(served, ScriptedWorker(jobs, served.service.blobs))
    assert (
        served.client.get(address).json()["urls"]["video"] == f"http://127.0.0.1:{served.port}{address}/video"
    )
    assert served.client.get(f"{address}/video").content == b"a video"
    served.client.delete(address)
    assert_problem(served.client.get(f"{address}/video"), 404, "video_not_kept")
    assert served.client.get(address).json()["urls"]["video"] is None
    assert served.service.blobs.names("uploads") == set()


def test_a_failed_job_has_no_video(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    address = send(api).headers["location"]
    claim = worker.take()
    jobs.fail(claim, EngineCrashed("It crashed."))
    worker.blobs.remove(claim.job.upload)  # as a worker does
    assert api.client.get(address).json()["urls"]["video"] is None
    assert_problem(api.client.get(f"{address}/video"), 404, "video_not_kept")


def test_a_canceled_job_has_no_video(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    """Not even while its file is still there."""
    address = send(api).headers["location"]
    claim = worker.take()
    assert api.client.delete(address).status_code == 202
    assert jobs.stop(claim)
    assert worker.blobs.exists(claim.job.upload)
    assert_problem(api.client.get(f"{address}/video"), 404, "video_not_kept")


def test_a_video_that_is_to_be_fetched_is_not_there_yet(api: LiveApi, jobs: Jobs) -> None:
    job_id, submission = "a" * 32, Submission(source_url="https://example.org/a.mp4")
    jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", submission=submission)
    assert api.client.get(f"/jobs/{job_id}").json()["urls"]["video"] is None
    problem = assert_problem(api.client.get(f"/jobs/{job_id}/video"), 404, "video_not_kept")
    assert "not been fetched yet" in problem["detail"]


def test_an_unknown_job_has_no_video(api: LiveApi) -> None:
    assert_problem(api.client.get(f"/jobs/{'0' * 32}/video"), 404, "unknown_job")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x00\x00\x00\x14ftypqt  \x00\x00", "video/quicktime"),
        (b"\x00\x00\x00\x14ftypM4V \x00\x00", "video/mp4"),
        (b"\x00\x00\x00\x14ftyp3gp5\x00\x00", "video/3gpp"),
        (b"\x00\x00\x00\x14ftypheic\x00\x00", "image/heic"),
        (b"\x00\x00\x10\x00moov\x00\x00\x00\x6cmvhd", "video/quicktime"),
        (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01B\xf2\x81\x04B\xf3\x81\x08B\x82\x84webm", "video/webm"),
        (b"\x1aE\xdf\xa3\xa3B\x86\x81\x01B\x82\x88matroska", "video/x-matroska"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "video/x-msvideo"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8X", "image/webp"),
        (b"GIF89a\x01\x00", "image/gif"),
        (b"G@\x11\x10\x00B\xf0", "video/mp2t"),
        (b"<!doctype html><script>", "application/octet-stream"),
        (b"<svg onload=alert(1)>", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_the_type_is_told_by_the_first_bytes(head: bytes, kind: str) -> None:
    assert media_type(head) == kind


@pytest.mark.parametrize(
    ("header", "part"),
    [
        (None, None),
        ("bytes=0-0", range(1)),
        (" Bytes = 5-999 ", range(5, 100)),
        ("bytes=-500", range(100)),
        ("bytes=0-1,5-6", None),
        ("bytes=9-3", None),
        ("bytes=-", None),
        ("lines=1-2", None),
        ("bytes=a-b", None),
    ],
)
def test_a_range_is_read_or_passed_over(header: str | None, part: range | None) -> None:
    assert requested_part(header, 100) == part


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=200-300", "bytes=-0"])
def test_a_range_behind_the_end_is_refused(header: str) -> None:
    with pytest.raises(RangeNotSatisfied):
        requested_part(header, 100)


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("a b.mp4", 'inline; filename="a b.mp4"'),
        ('x"\\.mp4', "inline; filename=\"x__.mp4\"; filename*=UTF-8''x%22%5C.mp4"),
        ("фильм.mp4", "inline; filename=\"_____.mp4\"; filename*=UTF-8''%D1%84%D0%B8%D0%BB%D1%8C%D0%BC.mp4"),
        ("", "inline"),
    ],
)
def test_a_file_name_may_have_any_letters(name: str, header: str) -> None:
    assert disposition(name, is_shown=True) == header


def test_what_is_no_video_is_for_saving() -> None:
    assert disposition("a.html", is_shown=False) == 'attachment; filename="a.html"'
