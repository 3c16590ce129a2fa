"""Captions a job's film segment by segment, and leaves a clip of representative frames that sums it up.

    what an earlier attempt has finished → the segments after it, kept as they are done → the summary's clip

A segment joins the one before it where they are alike, so it is finished when the next one does not join it.
What the next one may join is kept apart, and no client sees it. Every finished segment is in the blobs before
the record names it. The clip is then captioned like any other video (app/worker/job_runner.py), and that
caption is the job's.
"""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.documents.job import Timings
from app.documents.segments import SegmentDocument
from app.errors import FilmTooLarge, JobFailure, TooManySegments
from app.jobs.blobs import Blobs
from app.jobs.job import Stage
from app.jobs.keeping.kept_segments import SegmentFolder
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, SemanticVectors, media_answer
from app.segments.caption_segments import SegmentCaption, caption_segments
from app.segments.film_captioner import segment_document
from app.segments.neighbours import JoinedSegment
from app.segments.summary import read_summary_clip
from app.settings import Settings
from app.worker.attempt import Attempt, Clip, Film
from app.worker.engine.process import EngineDied, EngineProcess
from app.worker.job_ends import frame_jpeg
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder
from extractors.features import Frames
from extractors.media.request import DecodeRequest, Limits, Video
from extractors.shots.segment import SegmentOptions
from extractors.windows import Sampling

PROBE = DecodeRequest(Sampling(count=1))  #: what the file is like
SHORTEST_TURN = 30.0  #: seconds that a film has at least while others wait: opening it again costs some
FORMAT = 2  #: of what is kept; segments that another version has kept are captioned anew


@dataclass(eq=False)
class FilmSegments:
    """Captions films with the worker's engine, and decoders of their own: clips are read meanwhile."""

    blobs: Blobs
    engine: EngineProcess  #: captions; it has been started
    watch: Watchdog  #: keeps the lease and ends what is stopped
    settings: Settings
    limits: Limits  #: of decoding
    #: Captions the clips that are ready between two segments, and returns whether anything waits.
    between: Callable[[Attempt], bool]

    def caption(self, attempt: Attempt, film: Film, path: Path) -> None:
        """Captions what is left of the film, and sets ``film.clip`` to what sums it up.

        Returns early where the watch has stopped the attempt, and with ``film.gives_way`` where others
        wait and it has had its turn.

        Args:
            attempt: at a job whose options say how its film is cut.
            film: how far that is.

        Raises:
            MediaError: its leaves; what is finished stays for the next attempt.
            JobFailure: why the engine cannot caption; TooManySegments, FilmTooLarge.
            EngineDied, EngineRaised: as ``EngineProcess.run``.
        """
        first, second = Decoder(self.settings.decoder), Decoder(self.settings.decoder)
        watched = _WatchedEngine(self.engine, attempt, (first, second))
        kill, interrupt = (partial(watched.leave, end) for end in (self.engine.kill, self.engine.interrupt))
        grace = self.settings.cancel_grace
        with closing(first), closing(second), self.watch.guard([attempt], kill, interrupt, grace):
            began = time.monotonic()
            video = self._probe(attempt, film, path, first)
            self._check(video, film.options)
            folder = SegmentFolder(
                self.blobs, attempt.claim.results, basis_of(film.options, self.engine.info)
            )
            folder.take_over(f"results/{attempt.claim.job.id}")
            self._caption_rest(attempt, film, path, folder, watched, video.duration, began)
            if attempt.stopped is None and not film.gives_way:
                film.share = 1.0
                attempt.set_stage("decode")
                self._sum_up(film, path, folder, first)
        decode = time.monotonic() - began - watched.seconds
        spent = Timings(decode=round(decode, 4), extract=watched.extract, caption=watched.caption)
        film.facts = film.facts.model_copy(update={"timings": spent})

    def _probe(self, attempt: Attempt, film: Film, path: Path, decoder: Decoder) -> Video:
        began = time.monotonic()
        probed = decoder.decode(path, PROBE, attempt.limits_within(self.limits))
        facts = media_answer(probed, time.monotonic() - began, film.options)
        film.facts = facts.model_copy(update={"sampled": None})
        return probed.video

    def _check(self, video: Video, options: CaptionOptions) -> None:
        """Raises FilmTooLarge, TooManySegments, where that shows before anything is captioned."""
        pixels = video.frames * video.width * video.height
        if pixels > self.settings.max_film_pixels:
            most = self.settings.max_film_pixels / 1e12
            raise FilmTooLarge(f"Its frames have {pixels / 1e12:.2f} million million pixels, above {most:g}.")
        if (seconds := SegmentOptions.parse(options.segments or "none").seconds) is not None:
            self._check_count(int(video.duration / seconds))

    def _check_count(self, segments: int) -> None:
        if segments > self.settings.max_segments:
            raise TooManySegments(f"The film has more than {self.settings.max_segments} segments.")

    def _caption_rest(
        self,
        attempt: Attempt,
        film: Film,
        path: Path,
        folder: SegmentFolder,
        watched: "_WatchedEngine",
        duration: float,
        began: float,
    ) -> None:
        first, second = watched.decoders
        stays_until: float | None = None
        captions = caption_segments(
            path,
            watched,
            film.options,
            SegmentOptions.parse(film.options.segments or "none"),
            first,
            start_after=folder.last_end,
            limits=attempt.limits_within(self.limits),
            batch=self.settings.batch_jobs,
            second=second,
        )
        attempt.kept, film.share = folder.kept, folder.last_end / duration
        self.watch.beat(attempt)  # the record names these segments before those of earlier attempts go
        folder.remove_earlier(f"results/{attempt.claim.job.id}")
        for each in captions:
            still = Frames.of_picture(each.picture)
            _keep(folder, each, watched.embed([still], [each.answer.answer.caption or ""]))
            attempt.kept, film.share = folder.kept, folder.last_end / duration
            attempt.clock.restart()
            if not film.has_gained:
                film.has_gained = True
                self.watch.beat(attempt)  # a worker that dies before the next beat has gained it all the same
            self._check_count(len(folder.segments) + 1)  # with the one that may still grow
            now = time.monotonic()
            if stays_until is None:  # a turn is to be worth what opening the film has cost
                stays_until = began + max(SHORTEST_TURN, 2.0 * (now - began))
            film.gives_way = self.between(attempt) and now > stays_until
            if attempt.stopped is not None or film.gives_way:
                captions.close()
                return
        folder.close()
        attempt.kept = folder.kept

    def _sum_up(self, film: Film, path: Path, folder: SegmentFolder, decoder: Decoder) -> None:
        """Reads what the film's own caption is written of: of one segment the film as it is."""
        assert self.engine.info is not None
        request = self.engine.info.request_for(film.options.choice)
        segments = [SegmentDocument.model_validate(each) for each in folder.segments]
        if len(segments) == 1:
            decoded = decoder.decode(path, request, self.limits)
            film.facts = media_answer(decoded, 0.0, film.options)
            footage, film.summary = decoded.footage, None
        else:
            film.summary = read_summary_clip(path, segments, request, decoder, self.limits)
            footage = film.summary.footage
            shown = [round(seconds, 4) for seconds in film.summary.shown]
            film.facts = film.facts.model_copy(update={"sampled": shown})
        stills = tuple(frame_jpeg(pixels) for pixels in footage.shown_frames.pixels)
        film.clip = Clip(film.options, film.facts, footage, stills)


