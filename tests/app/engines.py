"""An engine for tests of jobs: a real process that does, for each job, what its captioner's name says.

``echo`` answers; ``sleep-2`` takes two seconds; ``sign-2`` too, and writes its process's id behind the
caption; ``segfault`` dies by a signal; ``exit-7`` leaves; ``hang`` holds the interpreter's lock for ever, as
native code can; ``raise`` meets an error; ``refuse`` cannot do this one; ``once`` answers one request and
dies of the next; ``dark`` dies of videos that are dark.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.documents.job import Answer, Model, Timings
from app.errors import CaptionerUnknown, JobFailure
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, SemanticVectors
from app.settings import Settings
from extractors.features import Frames
from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.caption import AttentionDocument, ScoredCaption, ScoredWord
from tests.app.segments.colour_space import ColourSpace


class Obedient:
    def __init__(self, settings: Settings) -> None:
        self._device = settings.device
        self._asked = 0

    def warm_up(self) -> EngineInfo:
        captioner = CaptionerInfo(name="echo", weights_sha256="0" * 64, features={})
        return EngineInfo(self._device, (captioner,), DecodeRequest(Sampling(count=4), short_side=32))

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        self._asked += 1
        report("extract", 0.5)
        answers: list[EngineAnswer | JobFailure] = []
        for frames, wanted in zip(videos, options, strict=True):
            obey(self._command(wanted.captioner or "echo", frames))
            answers.append(self._answer(frames, wanted, len(videos)))
        report("caption", 0.5, "of colours")
        return answers

    def _command(self, command: str, frames: Frames) -> str:
        dies = {"once": self._asked > 1, "dark": frames.pixels.mean() < 40}
        return "segfault" if dies.get(command) else command

    def embed(self, pictures: Sequence[Frames], sentences: Sequence[str]) -> SemanticVectors | None:
        """Each is in a direction of its own, and nothing like anything."""
        count = len(pictures) + len(sentences)
        any_way = np.random.default_rng().normal(0, 1 / 32, (count, 1024)).astype(np.float32)
        return SemanticVectors(any_way[: len(pictures)], any_way[len(pictures) :])

    def _answer(self, frames: Frames, wanted: CaptionOptions, together: int) -> EngineAnswer | JobFailure:
        if wanted.captioner == "refuse":
            return CaptionerUnknown("There is no captioner called refuse.")
        red, green, blue = frames.pixels.mean(axis=(0, 1, 2))
        text = f"{len(frames)} frames of {red:.0f} {green:.0f} {blue:.0f}"
        if (wanted.captioner or "").startswith("sign"):
            text = f"{text} by {os.getpid()}"
        said = answer_of(
            text, wanted.captioner or "echo", together=together, pid=os.getpid(), segments=wanted.segments
        )
        return EngineAnswer(said, even_attention(text.split(), frames) if wanted.attention else None)


class Joining(Obedient):
    """An engine to which pictures are alike that have one colour."""

    def embed(self, pictures: Sequence[Frames], sentences: Sequence[str]) -> SemanticVectors | None:
        space = ColourSpace()
        colours = [text.partition(" of ")[2] for text in sentences]
        return SemanticVectors(
            space.pictures([each.pixels[0] for each in pictures]), space.sentences(colours)
        )


class Unmeasured(Obedient):
    """Has captioners that are measured later, one of which dies of it."""

    def warm_up(self) -> EngineInfo:
        names = ("echo", "deadly", "late")
        infos = tuple(CaptionerInfo(name=name, weights_sha256="0" * 64, features={}) for name in names)
        info = replace(super().warm_up(), captioners=infos, unmeasured=names)
        return info.measured("echo", 0.5)

    def measure(self, captioner: str) -> float:
        if captioner == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        return 2.0


class SlowToMeasure(Unmeasured):
    """Takes a minute to measure a captioner, as one does whose network is converted first."""

    def measure(self, captioner: str) -> float:
        time.sleep(60)
        return 60.0


class Measured(Obedient):
    """Says that a caption takes two seconds, by those of its captioners that anybody measured."""

    def warm_up(self) -> EngineInfo:
        infos = tuple(
            CaptionerInfo(name=name, weights_sha256="0" * 64, features={}, seconds=seconds)
            for name, seconds in (("echo", 2.0), ("sleep-0", None))
        )
        return replace(super().warm_up(), captioners=infos)


def even_attention(words: list[str], frames: Frames) -> str:
    """The document of a captioner that looks at all frames alike."""
    times = [[float(seconds), float(seconds) + 0.1] for seconds in frames.pts]
    even: list[list[float] | None] = [[1 / len(times)] * len(times) for _ in words]
    return AttentionDocument(words=words, times=times, temporal=even).model_dump_json()


def answer_of(text: str, captioner: str, **options: object) -> Answer:
    """One caption. options: what the model says of itself."""
    words = [ScoredWord(word=word, logprob=-0.1) for word in text.split()]
    return Answer(
        caption=text,
        captions=[ScoredCaption(text=text, score=-1.0, words=words)],
        model=Model(captioner=captioner, options=dict(options)),
        timings=Timings(extract=0.0, caption=0.0),
    )


class Fed(Obedient):
    """Answers from streams as ``Obedient`` does from frames: ``echo`` and ``shout`` share theirs, ``other``
    has its own. What the model says of itself tells which of both it was given, and by whom.
    """

    def warm_up(self) -> EngineInfo:
        fed = {"echo": "colours", "shout": "colours", "other": "hues"}
        return replace(super().warm_up(), feature_identities=fed)

    def describe_and_caption(
        self, videos: Sequence[Frames | bytes], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        report("extract", 0.5)
        return [self._answer_from(video, wanted) for video, wanted in zip(videos, options, strict=True)]

    def _answer_from(self, video: Frames | bytes, wanted: CaptionOptions) -> EngineAnswer:
        packed = video if isinstance(video, bytes) else self._described(video)
        known = json.loads(packed)
        name = str(wanted.captioner)
        text = known["text"].upper() if name == "shout" else known["text"]
        given = "streams" if isinstance(video, bytes) else "frames"
        attention = AttentionDocument(
            words=text.split(),
            times=known["times"],
            temporal=[[1 / len(known["times"])] * len(known["times"]) for _ in text.split()],
        )
        answer = answer_of(text, name, given=given, pid=os.getpid())
        return EngineAnswer(answer, attention.model_dump_json(), lambda: packed)

    def _described(self, frames: Frames) -> bytes:
        red, green, blue = frames.pixels.mean(axis=(0, 1, 2))
        times = [[float(seconds), float(seconds) + 0.1] for seconds in frames.pts]
        return json.dumps({"text": f"{red:.4f} {green:.4f} {blue:.4f}", "times": times}).encode()


class SlowToLoad(Obedient):
    """Takes a minute to load its models."""

    def warm_up(self) -> EngineInfo:
        time.sleep(60)
        return super().warm_up()


class Broken:
    """An engine whose models do not load."""

    def __init__(self, settings: Settings) -> None:
        raise FileNotFoundError("weights/none.safetensors")


def obey(command: str) -> None:
    verb, _, argument = command.partition("-")
    if verb in ("sleep", "sign"):
        time.sleep(float(argument))
    elif verb == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif verb == "exit":
        os._exit(int(argument))
    elif verb == "hang":
        ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the interpreter's lock
    elif verb == "raise":
        raise RuntimeError("the engine does not like this one")
