"""Files that arrive in parts, by the official client of tus and against a connection that breaks."""

from __future__ import annotations

import io
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tusclient.client import TusClient
from tusclient.storage.filestorage import FileStorage

from app.api.receiving import sent_files
from app.api.receiving.sent_files import IDLE_SECONDS, KEPT_SECONDS
from app.api.routes.files import PART
from app.jobs.job_store import Jobs
from app.settings import Settings
from tests.app.api.guards.test_keys import bearer
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.workers import eventually

FILM = os.urandom(200_000)
TUS = {"Tus-Resumable": "1.0.0"}


class Film(io.BytesIO):
    """Stays open where the client of tus, which opens a file once for each of its requests, closes it."""

    def close(self) -> None:
        self.seek(0)


def begun(api: LiveApi, size: int = len(FILM), **headers: str) -> str:
    """The address of a file of which nothing has come."""
    answer = api.client.post("/files", headers={**TUS, "Upload-Length": str(size), **headers})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def append(api: LiveApi, address: str, data: bytes, offset: int, **headers: str) -> httpx.Response:
    told = {**TUS, "Content-Type": PART, "Upload-Offset": str(offset), **headers}
    return api.client.patch(address, content=data, headers=told)


def offset_of(api: LiveApi, address: str) -> int:
    answer = api.client.head(address, headers=TUS)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    return int(answer.headers["upload-offset"])


def whole(api: LiveApi) -> str:
    address = begun(api)
    assert append(api, address, FILM, 0).status_code == 204
    return address


def cut_off(api: LiveApi, address: str, data: bytes, offset: int) -> None:
    """Sends some bytes of a request that announces more, and hangs up."""
    head = f"PATCH {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nTus-Resumable: 1.0.0\r\nContent-Type: {PART}\r\n"
    head += f"Upload-Offset: {offset}\r\nContent-Length: {len(FILM) - offset}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        connection.sendall(head.encode() + data)
        eventually(lambda: offset_of(api, address) == offset + len(data))


def test_a_client_of_tus_goes_on_after_a_break_and_the_file_is_captioned(
    settings: Settings, jobs: Jobs, tmp_path: Path
) -> None:
    """Behind a part, a connection that breaks, and a restart of the service."""

    def uploader(api: LiveApi, stack: ExitStack) -> Any:
        client = TusClient(f"http://127.0.0.1:{api.port}/v1/files")
        storage = FileStorage(str(tmp_path / "storage"))
        stack.callback(storage.close)
        named = {"metadata": {"filename": "clip ü.mp4"}, "url_storage": storage, "store_url": True}
        return client.uploader(file_stream=Film(FILM), chunk_size=64_000, **named)

    with live_api(settings) as api, ExitStack() as stack:
        first = uploader(api, stack)
        first.upload_chunk()
        path = httpx.URL(first.url).path
        assert path.startswith("/v1/files/")
        cut_off(api, path, FILM[64_000:99_999], 64_000)
        port = api.port
    with live_api(settings) as api, ExitStack() as stack:
        storage = tmp_path / "storage"
        storage.write_text(storage.read_text().replace(f":{port}/", f":{api.port}/"))
        second = uploader(api, stack)
        assert second.offset == 99_999
        second.upload()
        answer = api.client.post("/caption", json={"file": second.url, "beam_size": 8})
        assert answer.status_code == 202, answer.text
        job = api.service.jobs.get(answer.json()["id"])
        assert job is not None
        assert (job.filename, job.options.beam_size) == ("clip ü.mp4", 8)
        assert api.service.blobs.read(job.upload) == FILM
        assert_problem(api.client.get(path), 404, "unknown_file")
        assert list(api.service.files.folder.iterdir()) == []
        worker = ScriptedWorker(jobs, api.service.blobs)
        worker.succeed(worker.take())
        assert api.client.get(f"/jobs/{job.id}").json()["caption"] == "a dog runs"


def test_what_tus_asks_for_is_told(api: LiveApi) -> None:
    for path in ("/files", "/v1/files", f"/files/{'0' * 32}"):
        told = api.client.options(path)
        assert (told.status_code, told.headers["tus-version"]) == (204, "1.0.0")
        assert told.headers["tus-extension"] == "creation,expiration,termination"
        assert int(told.headers["tus-max-size"]) == api.service.settings.max_upload_bytes
    address = begun(api, len(FILM), **{"Upload-Metadata": "filetype dmlkZW8=,filename Li4vYS5tcDQ="})
    seen = api.client.get(address, headers=TUS)
    assert seen.headers["upload-length"] == str(len(FILM))
    assert seen.headers["upload-expires"].endswith(" GMT")
    document = seen.json()
    assert (document["filename"], document["received"], document["size"]) == ("a.mp4", 0, len(FILM))
    answer = append(api, address, FILM[:5], 0)
    assert (answer.headers["upload-offset"], answer.headers["tus-resumable"]) == ("5", "1.0.0")


