"""What a fault of our own costs a job, in a runner whose decoder has one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from app.errors import WorkerLost
from app.jobs.blobs import Blobs
from app.jobs.job import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import ensure_groups
from app.settings import Settings
from app.worker.job_runner import JobRunner
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder
from extractors.media.errors import DecoderCrashed, DecoderFault, MediaError, NotAVideo
from extractors.media.request import Decoded, DecodeRequest


class FailingDecoder(Decoder):
    """Raises the same error for every file."""

    def __init__(self, error: MediaError) -> None:
        super().__init__()
        self.error, self.calls = error, 0

    def decode(self, *_: object) -> Decoded:
        self.calls += 1
        raise self.error


class ReadyEngine:
    """An engine that is never reached."""

    def start(self) -> ReadyEngine:
        return self

    def request_for(self, _: CaptionOptions) -> DecodeRequest:
        return DecodeRequest()


def claimed(jobs: Jobs, blobs: Blobs) -> Claim:
    ensure_groups(jobs.server, jobs.keys)
    blobs.write("uploads/one", b"a video")
    jobs.submit("one", CaptionOptions(), "uploads/one")
    server: Any = jobs.server
    ((_, ((entry, _fields),)),) = server.xreadgroup(
        "workers", "me", {jobs.keys.stream("normal"): ">"}, count=1
    )
    claim = jobs.claim("one", entry, "normal", "me", cause=WorkerLost("gone"))
    assert isinstance(claim, Claim)
    return claim


@pytest.mark.parametrize(
    ("error", "code", "attempts"),
    [
        (DecoderFault("AttributeError in plan_display, line 12."), "worker_error", 1),
        (DecoderCrashed("The process died by signal 11."), "decoder_crashed", 3),
    ],
)
def test_a_fault_of_our_own_ends_the_job_at_once(
    jobs: Jobs,
    settings: Settings,
    tmp_path: Path,
    error: MediaError,
    code: str,
    attempts: int,
) -> None:
    """And a decoder that dies is tried again, for another file may have been its poison."""
    blobs = Blobs(str(tmp_path / "blobs"), tmp_path / "staging")
    decoder, engine = FailingDecoder(error), ReadyEngine()
    watch = Watchdog(jobs, settings, lambda: None)
    runner = JobRunner(jobs, blobs, decoder, engine, watch, settings)  # type: ignore[arg-type]
    runner.work([claimed(jobs, blobs)])
    job = jobs.get("one")
    assert job is not None
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", code, attempts)
    assert decoder.calls == attempts
    assert os.path.basename(job.upload) == "one"


class RefusingBlobs(Blobs):
    """A store that gives and does not let go."""

    def remove(self, key: str) -> None:
        raise PermissionError(key)


def test_a_store_that_refuses_to_remove_costs_no_job(jobs: Jobs, settings: Settings, tmp_path: Path) -> None:
    blobs = RefusingBlobs(str(tmp_path / "blobs"), tmp_path / "staging")
    decoder, engine = FailingDecoder(NotAVideo("no film")), ReadyEngine()
    watch = Watchdog(jobs, settings, lambda: None)
    runner = JobRunner(jobs, blobs, decoder, engine, watch, settings)  # type: ignore[arg-type]
    runner.work([claimed(jobs, blobs)])
    job = jobs.get("one")
    assert job is not None
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "not_a_video", 1)
