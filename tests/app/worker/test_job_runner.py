"""What a fault of our own costs a job, in a runner whose decoder has one."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.errors import WorkerLost
from app.jobs.blobs import Blobs
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionerChoice, CaptionOptions
from app.jobs.queue import ensure_groups
from app.pipeline.engine_protocol import EngineAnswer
from app.settings import Settings
from app.worker.attempt import Attempt
from app.worker.job_ends import frame_jpeg, store_result
from app.worker.job_runner import JobRunner
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder
from extractors.media.decode import decode_here
from extractors.media.errors import DecoderCrashed, DecoderFault, MediaError, NotAVideo
from extractors.media.request import Decoded, DecodeRequest
from extractors.windows import Sampling
from tests.app.engines import answer_of
from tests.app.played_time import pass_time
from tests.media import write_video


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

    is_ready = True

    def start(self) -> ReadyEngine:
        return self

    def resolve(self, options: CaptionOptions) -> CaptionOptions:
        return options

    def feature_basis(self, _: CaptionOptions) -> None:
        """None: it looks at frames."""

    def request_for(self, _: CaptionerChoice | None) -> DecodeRequest:
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


def run(runner: JobRunner, claim: Claim) -> None:
    """Takes one job to its end."""
    with runner:
        runner.start()
        runner.begin(claim)
        while runner.hand:
            runner.turn(0.05)


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
    runner = JobRunner(jobs, blobs, [decoder], engine, watch, settings)  # type: ignore[arg-type]
    run(runner, claimed(jobs, blobs))
    job = jobs.get("one")
    assert job is not None
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", code, attempts)
    assert decoder.calls == attempts
    assert os.path.basename(job.upload) == "one"


def test_what_a_child_works_on_is_on_the_record_from_its_begin_to_its_end(
    jobs: Jobs, settings: Settings, tmp_path: Path
) -> None:
    """A worker that dies a moment later costs what only waits in its hands no attempt."""
    watch = Watchdog(jobs, settings, lambda: None)  # no beat comes by itself
    attempt = Attempt(claimed(jobs, Blobs(str(tmp_path / "blobs"), tmp_path / "staging")))
    watch.hold(attempt)

    def working() -> object:
        return jobs.server.hget(jobs.keys.job("one"), "working")

    with watch.guard([attempt], lambda: None):
        assert working() == "1"
    assert working() == "0"
    with watch.guard([attempt], lambda: None):
        taken = jobs.claim_again(attempt.claim, WorkerLost("its child died"))
    assert isinstance(taken, Claim)
    assert working() == "0"


class Overtaken(ReadyEngine):
    """Answers after the lease has lapsed and another worker has run the job to its end."""

    def __init__(self, jobs: Jobs, blobs: Blobs, decoded: Decoded) -> None:
        self.jobs, self.blobs, self.decoded = jobs, blobs, decoded

    def kill(self) -> None:
        raise AssertionError("nobody asked for that")

    interrupt = kill

    def run(self, *_: object) -> list[EngineAnswer]:
        pass_time(self.jobs.server, self.jobs.keys, self.jobs.lease + 0.1)
        job = self.jobs.get("one")
        assert job is not None
        other = self.jobs.claim("one", job.entry, "normal", "other", cause=WorkerLost("gone"))
        assert isinstance(other, Claim)
        frames = [frame_jpeg(pixels) for pixels in self.decoded.frames.pixels]
        store_result(self.blobs, other.results, frames, '{"words": ["in", "time"]}')
        assert self.jobs.succeed(other, {"caption": "in time"})
        return [EngineAnswer(answer_of("late", "stats"), '{"words": ["late"]}')]


class OneFilm(Decoder):
    """Gives the same frames for every file."""

    def __init__(self, decoded: Decoded) -> None:
        super().__init__()
        self.decoded = decoded

    def decode(self, *_: object) -> Decoded:
        return self.decoded


def test_a_worker_past_its_lease_harms_no_result(jobs: Jobs, settings: Settings, tmp_path: Path) -> None:
    """It was frozen while it captioned, and stores its frames and attention after the job's second run."""
    blobs = Blobs(str(tmp_path / "blobs"), tmp_path / "staging")
    clip = write_video(tmp_path / "clip.mp4", frames=4)
    decoded = decode_here(clip, DecodeRequest(Sampling(count=2)))
    brighter = replace(decoded, frames=replace(decoded.frames, pixels=255 - decoded.frames.pixels))
    engine, watch = Overtaken(jobs, blobs, decoded), Watchdog(jobs, settings, lambda: None)
    runner = JobRunner(jobs, blobs, [OneFilm(brighter)], engine, watch, settings)  # type: ignore[arg-type]
    late = claimed(jobs, blobs)
    run(runner, late)
    job = jobs.get("one")
    assert job is not None
    assert (job.state, job.answer) == ("succeeded", {"caption": "in time"})
    assert json.loads(blobs.read(f"{job.results}/attention.json")) == {"words": ["in", "time"]}
    kept = np.asarray(Image.open(io.BytesIO(blobs.read(f"{job.results}/frames/0.jpg"))))
    in_time, too_late = (each.frames.pixels[0].mean() for each in (decoded, brighter))
    assert abs(kept.mean() - in_time) < 5 < abs(kept.mean() - too_late)
    assert job.results != late.results
    assert not blobs.exists(late.results)


class RefusingBlobs(Blobs):
    """A store that gives and does not let go."""

    def remove(self, key: str) -> None:
        raise PermissionError(key)


def test_a_store_that_refuses_to_remove_costs_no_job(jobs: Jobs, settings: Settings, tmp_path: Path) -> None:
    blobs = RefusingBlobs(str(tmp_path / "blobs"), tmp_path / "staging")
    decoder, engine = FailingDecoder(NotAVideo("no film")), ReadyEngine()
    watch = Watchdog(jobs, settings, lambda: None)
    runner = JobRunner(jobs, blobs, [decoder], engine, watch, settings)  # type: ignore[arg-type]
    run(runner, claimed(jobs, blobs))
    job = jobs.get("one")
    assert job is not None
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "not_a_video", 1)