def test_what_cannot_be_is_refused(api: LiveApi) -> None:
    most = api.service.settings.max_upload_bytes
    lengths = {"0": 422, "-1": 422, "many": 422, str(most + 1): 413, str(2**60): 422}
    for length, status in lengths.items():
        answer = api.client.post("/files", headers={**TUS, "Upload-Length": length})
        assert answer.status_code == status, length
    other = api.client.post("/files", headers={"Tus-Resumable": "0.2.2", "Upload-Length": "5"})
    assert assert_problem(other, 412, "not_tus")
    assert other.headers["tus-version"] == "1.0.0"
    address = begun(api, 10)
    assert_problem(append(api, address, b"abc", 3), 409, "wrong_offset")
    assert_problem(append(api, address, b"abc", 0, **{"Content-Type": "video/mp4"}), 415, "not_multipart")
    assert append(api, address, b"abc", 0).status_code == 204
    assert_problem(append(api, address, b"abcdefgh", 3), 413, "upload_too_large")
    assert offset_of(api, address) == 3
    file = api.service.files.find(address[-32:], None)
    with api.service.files.appending(file, 3):
        assert_problem(append(api, address, b"abc", 3), 409, "wrong_offset")
    assert_problem(api.client.post("/caption", json={"file": address}), 409, "file_incomplete")
    for unknown in (f"/files/{'0' * 32}", "/files/..%2f..", "/files/" + "x" * 300):
        assert_problem(api.client.get(unknown), 404, "unknown_file" if "%" not in unknown else "not_found")
    assert_problem(api.client.post("/caption", json={"file": "0" * 32}), 404, "unknown_file")
    assert_problem(api.client.post("/caption", json={"file": "../etc/passwd"}), 422, "invalid_option")
    both = {"file": "0" * 32, "url": "https://example.org/a.mp4"}
    assert_problem(api.client.post("/caption", json=both), 422, "several_videos")
    assert_problem(send(api, file="0" * 32), 422, "several_videos")
    assert api.uploads == api.staged == []


def test_a_file_is_removed_by_its_sender_or_a_day_after_its_last_byte(api: LiveApi) -> None:
    folder = api.service.files.folder
    removed, left, fresh = begun(api), begun(api), begun(api)
    assert api.client.delete(removed, headers=TUS).status_code == 204
    assert api.client.head(removed).status_code == 404
    for path in (folder / left[-32:] / "part", folder / left[-32:]):
        os.utime(path, (0, path.stat().st_mtime - KEPT_SECONDS - 1))
    assert_problem(api.client.get(left), 404, "unknown_file")
    api.service.files.sweep()
    assert [path.name for path in folder.iterdir()] == [fresh[-32:]]


def test_an_owner_has_a_share(api: LiveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_files, "MOST_OF_ONE", 2)
    addresses = [begun(api), begun(api)]
    told = {**TUS, "Upload-Length": "5"}
    assert_problem(api.client.post("/files", headers=told), 429, "too_many_files")
    api.service.files.create(5, "", "ada")
    part = api.service.files.folder / addresses[1][-32:] / "part"
    os.utime(part, (0, part.stat().st_mtime - IDLE_SECONDS))
    addresses.append(begun(api))
    assert api.client.get(addresses[1]).status_code == 404, "it gave way: nothing came of it for long"
    assert api.client.delete(addresses[0]).status_code == 204
    begun(api)
    monkeypatch.setattr(sent_files, "MOST_OF_ONE", 20)
    files = api.service.files
    object.__setattr__(files, "most_bytes", 2 * len(FILM) + 4)
    assert_problem(api.client.post("/files", headers=told), 429, "too_many_files")


def test_a_file_is_its_senders_alone(settings: Settings) -> None:
    with live_api(settings.model_copy(update={"access": "keys"})) as api:
        ada, bob, reader = (
            bearer(api, "ada"), bearer(api, "bob"), bearer(api, "eve", scopes=("read",)),
        )  # fmt: skip
        assert api.client.post("/files", headers={**reader, "Upload-Length": "5"}).status_code == 403
        address = begun(api, 5, **ada)
        assert append(api, address, b"clip", 0, **ada).status_code == 204
        for answer in (
            api.client.get(address, headers=bob),
            append(api, address, b"!", 4, **bob),
            api.client.delete(address, headers=bob),
            api.client.post("/caption", json={"file": address}, headers=bob),
        ):
            assert_problem(answer, 404, "unknown_file")
        assert append(api, address, b"!", 4, **ada).headers["upload-offset"] == "5"
        assert api.client.post("/caption", json={"file": address}, headers=ada).status_code == 202


def test_a_file_stays_until_a_job_has_it_and_a_repetition_finds_that_job(api: LiveApi) -> None:
    address = whole(api)
    for _ in range(api.service.settings.max_backlog):
        send(api)
    told: dict[str, Any] = {"json": {"file": address}, "headers": {"Idempotency-Key": "again"}}
    assert_problem(api.client.post("/caption", **told), 503, "backlog_full")
    assert offset_of(api, address) == len(FILM)
    for job in api.client.get("/jobs").json()["jobs"][:1]:
        api.client.delete(f"/jobs/{job['id']}")
    first, second = (api.client.post("/caption", **told) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202), first.text
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["idempotency-replayed"] == "true"
