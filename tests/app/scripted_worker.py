"""What a worker leaves behind, without one: claims, answers and blobs as the API must serve them."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from PIL import Image

from app.documents.search import FoundMoment, FoundMoments
from app.errors import EngineCrashed
from app.jobs.blobs import Blobs
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.job_store import Claim, Jobs
from app.jobs.queue import Queue
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from app.search.searches import Searches

WORDS = ("a", "dog", "runs")
TIMES = ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0))
SAMPLED = (0.5, 1.5, 2.5, 3.5)
MOMENT_OF_WORD = (0, 2, 3)  #: where each word looks
CELL_OF_WORD = (0, 8, 4)  #: in a 3 × 3 grid: top left, bottom right, middle
FRAME_SIZE = (96, 64)

MEDIA = {
    "container": "mp4", "codec": "h264", "duration": 4.0, "width": 96, "height": 64, "rotation": 0,
    "fps": 25.0, "fps_average": 25.0, "frames": 100, "frames_expected": 100,
    "frames_lost": 0, "times_estimated": False,
    "has_audio": False, "audio_codec": None,
}  # fmt: skip


#: Of each word the two branches have half.
BRANCH: dict[str, Any] = {
    "kind": "weights", "name": "branch", "title": "Two ways of looking", "over": "choices",
    "choices": [{"name": "ST", "title": "followed"}, {"name": "TS", "title": "looked closely"}],
    "words": [[0.5, 0.5]] * len(WORDS),
}  # fmt: skip


def attention_document() -> dict[str, Any]:
    """Three words, four moments, nine cells: each word looks at one moment, and in it at one cell."""
    temporal = [_peak(len(TIMES), moment) for moment in MOMENT_OF_WORD]
    weights = [[_peak(9, cell)] * len(TIMES) for cell in CELL_OF_WORD]
    grid = {"kind": "grid", "rows": 3, "columns": 3, "weights": weights}
    return {
        "words": list(WORDS), "times": [list(time) for time in TIMES], "temporal": temporal, "spatial": grid,
        "extras": [BRANCH],
        "evidence": {
            "temporal": temporal, "spatial": grid, "moments": list(MOMENT_OF_WORD),
            "boxes": [None] * len(WORDS),
        },
    }  # fmt: skip


def answer(captioner: str = "stats") -> dict[str, Any]:
    words = [{"word": word, "logprob": -0.1} for word in WORDS]
    text = " ".join(WORDS)
    return {
        "media": MEDIA,
        "sampled": list(SAMPLED),
        "warnings": [{"code": "no_audio", "message": "The file has no sound."}],
        "caption": text,
        "captions": [{"text": text, "score": -0.2, "words": words}],
        "model": {"captioner": captioner, "weights_sha256": "0" * 64, "options": {"beam_size": 5}},
        "timings": {"decode": 0.1, "extract": 0.2, "caption": 0.3},
    }


def frame(number: int) -> Image.Image:
    """A plain grey, brighter with each frame."""
    return Image.new("RGB", FRAME_SIZE, (60 + 40 * number,) * 3)


class ScriptedWorker:
    """Takes one job at a time, when told to."""

    def __init__(self, jobs: Jobs, blobs: Blobs, name: str = "scripted") -> None:
        self.jobs, self.blobs, self.name = jobs, blobs, name
        self.found: list[FoundMoment] = []  #: what each search is answered with
        self._queue = Queue(jobs.server, name, lease=jobs.lease, keys=jobs.keys)
        self._queue.open()

    def advertise(self, *captioners: str | CaptionerInfo, is_ready: bool = True) -> None:
        infos = [
            CaptionerInfo(name=each, weights_sha256="0" * 64, features={}) if isinstance(each, str) else each
            for each in captioners
        ]
        info = WorkerInfo(
            name=self.name, pid=1, host="here", version="test", is_ready=is_ready, device="cpu",
            started_at=0.0, captioners=infos,
        )  # fmt: skip
        WorkerRegistry(self.jobs.server, self.jobs.keys).advertise(info)

    def take(self) -> Claim:
        (claim,) = self._claims(block=5)
        return claim

    def succeed_all(self, block: float = 0.1) -> None:
        """Ends the jobs that come within ``block`` seconds, other than those that are cancelled meanwhile."""
        for claim in self._claims(block):
            self._end(claim)

    def answer_searches(self) -> None:
        """Answers each search that waits."""
        searches = Searches(self.jobs.server, self.jobs.keys)
        while search := searches.take():
            searches.answer(search, FoundMoments(moments=self.found).model_dump_json())

    def _claims(self, block: float) -> list[Claim]:
        cause = EngineCrashed("It crashed.")
        offers = self._queue.take(1, block=block)
        taken = [
            self.jobs.claim(offer.job_id, offer.entry, offer.priority, self.name, cause=cause)
            for offer in offers
        ]
        return [claim for claim in taken if isinstance(claim, Claim)]

    def succeed(self, claim: Claim, document: Mapping[str, Any] | None = None) -> None:
        """Ends a claimed job with a caption; its attention is written unless the job refused it."""
        assert self._end(claim, document)

    def _end(self, claim: Claim, document: Mapping[str, Any] | None = None) -> bool:
        folder = claim.results
        if claim.job.options.attention:
            self.blobs.write(
                f"{folder}/attention.json", json.dumps(document or attention_document()).encode()
            )
        for number in range(len(SAMPLED)):
            out = io.BytesIO()
            frame(number).save(out, "JPEG")
            self.blobs.write(f"{folder}/frames/{number}.jpg", out.getvalue())
        return self.jobs.succeed(claim, answer(claim.job.options.captioner or "stats"))


def _peak(length: int, place: int) -> list[float]:
    """Weights that sum to one, most of it at one place."""
    rest = 0.1 / (length - 1)
    return [0.9 if k == place else rest for k in range(length)]


@contextmanager
def working(worker: ScriptedWorker, *captioners: str) -> Iterator[None]:
    """Ends all jobs as they come. captioners: are advertised all the while, since that lapses."""

    def work() -> None:
        if captioners:
            worker.advertise(*captioners)
        worker.succeed_all()
        worker.answer_searches()

    with repeating(work):
        yield


@contextmanager
def repeating(work: Callable[[], object], pause: float = 0.0) -> Iterator[None]:
    """Does some work again and again in a thread meanwhile. pause: seconds between."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(pause):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
