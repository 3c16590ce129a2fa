"""Captions a job's film segment by segment, and leaves a clip of representative frames that sums it up.

    what an earlier attempt has finished → the segments behind it, kept as they are done → the summary's clip

A segment joins the one before it where they are alike, so it is finished when the next one does not join it.
What the next one may join is kept apart, and no client sees it. Every finished segment is in the blobs before
the record tells of it. The clip is then captioned like any
other video (app/worker/job_runner.py), and that caption is the job's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.documents.job import Timings
from app.documents.segments import SegmentDocument, on_other_clock
from app.errors import JobFailure
from app.jobs.blobs import Blobs
from app.jobs.job import Job, JobLimits, Stage
from app.jobs.kept_segments import SegmentFolder
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, SemanticVectors, media_answer
from app.segments.caption_segments import SegmentCaption, caption_segments
from app.segments.film_captioner import segment_document
from app.segments.neighbours import JoinedSegment
from app.segments.summary import SummaryClip, read_summary_clip
from app.settings import Settings
from app.worker.attempt import Attempt
from app.worker.engine.process import EngineDied, EngineProcess
from app.worker.results import frame_jpeg
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder
from extractors.features import Frames
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.media.video import Video
from extractors.shots.segment import SegmentOptions
from extractors.windows import Sampling
from models.caption import AttentionDocument

PROBE = DecodeRequest(Sampling(count=1))  #: what the file is like
FORMAT = 2  #: of what is kept; what another version has kept is not gone on with


@dataclass(eq=False)
class FilmSegments:
    """Captions films with a worker's own decoder and engine.

    decoder: reads the film. engine: captions; it has been started. watch: keeps the lease and ends what is
    stopped. limits: of decoding.
    """

    blobs: Blobs
    decoder: Decoder
    engine: EngineProcess
    watch: Watchdog
    settings: Settings
    limits: Limits

    def caption(self, run: Attempt, film: Path) -> None:
        """Captions what is left of the film, and sets ``run.decoded`` to what sums it up.

        Returns early where the watch has stopped the run.

        Args:
            run: of a job whose options say how its film is cut.
            film: its file.

        Raises:
            MediaError: its leaves; what is finished stays for the next attempt.
            JobFailure: why the engine cannot caption.
            EngineDied, EngineRaised: as ``EngineProcess.run``.
        """
        watched = _WatchedEngine(self.engine, run)
        second = Decoder(self.settings.decoder)

        def kill() -> None:
            self.decoder.kill()
            second.kill()
            watched.kill()

        with closing(second), self.watch.guard([run], kill, self.settings.cancel_grace):
            began = time.monotonic()
            video = self._probe(run, film)
            folder = self._folder(run)
            self._caption_rest(run, film, folder, (watched, second), video.duration)
            if run.stopped is None:
                run.film = 1.0
                run.set_stage("decode")
                self._sum_up(run, film, folder, video)
        decode = time.monotonic() - began - watched.seconds
        spent = Timings(decode=round(decode, 4), extract=watched.extract, caption=watched.caption)
        run.answer = run.answer.model_copy(update={"timings": spent})

    def _probe(self, run: Attempt, film: Path) -> Video:
        began = time.monotonic()
        probed = self.decoder.decode(film, PROBE, limits_of(run.claim.job, self.limits))
        run.answer = media_answer(probed, time.monotonic() - began).model_copy(update={"sampled": None})
        return probed.video

    def _folder(self, run: Attempt) -> SegmentFolder:
        assert run.options is not None
        folder = SegmentFolder(self.blobs, run.claim.results, basis_of(run.options, self.engine.info))
        folder.take_over(f"results/{run.claim.job.id}")
        return folder

    def _caption_rest(
        self,
        run: Attempt,
        film: Path,
        folder: SegmentFolder,
        children: tuple[_WatchedEngine, Decoder],
        duration: float,
    ) -> None:
        assert run.options is not None
        watched, second = children
        found = caption_segments(
            film,
            watched,
            run.options,
            SegmentOptions.parse(run.options.segments or "none"),
            self.decoder,
            start_after=folder.last_end,
            limits=limits_of(run.claim.job, self.limits),
            batch=self.settings.batch_jobs,
            second=second,
        )
        run.kept, run.film = folder.kept, folder.last_end / duration
        for each in found:
            _keep(folder, each, watched.embed([_still(each.picture)], [each.answer.answer.caption or ""]))
            run.kept, run.film = folder.kept, folder.last_end / duration
            run.restart_clock()
            if not run.has_gained:
                run.has_gained = True
                self.watch.beat(run)  # a worker that dies before the next beat has gained it all the same
            if run.stopped is not None:
                found.close()
                return
        folder.close()
        run.kept = folder.kept

    def _sum_up(self, run: Attempt, film: Path, folder: SegmentFolder, video: Video) -> None:
        """Reads what the film's own caption is written of: of one segment the film as it is."""
        assert run.options is not None
        assert self.engine.info is not None
        request = self.engine.info.request_for(run.options.choice)
        segments = [SegmentDocument.model_validate(each) for each in folder.segments]
        if len(segments) == 1:
            run.decoded = self.decoder.decode(film, request, self.limits)
            run.answer = media_answer(run.decoded, 0.0)
            return
        run.clip = read_summary_clip(film, segments, request, self.decoder, self.limits)
        run.decoded = _decoded(run.clip, video)
        shown = [round(seconds, 4) for seconds in run.clip.shown]
        run.answer = run.answer.model_copy(update={"sampled": shown})