@dataclass(eq=False)
class _WatchedEngine:
    """Asks the engine for captions of segments; the watchdog may end it, but not while it is idle."""

    engine: EngineProcess
    attempt: Attempt
    decoders: tuple[Decoder, Decoder]  #: of the film, killed with it
    seconds: float = 0.0  #: that it took in all
    extract: float = 0.0  #: of them those of extraction
    caption: float = 0.0  #: of them those of captioning
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
        """Captions as ``EngineProcess.run``, and sets the attempt's stage meanwhile."""

        def set_stage(stage: Stage, share: float, text: str = "") -> None:
            self.attempt.set_stage(stage, share)
            report(stage, share, text)

        with self._busy():
            answers = self.engine.run(videos, options, set_stage)
        first = answers[0]
        timings = None if isinstance(first, JobFailure) else first.answer.timings  # of the whole batch
        if timings is not None:
            self.extract = round(self.extract + (timings.extract or 0.0), 4)
            self.caption = round(self.caption + (timings.caption or 0.0), 4)
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
            self.attempt.set_stage("decode")

    def leave(self, end: Callable[[], None]) -> None:
        """Ends the decoders, and by ``end`` what the engine does, if anything; lets it begin nothing more."""
        for decoder in self.decoders:
            decoder.kill()
        with self._guard:
            self.is_killed = True
            if self.is_busy:
                end()


def basis_of(options: CaptionOptions, info: EngineInfo | None) -> str:
    """Names all that decides what a film's segments are: its options, and the weights of who writes."""
    variants = (options, options.of_segments)
    choices = [each.choice if info is None else info.resolve(each).choice for each in variants]
    writers = {name for choice in choices if choice for name in choice.writers}
    captioners = info.captioners if info else ()
    weights = {each.name: each.weights_sha256 for each in captioners if each.name in writers}
    # a prompt only where there is one: films that a version without prompts has begun are continued
    values = options.model_dump(mode="json", exclude=None if options.prompt else {"prompt"})
    text = json.dumps([FORMAT, values, weights], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _keep(folder: SegmentFolder, each: SegmentCaption, vectors: SemanticVectors | None) -> None:
    """Joins a new segment to the one before it, or lets that be finished and holds the new one."""
    whole = segment_document(each)
    picture, sentence = (None, None) if vectors is None else (vectors.pictures[0], vectors.sentences[0])
    new = JoinedSegment(whole.model_copy(update={"attention": None}), whole.duration, picture, sentence)
    previous = None if folder.open is None else _joined(folder.open)
    together = None if previous is None else previous.with_next(new)
    if together is None:
        folder.close()
    if together is None or together.document.representative == whole.representative:
        attention = None if whole.attention is None else whole.attention.model_dump_json().encode()
        folder.show(frame_jpeg(each.picture), attention)
    now = together or new
    state = {"longest": now.longest, "picture": _as_text(now.picture), "sentence": _as_text(now.sentence)}
    folder.hold(now.document.model_dump(mode="json"), state)


def _joined(kept: Mapping[str, Any]) -> JoinedSegment:
    document, state = SegmentDocument.model_validate(kept["segment"]), kept["state"]
    return JoinedSegment(document, state["longest"], _vector(state["picture"]), _vector(state["sentence"]))


def _as_text(vector: NDArray[np.float32] | None) -> str | None:
    return None if vector is None else base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _vector(text: str | None) -> NDArray[np.float32] | None:
    return None if text is None else np.frombuffer(base64.b64decode(text), "<f4")
