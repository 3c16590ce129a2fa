"""A folder in which clips are judged by eye: a contact sheet of each, its captions, and their marks.

    DIR/judging.json         clips, captions, who wrote which, and every mark
    DIR/sheets/0007.jpg      frames of the eighth clip, evenly spread

A caption that several captioners wrote is judged once. Marks: *right* names the main thing and its action or
setting without an error, *partly* has something true and central beside an error or a gap, *wrong* has the
main thing wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from pydantic import BaseModel, ConfigDict, ValidationError

from app.documents.verdict import Verdict
from app.errors import UsageError
from extractors.files import atomic_write

Mark = Literal["right", "partly", "wrong"]
MARKS: tuple[Mark, ...] = get_args(Mark)
STATE = "judging.json"
COLUMNS, CELL = 4, (320, 240)  #: frames in a row of a contact sheet, and the pixels of each
GROUND = (24, 24, 24)


class JudgedCaption(BaseModel):
    """A caption of one clip. captioners: all that wrote it, in the order in which they were asked."""

    model_config = ConfigDict(frozen=True)

    text: str
    captioners: tuple[str, ...]
    mark: Mark | None = None


class JudgedClip(BaseModel):
    """A clip. captions: in an order that does not tell who wrote them."""

    model_config = ConfigDict(frozen=True)

    name: str
    captions: tuple[JudgedCaption, ...]

    @property
    def is_judged(self) -> bool:
        return all(caption.mark is not None for caption in self.captions)


class Seconds(BaseModel):
    """Sums what a captioner took over clips, from decoded frames to features and from there to captions."""

    model_config = ConfigDict(frozen=True)

    features: float = 0.0
    captions: float = 0.0
    clips: int = 0

    def plus(self, features: float, captions: float) -> Seconds:
        """The sums with one clip more."""
        return Seconds(
            features=self.features + features, captions=self.captions + captions, clips=self.clips + 1
        )


class WrittenCaption(BaseModel):
    """Holds what one captioner wrote of one clip, and the seconds that it took."""

    model_config = ConfigDict(frozen=True)

    text: str
    feature_seconds: float
    caption_seconds: float


class _State(BaseModel):
    version: Literal[1] = 1
    clips: tuple[JudgedClip, ...] = ()
    seconds: Mapping[str, Seconds] = {}


@dataclass(frozen=True)
class Score:
    """Marks of one captioner. n: clips of which its caption was judged."""

    right: int
    partly: int
    wrong: int

    @property
    def n(self) -> int:
        return self.right + self.partly + self.wrong

    @property
    def per_cent(self) -> float:
        """Right captions, and half of those partly right, of 100."""
        return 100 * (self.right + self.partly / 2) / self.n if self.n else 0.0


class JudgingSession:
    """Reads and writes one such folder. Raises UsageError where its file cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / STATE
        self._state = self._read()

    @property
    def clips(self) -> tuple[JudgedClip, ...]:
        return self._state.clips

    def sheet(self, clip: int) -> Path:
        """The contact sheet of a clip."""
        return self.folder / "sheets" / f"{clip:04}.jpg"

    @property
    def seconds(self) -> Mapping[str, Seconds]:
        """Captioner → what it took on this machine."""
        return self._state.seconds

    def add(self, name: str, frames: NDArray[np.uint8], captions: Mapping[str, WrittenCaption]) -> None:
        """Puts a clip behind the others.

        Args:
            name: of the clip, once in a folder.
            frames: uint8 (T, H, W, 3), those that the captioners looked at.
            captions: captioner → what it wrote.
        """
        writers: dict[str, list[str]] = {}
        seconds = dict(self.seconds)
        for captioner, written in captions.items():
            writers.setdefault(written.text, []).append(captioner)
            sums = seconds.get(captioner, Seconds())
            seconds[captioner] = sums.plus(written.feature_seconds, written.caption_seconds)
        judged = tuple(JudgedCaption(text=text, captioners=tuple(writers[text])) for text in sorted(writers))
        sheet = self.sheet(len(self.clips))
        with atomic_write(sheet) as unfinished:
            draw_sheet(frames).save(unfinished, "JPEG", quality=85)
        clips = (*self.clips, JudgedClip(name=name, captions=judged))
        self._write(_State(clips=clips, seconds=seconds))

    def mark(self, clip: int, caption: int, mark: Mark | None) -> None:
        """Marks a caption, or takes its mark back.

        Args:
            clip: its place in ``clips``.
            caption: its place among the clip's.
            mark: None takes the mark back.

        Raises:
            IndexError: there is no such caption.
        """
        clips = list(self.clips)
        captions = list(clips[clip].captions)
        captions[caption] = captions[caption].model_copy(update={"mark": mark})
        clips[clip] = clips[clip].model_copy(update={"captions": tuple(captions)})
        self._write(self._state.model_copy(update={"clips": tuple(clips)}))

    def take_verdicts(self, lines: Iterable[str]) -> int:
        """Marks captions by what people said of them on the page, as ``GET /verdicts`` lists it.

        A clip that is not in the folder comes in without a sheet, its one caption marked. Where several
        people judged a caption the last line counts.

        Args:
            lines: of the list, the newest jobs first.

        Returns:
            How many captions were marked.

        Raises:
            UsageError: a line is no verdict.
        """
        marks: dict[tuple[str, str], tuple[str, Mark]] = {}
        for line in filter(str.strip, lines):
            try:
                verdict = Verdict.model_validate_json(line)
            except ValidationError as error:
                raise UsageError(f"No verdict of GET /verdicts: {line[:80].strip()}") from error
            marks[verdict.file, verdict.caption] = (verdict.captioner or "", verdict.verdict)
        for (name, text), (captioner, mark) in marks.items():
            self._mark_or_add(name, JudgedCaption(text=text, captioners=(captioner,), mark=mark))
        return len(marks)

    def _mark_or_add(self, name: str, judged: JudgedCaption) -> None:
        for place, clip in enumerate(self.clips):
            texts = [caption.text for caption in clip.captions]
            if clip.name == name and judged.text in texts:
                self.mark(place, texts.index(judged.text), judged.mark)
                return
        clips = (*self.clips, JudgedClip(name=name, captions=(judged,)))
        self._write(self._state.model_copy(update={"clips": clips}))

    def scores(self) -> dict[str, Score]:
        """Captioner → its marks, best first; captions without a mark do not count."""
        marks: dict[str, list[Mark]] = {}
        for clip in self.clips:
            for caption in clip.captions:
                for captioner in caption.captioners:
                    marks.setdefault(captioner, []).extend([caption.mark] if caption.mark else [])
        scores = {name: Score(*(each.count(mark) for mark in MARKS)) for name, each in marks.items()}
        return dict(sorted(scores.items(), key=lambda item: (-item[1].per_cent, item[0])))

    def _read(self) -> _State:
        if not self._file.exists():
            return _State()
        try:
            return _State.model_validate_json(self._file.read_bytes())
        except (OSError, ValidationError) as error:
            raise UsageError(f"{self._file} is no file of judge's: choose another --out.") from error

    def _write(self, state: _State) -> None:
        with atomic_write(self._file) as unfinished:
            unfinished.write_text(state.model_dump_json(indent=1) + "\n", encoding="utf-8")
        self._state = state