@dataclass(eq=False)
class _WatchedEngine:
    """Asks the worker's engine for captions of segments, and can be ended from the watch's thread.

    An engine that is idle is not killed: a new one is dear. seconds: that it took in all. extract, caption:
    of them those that it tells of.
    """

    engine: EngineProcess
    run: Attempt
    seconds: float = 0.0
    extract: float = 0.0
    caption: float = 0.0
    is_killed: bool = False
    is_busy: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def info(self) -> EngineInfo:
        assert self.engine.info is not None
        return self.engine.info

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        """Captions as ``EngineProcess.run``, and tells the run's stage meanwhile."""

        def tell(stage: Stage, share: float) -> None:
            self.run.set_stage(stage, share)
            report(stage, share)

        with self._busy():
            answers = self.engine.run(videos, options, tell)
        self._add_seconds(answers[0])
        return answers

    def embed(self, pictures: Sequence[Frames], sentences: Sequence[str]) -> SemanticVectors | None:
        """Embeds as ``EngineProcess.embed``."""
        with self._busy():
            return self.engine.embed(pictures, sentences)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Lets the engine be killed meanwhile, and counts the seconds."""
        with self._guard:
            if self.is_killed:
                raise EngineDied("the job was stopped")
            self.is_busy = True
        began = time.monotonic()
        try:
            yield
        finally:
            with self._guard:
                self.is_busy = False
            self.seconds += time.monotonic() - began
            self.run.set_stage("decode")

    def _add_seconds(self, answer: EngineAnswer | JobFailure) -> None:
        timings = None if isinstance(answer, JobFailure) else answer.answer.timings  # of the whole batch
        if timings is not None:
            self.extract = round(self.extract + (timings.extract or 0.0), 4)
            self.caption = round(self.caption + (timings.caption or 0.0), 4)

    def kill(self) -> None:
        """Ends what it does, if anything, and lets it begin nothing more."""
        with self._guard:
            self.is_killed = True
            if self.is_busy:
                self.engine.kill()


def basis_of(options: CaptionOptions, info: EngineInfo | None) -> str:
    """Names all that decides what a film's segments are: options, and the weights of who writes.

    Args:
        options: who writes and how the film is cut filled in.
        info: of the engine.
    """
    writers = options.choice.writers if options.choice else ()
    captioners = info.captioners if info else ()
    weights = {each.name: each.weights_sha256 for each in captioners if each.name in writers}
    # a prompt only where there is one: what a version without it has begun is gone on with
    told = options.model_dump(mode="json", exclude=None if options.prompt else {"prompt"})
    text = json.dumps([FORMAT, told, weights], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def film_answer(run: Attempt, summary: EngineAnswer) -> EngineAnswer:
    """Makes the film's answer of its summary's: on the film's clock, with the seconds that segments took.

    Args:
        run: whose segments are done.
        summary: what the engine says of the clip that sums the film up.
    """
    attention = summary.attention
    if attention is not None and run.clip is not None:
        document = AttentionDocument.model_validate_json(attention)
        attention = on_other_clock(document, run.clip.film_time).model_dump_json()
    before, last = run.answer.timings or Timings(), summary.answer.timings or Timings()
    seconds = Timings(
        extract=round((before.extract or 0.0) + (last.extract or 0.0), 4),
        caption=round((before.caption or 0.0) + (last.caption or 0.0), 4),
    )
    return EngineAnswer(summary.answer.model_copy(update={"timings": seconds}), attention)


def limits_of(job: Job, limits: Limits) -> Limits:
    """Lowers a worker's limits of decoding to those that the job has by its sender's key."""
    own = job.submission.limits or JobLimits()
    return replace(
        limits,
        max_duration=min(limits.max_duration, own.seconds or math.inf),
        pixels=min(limits.pixels, own.pixels or limits.pixels),
    )


def _keep(folder: SegmentFolder, each: SegmentCaption, vectors: SemanticVectors | None) -> None:
    """Joins a new segment to the one before it, or lets that be finished and holds the new one.

    Args:
        folder: what is known of the film.
        each: the segment behind that.
        vectors: of its picture and its caption.
    """
    whole = segment_document(each)
    picture, sentence = (None, None) if vectors is None else (vectors.pictures[0], vectors.sentences[0])
    new = JoinedSegment.alone(whole.model_copy(update={"attention": None}), picture, sentence)
    held = None if folder.open is None else _joined(folder.open)
    together = None if held is None else held.with_next(new)
    if together is None:
        folder.close()
    if together is None or together.document.representative == whole.representative:
        attention = None if whole.attention is None else whole.attention.model_dump_json().encode()
        folder.show(frame_jpeg(each.picture), attention)
    now = together or new
    folder.hold(now.document.model_dump(mode="json"), _state_of(now))


def _state_of(joined: JoinedSegment) -> dict[str, Any]:
    """Makes JSON of what decides whether a segment grows."""
    vectors = {"picture": joined.picture, "sentence": joined.sentence}
    return {"longest": joined.longest, **{name: _as_text(vector) for name, vector in vectors.items()}}


def _joined(kept: Mapping[str, Any]) -> JoinedSegment:
    document, state = SegmentDocument.model_validate(kept["segment"]), kept["state"]
    picture, sentence = (_vector(state[name]) for name in ("picture", "sentence"))
    return JoinedSegment(document, state["longest"], picture, sentence)


def _as_text(vector: NDArray[np.float32] | None) -> str | None:
    return None if vector is None else base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _vector(text: str | None) -> NDArray[np.float32] | None:
    return None if text is None else np.frombuffer(base64.b64decode(text), "<f4")


def _still(picture: NDArray[np.uint8]) -> Frames:
    """Makes a video of one frame."""
    return Frames(picture[None], np.zeros(1), 1.0)


def _decoded(clip: SummaryClip, video: Video) -> Decoded:
    footage = clip.footage
    frames = Frames(footage.pixels, footage.pts, footage.duration, footage.fps)
    return Decoded(video, frames, None, footage.sized)
