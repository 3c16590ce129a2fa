"""The one path from files to captions with their attention: decode → extract → caption.

``caption_videos`` is the path in one process (the command line). The worker runs the same parts in two: its
decoder reads the frames, and ``Engine``, below, in a process of its own, does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

from app import __version__, results
from app.advertisement import CaptionerInfo
from app.answer import Answer, EngineInfo, Report
from app.errors import CaptionerUnavailable, EngineStartFailed, JobFailure
from app.named_error import NamedError
from app.options import CaptionOptions
from app.settings import Settings
from app.states import Stage, State
from extractors.decoder import Decoder
from extractors.device import chosen_device
from extractors.errors import MediaError
from extractors.features import Frames, Stream
from extractors.request import Decoded, DecodeRequest, Limits
from models.caption import Caption
from models.checkpoint import Checkpoint
from models.decoding_options import DecodingOptions
from models.feed import Feed
from models.service import (
    StreamMismatch,
    available,
    caption,
    check_extractors,
    load_captioner,
    stream_set_of,
)
from models.stream_sets import StreamSet

log = structlog.get_logger(__name__)


class Engine:
    """Every captioner that there is, and the extractors that they need, loaded once.

    A request runs the extractors of its own captioner alone. Raises EngineStartFailed where there is no
    captioner, or none that takes the stream set that was asked for, and what loading a damaged one raises.
    """

    def __init__(self, settings: Settings) -> None:
        self.device = chosen_device(settings.device)
        torch.set_num_threads(settings.threads)
        folder = settings.weights
        loaded = {name: load_captioner(name, self.device, folder) for name in available(folder)}
        if not loaded:
            raise EngineStartFailed(f"There is no captioner in {folder}.")
        self._meals = meals(loaded, settings.streams)
        self._checkpoints = {name: loaded[name] for name in self._meals}
        feeds = {meal: self._feed(meal, settings) for meal in dict.fromkeys(self._meals.values())}
        self._feeds = {name: feeds[meal] for name, meal in self._meals.items()}
        for name, checkpoint in self._checkpoints.items():
            check_extractors(checkpoint, self._meals[name], self._feeds[name].extractors)

    def _feed(self, meal: StreamSet, settings: Settings) -> Feed:
        cache = settings.data / "cache"
        return Feed(meal, self.device, threads=settings.threads, cache=cache, frames=settings.frames)

    @property
    def request(self) -> DecodeRequest:
        """The frames for a captioner that is not known here: those of the first."""
        return next(iter(self._feeds.values())).request

    def request_for(self, captioner: str) -> DecodeRequest:
        """The frames that a captioner's extractors want."""
        return self._feeds[captioner].request if captioner in self._feeds else self.request

    def warm_up(self) -> EngineInfo:
        """Captions a grey video with each captioner, and says what they are and how long they take."""
        infos = []
        for name, checkpoint in self._checkpoints.items():
            began = time.perf_counter()
            video = _grey(self.request_for(name))
            self.describe_and_caption([video], [CaptionOptions(captioner=name)], _tell_nobody)
            infos.append(_info(name, checkpoint, time.perf_counter() - began))
        requests = {name: feed.request for name, feed in self._feeds.items()}
        return EngineInfo(self.device, tuple(infos), self.request, requests)

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[Answer | JobFailure]:
        """Features of all videos together, then captions, together where the options are the same."""
        began = time.perf_counter()
        report("extract", 0.0)
        features = self._describe(videos, [given.captioner for given in options])
        timings = {"extract": time.perf_counter() - began}
        answers: list[Answer | JobFailure] = [CaptionerUnavailable("")] * len(videos)
        done = 0
        for wanted in dict.fromkeys(options):
            places = [place for place, given in enumerate(options) if given == wanted]
            report("caption", done / len(videos))
            found = self._caption([features[place] for place in places], wanted, timings)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
            done += len(places)
        return answers

    def _describe(self, videos: Sequence[Frames], captioners: Sequence[str]) -> list[dict[str, Stream]]:
        """For each video the streams of its captioner's set; none for a captioner that is unknown."""
        streams: list[dict[str, Stream]] = [{} for _ in videos]
        wanted = [self._feeds.get(captioner) for captioner in captioners]
        for feed in dict.fromkeys(each for each in wanted if each is not None):
            places = [place for place, each in enumerate(wanted) if each is feed]
            found = feed.extract([videos[place] for place in places])
            for place, described in zip(places, found, strict=True):
                streams[place] = described
        return streams

    def _caption(
        self, features: Sequence[dict[str, Stream]], options: CaptionOptions, timings: Mapping[str, float]
    ) -> Sequence[Answer | JobFailure]:
        checkpoint = self._checkpoints.get(options.captioner)
        if checkpoint is None:
            known = ", ".join(self._checkpoints)
            message = f"There is no captioner called {options.captioner}; there are: {known}."
            return [CaptionerUnavailable(message)] * len(features)
        began = time.perf_counter()
        captions = caption(checkpoint, features, _decoding(options))
        spent = {**timings, "caption": time.perf_counter() - began}
        return [
            _answer(best_first, options, checkpoint, self._provenance(options.captioner, streams), spent)
            for best_first, streams in zip(captions, features, strict=True)
        ]

    def _provenance(self, captioner: str, streams: Mapping[str, Stream]) -> dict[str, Any]:
        sampling = self._feeds[captioner].sampling
        names = self._checkpoints[captioner].card.streams
        return {
            name: {**asdict(streams[name].spec), "sampling": sampling or streams[name].spec.sampling}
            for name in names
        }


