"""The one path from files to captions with their attention: decode → extract → caption.

``caption_videos`` is the path in one process (the command line). The worker runs the same parts in two: its
decoder reads the frames, and ``Engine``, below, in a process of its own, does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from app import __version__
from app.errors import CaptionerUnavailable, JobFailure
from app.jobs.captioner_choice import CaptionerChoice
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, ignore_progress
from app.pipeline.loaded_captioners import LoadedCaptioners
from app.settings import Settings
from extractors.engines.engine_choice import choose_device
from extractors.features import Footage, Frames, Stream
from extractors.media.request import DecodeRequest
from models.caption import Caption
from models.combining.caption_writers import Writer
from models.decoding.options import DecodingOptions
from models.feature_sources.feature_source import StreamSource


class Engine:
    """Every captioner that there is, alone or combined, and the extractors that they need, loaded once.

    A request runs the extractors of its own captioner, or of all its members, and each of them once. Raises
    EngineStartFailed where no captioner can be had, and what loading a damaged one raises.
    """

    def __init__(self, settings: Settings) -> None:
        self.device = choose_device(settings.device)
        torch.set_num_threads(settings.threads)
        self._roster = LoadedCaptioners(settings, self.device)
        self._requests = self._roster.requests()
        self.info = self._info({})

    def request_for(self, options: CaptionOptions) -> DecodeRequest:
        """The frames that the extractors of its captioner, or of all its members, want."""
        return self.info.request_for(options)

    def warm_up(self) -> EngineInfo:
        """Captions a grey video with each captioner, and says what they are and how long they take."""
        seconds = {}
        for name in self._roster.captioner_choices.names:
            options = CaptionOptions(captioner=name)
            began = time.perf_counter()
            self.describe_and_caption([_grey(self.request_for(options))], [options], ignore_progress)
            seconds[name] = round(time.perf_counter() - began, 3)
        self.info = self._info(seconds)
        return self.info

    def _info(self, seconds: Mapping[str, float]) -> EngineInfo:
        infos = [info.model_copy(update={"seconds": seconds.get(info.name)}) for info in self._roster.infos]
        default = self._roster.captioner_choices.default
        first = self._requests.get(default or "", next(iter(self._requests.values())))
        return EngineInfo(self.device, tuple(infos), first, self._requests, default)

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        """Features of all videos together, then captions, together where the options are the same."""
        began = time.perf_counter()
        report("extract", 0.0)
        plans = [self._plan(given) for given in options]
        features = _describe(videos, plans)
        timings = {"extract": time.perf_counter() - began}
        answers: list[EngineAnswer | JobFailure] = [CaptionerUnavailable("")] * len(videos)
        done = 0
        for wanted in dict.fromkeys(options):
            places = [place for place, given in enumerate(options) if given == wanted]
            report("caption", done / len(videos))
            inputs = plans[places[0]]
            if isinstance(inputs, JobFailure):
                found: Sequence[EngineAnswer | JobFailure] = [inputs] * len(places)
            else:
                found = self._caption(inputs, [features[place] for place in places], wanted, timings)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
            done += len(places)
        return answers

    def _plan(self, options: CaptionOptions) -> CaptionPlan | JobFailure:
        try:
            choice = self._roster.captioner_choices.resolve(options)
            return CaptionPlan(choice, self._roster.writer(choice), self._roster.feature_source(choice))
        except JobFailure as failure:
            return failure

    def _caption(
        self,
        inputs: CaptionPlan,
        features: Sequence[dict[str, Stream]],
        options: CaptionOptions,
        timings: Mapping[str, float],
    ) -> list[EngineAnswer]:
        began = time.perf_counter()
        captions = inputs.writer.caption(features, _decoding(options))
        spent = {**timings, "caption": time.perf_counter() - began}
        return [
            EngineAnswer(
                [_caption_document(each) for each in best_first],
                _attention(best_first[0], options),
                self._model(inputs, streams, options),
                spent,
            )
            for best_first, streams in zip(captions, features, strict=True)
        ]

    def _model(
        self, inputs: CaptionPlan, streams: Mapping[str, Stream], options: CaptionOptions
    ) -> dict[str, Any]:
        """Which weights wrote, from which features, with which options; those left open are filled in."""
        choice = inputs.choice
        known = {info.name: info.weights_sha256 for info in self._roster.infos}
        filled = options.model_copy(update={"captioner": choice.captioner, "members": choice.members or None})
        return {
            "captioner": choice.captioner,
            "weights_sha256": self._roster.digest(choice),
            "members": {name: known[name] for name in choice.members} or None,
            "features": inputs.provenance(streams),
            "options": filled.model_dump(),
            "version": __version__,
        }


@dataclass(frozen=True, eq=False)
class CaptionPlan:
    """One way to caption: who writes, and what feeds them."""

    choice: CaptionerChoice
    writer: Writer
    feature_source: StreamSource

    def provenance(self, streams: Mapping[str, Stream]) -> dict[str, Any]:
        """The name tag of each stream that was used, with how its frames were chosen."""
        specs = {name: streams[name].spec for name in self.writer.streams if name in streams}
        return {
            name: {**asdict(spec), "sampling": self.feature_source.sampling_of(name) or spec.sampling}
            for name, spec in specs.items()
        }


def _describe(videos: Sequence[Frames], plans: Sequence[CaptionPlan | JobFailure]) -> list[dict[str, Stream]]:
    """For each video the streams of its own captioners; none for one that nobody will caption."""
    streams: list[dict[str, Stream]] = [{} for _ in videos]
    sources = [None if isinstance(inputs, JobFailure) else inputs.feature_source for inputs in plans]
    for source in dict.fromkeys(each for each in sources if each is not None):
        places = [place for place, each in enumerate(sources) if each is source]
        found = source.extract([videos[place] for place in places])
        for place, described in zip(places, found, strict=True):
            streams[place] = described
    return streams


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