def draw_sheet(frames: NDArray[np.uint8]) -> Image.Image:
    """A contact sheet of frames, uint8 (T, H, W, 3), from left to right and from top to bottom."""
    rows = -(-len(frames) // COLUMNS)
    sheet = Image.new("RGB", (min(len(frames), COLUMNS) * CELL[0], rows * CELL[1]), GROUND)
    for place, frame in enumerate(frames):
        cell = ImageOps.pad(Image.fromarray(frame), CELL, color=GROUND)
        sheet.paste(cell, (place % COLUMNS * CELL[0], place // COLUMNS * CELL[1]))
    return sheet


def card_scores(score: Score, clips: int) -> dict[str, dict[str, int]]:
    """The entry of a captioner's card, by which the default captioner is chosen (captioner_choice.py)."""
    counts = {"right": score.right, "partly": score.partly, "wrong": score.wrong, "n": score.n}
    return {f"{clips} clips judged by eye": counts}


def score_rows(scores: Mapping[str, Score]) -> list[tuple[str, ...]]:
    """The table's rows: captioner, right, partly, wrong, judged, right and half of partly in per cent."""
    return [
        (name, str(each.right), str(each.partly), str(each.wrong), str(each.n), f"{each.per_cent:.0f}")
        for name, each in scores.items()
    ]


def unjudged(clips: Sequence[JudgedClip]) -> Iterable[int]:
    """The places of clips that have a caption without a mark."""
    return (place for place, clip in enumerate(clips) if not clip.is_judged)
