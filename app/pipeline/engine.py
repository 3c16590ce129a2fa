"""Goes the one way from frames to captions with their attention: extract → caption.

``caption_videos`` is the path in one process (the command line). The worker runs the same parts in two: its
decoder reads the frames, and ``Engine``, below, in a process of its own, does the rest.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from app import __version__
from app.documents.job import Answer, Model, Note, Timings
from app.errors import CaptionerUnknown, JobFailure, OptionNotTaken, PromptNotTaken
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, SemanticVectors, ignore_progress
from app.pipeline.loaded_captioners import CaptionInputs, CaptionPlan, LoadedCaptioners
from app.settings import Settings
from extractors.engines.engine_choice import choose_device
from extractors.features import Features, Footage, Frames
from extractors.media.bars import without_bars
from extractors.media.request import DecodeRequest
from extractors.video_features.packed_streams import count_bytes, pack_streams, unpack_streams
from extractors.windows import Sampling
from models.caption import Caption, ScoredCaption, join_words
from models.feature_sources.feature_source import extract_together
from models.pretrained.errors import OptionRefused
from models.video_category import add_category

LARGEST_STREAMS = 256 * 2**20  #: bytes of one video's streams that are packed to be kept
TELL_SECONDS = 0.1  #: between two reports of what is written so far


class Engine:
    """Holds every captioner that there is, alone or combined, and the extractors that they need, loaded once.

    A request runs the extractors of its own captioner, or of all its members, and each of them once. Raises
    EngineStartFailed where no captioner can be had, and what loading a damaged one raises.
    """

    def __init__(self, settings: Settings) -> None:
        self.device = choose_device(settings.device)
        torch.set_num_threads(settings.threads)
        self._captioners = LoadedCaptioners(settings, self.device)
        self._requests = self._captioners.requests()
        self._compiled = set[str]()  # captioners whose networks have been used
        default = self._captioners.captioner_choices.default
        self.info = EngineInfo(
            device=self.device,
            captioners=tuple(self._captioners.infos),
            request=self._requests.get(default or "", next(iter(self._requests.values()))),
            requests=self._requests,
            default=default,
            feature_identities=self._captioners.feature_identities(),
            unmeasured=tuple(self._captioners.captioner_choices.names),
        )

    def warm_up(self) -> EngineInfo:
        """Captions a grey video with the default captioner, and returns what the engine can do.

        Captioners are measured later, one at a time (``measure``): the start does not wait for that.
        """
        if self.info.default is not None:
            self._compile(self.info.default)
        return self.info

    def measure(self, captioner: str) -> float:
        self._compile(captioner)
        began = time.perf_counter()
        self._caption_grey(captioner)
        return round(time.perf_counter() - began, 3)

    def _compile(self, captioner: str) -> None:
        """Uses the networks for the first time, which compiles them; no job is to be told of that."""
        if captioner not in self._compiled and captioner not in self._captioners.pretrained:
            self._caption_grey(captioner)
            self._compiled.add(captioner)

    def _caption_grey(self, captioner: str) -> None:
        options = self.info.resolve(CaptionOptions(captioner=captioner))
        frames = _grey(self.info.request_for(options.choice))
        self.describe_and_caption([frames], [options], ignore_progress)

    def describe_and_caption(
        self, videos: Sequence[Frames | bytes], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        began = time.perf_counter()
        report("extract", 0.0)
        plans = [self._plan(each) for each in options]
        inputs = _extract(videos, plans, options)
        timings = {"extract": round(time.perf_counter() - began, 4)}
        answers: dict[int, EngineAnswer | JobFailure] = {}
        for places in _alike(options):
            report("caption", len(answers) / len(videos))
            plan = plans[places[0]]
            if isinstance(plan, JobFailure):
                batch: Sequence[EngineAnswer | JobFailure] = [plan] * len(places)
            else:
                of_each = [options[place] for place in places]
                if len(videos) == 1:
                    of_each = [of_each[0].heard_by(_tell_words(report))]
                batch = self._caption(plan, [inputs[place] for place in places], of_each, timings)
            answers.update(zip(places, batch, strict=True))
        return [answers[place] for place in range(len(videos))]

    def embed(self, pictures: Sequence[Frames], sentences: Sequence[str]) -> SemanticVectors | None:
        """Embeds pictures (each a video of one frame) and sentences; None without a semantic embedding."""
        space = self._captioners.semantic_space
        if space is None:
            return None
        return SemanticVectors(
            space.pictures([picture.pixels[0] for picture in pictures]), space.sentences(sentences)
        )

    def _plan(self, options: CaptionOptions) -> CaptionPlan | JobFailure:
        choice = options.choice
        if choice is None:
            return CaptionerUnknown("No captioner was chosen to write the caption.")
        try:
            self._captioners.captioner_choices.check(choice)
            self._captioners.captioner_choices.check_options(choice, options)
            return self._captioners.plan(choice)
        except JobFailure as failure:
            return failure

    def _caption(
        self,
        plan: CaptionPlan,
        videos: Sequence[CaptionInputs],
        options: Sequence[CaptionOptions],
        timings: Mapping[str, float],
    ) -> Sequence[EngineAnswer | JobFailure]:
        """Captions videos whose options differ in nothing but how a film is cut."""
        began = time.perf_counter()
        try:
            captions = _write(plan, videos, options[0])
        except OptionRefused as refused:
            if refused.option != "prompt":
                return [OptionNotTaken(f"{refused.option} is refused: {refused.why}.")] * len(videos)
            return [PromptNotTaken(f"The prompt is refused: {refused.why}.")] * len(videos)
        spent = {**timings, "caption": round(time.perf_counter() - began, 4)}
        return [
            _answer(best_first, self._model(plan, video, of_video), Timings(**spent), video.streams)
            for best_first, video, of_video in zip(captions, videos, options, strict=True)
        ]

    def _model(self, plan: CaptionPlan, video: CaptionInputs, options: CaptionOptions) -> Model:
        """Names the weights that wrote, the features and the options."""
        choice = plan.choice
        digests = {info.name: info.weights_sha256 for info in self._captioners.infos}
        return Model(
            captioner=choice.captioner,
            weights_sha256=self._captioners.digest(choice),
            members={name: digests[name] for name in choice.members} or None,
            features=plan.provenance(video),
            options=options.model_dump(),
            version=__version__,
        )


def _tell_words(report: Report) -> Callable[[Sequence[str]], None]:
    """Reports what is written so far, not more often than people read."""
    last = -TELL_SECONDS

    def tell(words: Sequence[str]) -> None:
        nonlocal last
        now = time.monotonic()
        if words and now - last >= TELL_SECONDS:
            last = now
            report("caption", 0.0, join_words(words))

    return tell


def _extract(
    videos: Sequence[Frames | bytes],
    plans: Sequence[CaptionPlan | JobFailure],
    options: Sequence[CaptionOptions],
) -> list[CaptionInputs]:
    """Computes each video's streams where it does not come as such; none where its plan has failed."""
    inputs = [_to_inputs(*each) for each in zip(videos, options, strict=True)]
    waiting = {
        place: plan.feature_source
        for place, (video, plan) in enumerate(zip(videos, plans, strict=True))
        if isinstance(video, Frames) and not isinstance(plan, JobFailure) and plan.feature_source is not None
    }
    extracted = extract_together([(source, inputs[place].frames) for place, source in waiting.items()])
    for place, features in zip(waiting, extracted, strict=True):
        inputs[place] = CaptionInputs(inputs[place].frames, features)
    return inputs


