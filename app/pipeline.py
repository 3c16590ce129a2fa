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
import torch
from numpy.typing import NDArray

from app import __version__, results
from app.answer import Answer, EngineInfo, Report
from app.errors import CaptionerUnavailable, JobFailure
from app.menu import Choice
from app.named_error import NamedError
from app.options import CaptionOptions
from app.roster import Roster
from app.settings import Settings
from app.states import Stage, State
from extractors.decoder import Decoder
from extractors.device import chosen_device
from extractors.errors import MediaError
from extractors.features import Frames, Stream
from extractors.request import Decoded, DecodeRequest, Footage, Limits
from models.caption import Caption
from models.decoding_options import DecodingOptions
from models.feed import Source
from models.writers import Writer


class Engine:
    """Every captioner that there is, alone or combined, and the extractors that they need, loaded once.

    A request runs the extractors of its own captioner, or of all its members, and each of them once. Raises
    EngineStartFailed where no captioner can be had, and what loading a damaged one raises.
    """

    def __init__(self, settings: Settings) -> None:
        self.device = chosen_device(settings.device)
        torch.set_num_threads(settings.threads)
        self._roster = Roster(settings, self.device)
        self._requests = self._roster.requests()
        self.info = self._info({})

    def request_for(self, options: CaptionOptions) -> DecodeRequest:
        """The frames that the extractors of its captioner, or of all its members, want."""
        return self.info.request_for(options)

    def warm_up(self) -> EngineInfo:
        """Captions a grey video with each captioner, and says what they are and how long they take."""
        seconds = {}
        for name in self._roster.menu.names:
            options = CaptionOptions(captioner=name)
            began = time.perf_counter()
            self.describe_and_caption([_grey(self.request_for(options))], [options], _tell_nobody)
            seconds[name] = round(time.perf_counter() - began, 3)
        self.info = self._info(seconds)
        return self.info

    def _info(self, seconds: Mapping[str, float]) -> EngineInfo:
        infos = [info.model_copy(update={"seconds": seconds.get(info.name)}) for info in self._roster.infos]
        default = self._roster.menu.default
        first = self._requests.get(default or "", next(iter(self._requests.values())))
        return EngineInfo(self.device, tuple(infos), first, self._requests, default)

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[Answer | JobFailure]:
        """Features of all videos together, then captions, together where the options are the same."""
        began = time.perf_counter()
        report("extract", 0.0)
        meals = [self._meal(given) for given in options]
        features = _describe(videos, meals)
        timings = {"extract": time.perf_counter() - began}
        answers: list[Answer | JobFailure] = [CaptionerUnavailable("")] * len(videos)
        done = 0
        for wanted in dict.fromkeys(options):
            places = [place for place, given in enumerate(options) if given == wanted]
            report("caption", done / len(videos))
            meal = meals[places[0]]
            if isinstance(meal, JobFailure):
                found: Sequence[Answer | JobFailure] = [meal] * len(places)
            else:
                found = self._caption(meal, [features[place] for place in places], wanted, timings)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
            done += len(places)
        return answers

    def _meal(self, options: CaptionOptions) -> Meal | JobFailure:
        try:
            choice = self._roster.menu.choose(options)
            return Meal(choice, self._roster.writer(choice), self._roster.feed(choice))
        except JobFailure as failure:
            return failure

    def _caption(
        self,
        meal: Meal,
        features: Sequence[dict[str, Stream]],
        options: CaptionOptions,
        timings: Mapping[str, float],
    ) -> list[Answer]:
        began = time.perf_counter()
        captions = meal.writer.caption(features, _decoding(options))
        spent = {**timings, "caption": time.perf_counter() - began}
        return [
            Answer(
                [_caption_document(each) for each in best_first],
                _attention(best_first[0], options),
                self._model(meal, streams, options),
                spent,
            )
            for best_first, streams in zip(captions, features, strict=True)
        ]

    def _model(self, meal: Meal, streams: Mapping[str, Stream], options: CaptionOptions) -> dict[str, Any]:
        """Which weights wrote, from which features, with which options; those left open are filled in."""
        choice = meal.choice
        known = {info.name: info.weights_sha256 for info in self._roster.infos}
        filled = options.model_copy(update={"captioner": choice.captioner, "members": choice.members or None})
        return {
            "captioner": choice.captioner,
            "weights_sha256": self._roster.digest(choice),
            "members": {name: known[name] for name in choice.members} or None,
            "features": meal.provenance(streams),
            "options": filled.model_dump(),
            "version": __version__,
        }


@dataclass(frozen=True, eq=False)
class Meal:
    """One way to caption: who writes, and what feeds them."""

    choice: Choice
    writer: Writer
    feed: Source

    def provenance(self, streams: Mapping[str, Stream]) -> dict[str, Any]:
        """The name tag of each stream that was used, with how its frames were chosen."""
        specs = {name: streams[name].spec for name in self.writer.streams if name in streams}
        return {
            name: {**asdict(spec), "sampling": self.feed.sampling_of(name) or spec.sampling}
            for name, spec in specs.items()
        }


def _describe(videos: Sequence[Frames], meals: Sequence[Meal | JobFailure]) -> list[dict[str, Stream]]:
    """For each video the streams of its own captioners; none for one that nobody will caption."""
    streams: list[dict[str, Stream]] = [{} for _ in videos]
    feeds = [None if isinstance(meal, JobFailure) else meal.feed for meal in meals]
    for feed in dict.fromkeys(each for each in feeds if each is not None):
        places = [place for place, each in enumerate(feeds) if each is feed]
        found = feed.extract([videos[place] for place in places])
        for place, described in zip(places, found, strict=True):
            streams[place] = described
    return streams


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
            decoded = decoder.decode(file, engine.request_for(options), limits)
        except MediaError as error:
            outcomes[file] = Outcome(file, {}, None, None, error)
        else:
            read[file] = decoded, results.media_answer(decoded, time.perf_counter() - began)
    videos = [decoded.footage for decoded, _ in read.values()]
    answers = engine.describe_and_caption(videos, [options] * len(videos), _tell_nobody) if videos else []
    for (file, (decoded, known)), answer in zip(read.items(), answers, strict=True):
        outcomes[file] = _outcome(file, decoded, known, answer)
    return [outcomes[file] for file in files]


def _outcome(file: Path, decoded: Decoded, known: Mapping[str, Any], answer: Answer | JobFailure) -> Outcome:
    pixels = decoded.frames.pixels
    if isinstance(answer, JobFailure):
        return Outcome(file, known, None, pixels, answer)
    return Outcome(file, results.whole_answer(known, answer), answer.attention, pixels, None)


def _attention(best: Caption, options: CaptionOptions) -> dict[str, Any] | None:
    return best.attention.to_json() if options.attention and best.attention is not None else None


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


def _grey(request: DecodeRequest) -> Footage:
    """A video as short as the request's windows allow."""
    count, side, rate = request.sampling.count, request.short_side, 1.0
    if request.windows:
        count = max(windows.stack_size + windows.ahead for windows in request.windows)
        rate = min(windows.extraction_fps or 25.0 for windows in request.windows)
    pixels = np.full((count, side, side, 3), 128, np.uint8)
    return Footage(pixels, np.arange(count, dtype=np.float64) / rate, count / rate)


def _tell_nobody(stage: Stage, share: float) -> None:
    """Progress that nobody asked for."""