def meals(checkpoints: Mapping[str, Checkpoint], streams: str | None) -> dict[str, StreamSet]:
    """Captioner → the part of its stream set that it eats; of a set that was asked for by name, captioners
    that eat something else are left out. Raises EngineStartFailed where that leaves none."""
    found, refused = {}, []
    for name, checkpoint in checkpoints.items():
        try:
            found[name] = stream_set_of(checkpoint, streams)
        except StreamMismatch as error:
            if streams is None:
                raise
            refused.append(f"{name}: {error}")
            log.warning("captioner left out", captioner=name, why=str(error))
    if not found:
        raise EngineStartFailed(f"No captioner takes the stream set {streams} ({'; '.join(refused)}).")
    return found


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one file.

    answer: the members of a job's document that are known, as far as it came. frames: uint8 (T, H, W, 3),
    those that were used. error: why it failed, or None.
    """

    file: Path
    answer: Mapping[str, Any]
    attention: Mapping[str, Any] | None
    frames: NDArray[np.uint8] | None
    error: NamedError | None

    @property
    def state(self) -> State:
        return "succeeded" if self.error is None else "failed"


def caption_videos(
    files: Sequence[Path], options: CaptionOptions, settings: Settings, engine: Engine | None = None
) -> Iterator[Outcome]:
    """Captions files, ``settings.batch_jobs`` at a time, and tells of each in its turn.

    A file that cannot be read or captioned has its error in its outcome. Raises EngineStartFailed.
    """
    engine = engine or Engine(settings)
    limits = Limits(seconds=settings.decode_seconds, memory=settings.decode_memory)
    with Decoder(settings.decoder) as decoder:
        for first in range(0, len(files), settings.batch_jobs):
            batch = files[first : first + settings.batch_jobs]
            yield from _caption_batch(batch, options, engine, decoder, limits)


def _caption_batch(
    files: Sequence[Path], options: CaptionOptions, engine: Engine, decoder: Decoder, limits: Limits
) -> list[Outcome]:
    read: dict[Path, tuple[Decoded, dict[str, Any]]] = {}
    outcomes: dict[Path, Outcome] = {}
    for file in files:
        began = time.perf_counter()
        try:
            decoded = decoder.decode(file, engine.request_for(options.captioner), limits)
        except MediaError as error:
            outcomes[file] = Outcome(file, {}, None, None, error)
        else:
            read[file] = decoded, results.media_answer(decoded, time.perf_counter() - began)
    videos = [decoded.frames for decoded, _ in read.values()]
    answers = engine.describe_and_caption(videos, [options] * len(videos), _tell_nobody) if videos else []
    for (file, (decoded, known)), answer in zip(read.items(), answers, strict=True):
        outcomes[file] = _outcome(file, decoded, known, answer)
    return [outcomes[file] for file in files]


def _outcome(file: Path, decoded: Decoded, known: Mapping[str, Any], answer: Answer | JobFailure) -> Outcome:
    pixels = decoded.frames.pixels
    if isinstance(answer, JobFailure):
        return Outcome(file, known, None, pixels, answer)
    return Outcome(file, results.whole_answer(known, answer), answer.attention, pixels, None)


def _answer(
    captions: Sequence[Caption],
    options: CaptionOptions,
    checkpoint: Checkpoint,
    features: Mapping[str, Any],
    timings: dict[str, float],
) -> Answer:
    model = {
        "captioner": options.captioner,
        "weights_sha256": checkpoint.sha256,
        "features": features,
        "options": options.model_dump(),
        "version": __version__,
    }
    best = captions[0].attention
    attention = best.to_json() if options.attention and best is not None else None
    return Answer([_caption_document(each) for each in captions], attention, model, timings)


def _caption_document(found: Caption) -> dict[str, Any]:
    words = [{"word": word.text, "logprob": round(word.logprob, 5)} for word in found.words]
    return {"text": found.text, "score": round(found.score, 5), "words": words}


def _decoding(options: CaptionOptions) -> DecodingOptions:
    return DecodingOptions(
        beam_size=options.beam_size,
        num_captions=options.num_captions,
        max_length=options.max_length,
        length_penalty=options.length_penalty,
        attention=options.attention,
    )


def _info(name: str, checkpoint: Checkpoint, seconds: float) -> CaptionerInfo:
    card = checkpoint.card
    return CaptionerInfo(
        name=name,
        weights_sha256=checkpoint.sha256,
        features={stream: asdict(spec) for stream, spec in card.streams.items()},
        scores=dict(card.scores),
        seconds=round(seconds, 3),
    )


def _grey(request: DecodeRequest) -> Frames:
    """A video as short as the request's windows allow."""
    count, side, rate = request.sampling.count, request.short_side, 1.0
    if request.windows:
        count = max(windows.stack_size + windows.ahead for windows in request.windows)
        rate = min(windows.extraction_fps or 25.0 for windows in request.windows)
    pixels = np.full((count, side, side, 3), 128, np.uint8)
    return Frames(pixels, np.arange(count, dtype=np.float64) / rate, count / rate)


def _tell_nobody(stage: Stage, share: float) -> None:
    """Progress that nobody asked for."""