def _alike(options: Sequence[CaptionOptions]) -> list[list[int]]:
    """Groups the places of options that differ in nothing but how a film is cut."""
    groups: dict[CaptionOptions, list[int]] = {}
    for place, each in enumerate(options):
        groups.setdefault(each.model_copy(update={"segments": None, "segment_captioner": None}), []).append(
            place
        )
    return list(groups.values())


def _to_inputs(video: Frames | bytes, options: CaptionOptions) -> CaptionInputs:
    """Makes the inputs of a video; one that comes as streams shows no frames."""
    if isinstance(video, Frames):
        return CaptionInputs(without_bars(video) if options.bars == "leave_out" else video, {})
    return CaptionInputs(Frames(np.zeros((0, 1, 1, 3), np.uint8), np.zeros(0), 0.0), unpack_streams(video))


def _pack(streams: Features) -> bytes | None:
    return pack_streams(streams) if count_bytes(streams) <= LARGEST_STREAMS else None


def _answer(best_first: Sequence[Caption], model: Model, timings: Timings, streams: Features) -> EngineAnswer:
    best = best_first[0]
    captions = [ScoredCaption(**each.model_dump(exclude={"attention"})) for each in best_first]
    empty = [] if best.text else [Note(code="empty_caption", message="The captioner wrote no word.")]
    answer = Answer(caption=best.text, captions=captions, model=model, timings=timings, warnings=empty)
    attention = None if best.attention is None else best.attention.model_dump_json()
    return EngineAnswer(answer, attention, partial(_pack, streams) if streams else None)


def _write(
    plan: CaptionPlan, videos: Sequence[CaptionInputs], options: CaptionOptions
) -> list[list[Caption]]:
    """Writes captions together, or one by one where words are drawn: by its seed, whatever is beside it."""
    if options.category is not None:
        videos = [replace(each, streams=add_category(each.streams, options.category)) for each in videos]
    groups = [[each] for each in videos] if options.method == "sample" else [videos]
    written = [plan.caption(group, options, options.prompt) for group in groups]
    return [best_first for of_group in written for best_first in of_group]


def _grey(request: DecodeRequest) -> Footage:
    """Makes a video as short as the request's windows allow."""
    count, side, rate = (request.sampling or Sampling()).count, request.short_side or 256, 1.0
    if request.windows:
        count = max(windows.stack_size + windows.ahead for windows in request.windows)
        rate = min(windows.extraction_fps or 25.0 for windows in request.windows)
    pixels = np.full((count, side, side, 3), 128, np.uint8)
    return Footage(pixels, np.arange(count, dtype=np.float64) / rate, count / rate)
