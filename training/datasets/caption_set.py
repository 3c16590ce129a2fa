"""Defines what any set is read into: videos with captions, and notices of what was left out and why."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from models.chinese import is_chinese, split_chinese
from models.vocabulary import split_words
from training.datasets.errors import IdsCollide, NothingToUse, UnknownSplit

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
#: Code of the notice that captioned videos have no file.
MISSING_VIDEO = "missing_video"


def parse_split(name: str) -> Split:
    """Returns the split of that name. Raises UnknownSplit."""
    for split in SPLITS:
        if split == name:
            return split
    raise UnknownSplit(f"There is no split {name!r}; there are: {', '.join(SPLITS)}.")


@dataclass(frozen=True)
class VideoItem:
    """One captioned video or picture."""

    id: str
    path: Path | None  #: its file, None where that is not there
    split: Split
    captions: tuple[str, ...]  #: without line breaks, none empty
    start: float | None = None  #: seconds of the file at which the video begins, where it is a part of it
    end: float | None = None  #: seconds at which it ends
    category: int | None = None  #: of the set's kinds of videos, where it has such
    duration: float | None = None  #: seconds, where the annotations say how long a whole file is
    is_chinese: bool = False  #: whether its set's captions are

    @property
    def seconds(self) -> float | None:
        """Its length; None where the annotations do not say it."""
        if self.start is None or self.end is None:
            return self.duration
        return self.end - self.start

    @property
    def usable(self) -> bool:
        return self.path is not None and bool(self.captions)

    def split_caption(self, caption: str) -> list[str]:
        """Splits a caption in the language of its set into words. Raises PackageMissing."""
        return split_chinese(caption) if self.is_chinese else split_words(caption, fold_accents=True)


@dataclass(frozen=True)
class Notice:
    """Something that was left out or mended; ``code`` is stable, docs/data.md lists them."""

    code: str
    message: str


@dataclass(frozen=True)
class CaptionSet:
    """A set as it lies on the disk."""

    name: str
    videos: tuple[VideoItem, ...]  #: in the annotations' order, those without file or captions included
    #: split → videos that the paper had, as far as it says
    expected: Mapping[Split, int] = field(default_factory=dict)
    annotations: tuple[Path, ...] = ()  #: the files that were read
    notices: tuple[Notice, ...] = ()

    def in_split(self, split: Split) -> tuple[VideoItem, ...]:
        """Returns the videos of a split."""
        return tuple(video for video in self.videos if video.split == split)

    @property
    def usable(self) -> tuple[VideoItem, ...]:
        return tuple(video for video in self.videos if video.usable)

    def require(self, *splits: Split, media: bool = True) -> tuple[VideoItem, ...]:
        """Returns the usable videos of these splits, of all where none is named.

        media: whether a video needs a file; its features may have been made before. Raises NothingToUse:
        there is none.
        """
        videos = self.usable if media else tuple(video for video in self.videos if video.captions)
        chosen = tuple(video for video in videos if not splits or video.split in splits)
        if not chosen:
            of = f" of the split {' or '.join(splits)}" if splits else ""
            reported = " ".join(notice.message for notice in self.notices)
            what = "both a file and a caption" if media else "a caption"
            raise NothingToUse(
                f"No video of {self.name}{of} has {what}. {reported}".strip(),
                f"See what is missing with: reelword data check {self.name} --root DIR",
            )
        return chosen


def assemble(
    name: str,
    entries: Iterable[VideoItem],
    file_name: Callable[[str], str],
    expected: Mapping[Split, int],
    annotations: Sequence[Path],
    notices: Sequence[Notice] = (),
) -> CaptionSet:
    """Makes a set of entries as their authors wrote them: cleans captions, joins doubles, reports losses.

    Args:
        name: of the set.
        entries: in the annotations' order.
        file_name: from an id to what the annotations call the file, for the notices.
        expected: how many videos a split should have.
        annotations: the files that were read.
        notices: of what was lost in reading them.

    Raises:
        IdsCollide: two different videos have one id.
        PackageMissing: the captions are Chinese, and rjieba is not installed.
    """
    counts = _Counts()
    joined = _join_entries(name, entries, counts)
    chinese = is_chinese([caption for video in joined for caption in video.captions])
    videos = [counts.clean(replace(video, is_chinese=chinese)) for video in joined]
    missing = [file_name(video.id) for video in videos if video.path is None]
    bare = [video.id for video in videos if not video.captions]
    all_notices = (
        *notices,
        *counts.make_notices(),
        *note(MISSING_VIDEO, missing, "{n} captioned {videos} not there, e.g. {first}."),
        *note("uncaptioned_video", bare, "{n} {videos} without any caption and left out, e.g. {first}."),
    )
    return CaptionSet(name, tuple(videos), expected, tuple(annotations), all_notices)


def _join_entries(name: str, entries: Iterable[VideoItem], counts: "_Counts") -> list[VideoItem]:
    """Joins entries of one id to one video with all their captions, where they are of one file and time."""
    videos: dict[str, VideoItem] = {}
    for entry in entries:
        earlier = videos.get(entry.id)
        if earlier is None:
            videos[entry.id] = entry
            continue
        if replace(earlier, captions=()) != replace(entry, captions=()):
            raise IdsCollide(
                f"{name} gives the id {entry.id!r} to two different videos or splits.",
                "Give each video an id of its own in the captions file, or leave the ids out.",
            )
        counts.repeated.append(entry.id)
        videos[entry.id] = replace(earlier, captions=(*earlier.captions, *entry.captions))
    return list(videos.values())


@dataclass(eq=False)
class _Counts:
    """Ids of what was mended or left out."""

    repeated: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)

    def clean(self, video: VideoItem) -> VideoItem:
        captions = tuple(filter(None, (self._clean_caption(video, caption) for caption in video.captions)))
        return replace(video, captions=captions)

    def _clean_caption(self, video: VideoItem, caption: str) -> str:
        if not video.split_caption(caption):
            self.empty.append(video.id)
            return ""
        if "\n" in caption.strip() or "\r" in caption.strip():
            self.broken.append(video.id)
        return " ".join(caption.split())

    def make_notices(self) -> list[Notice]:
        return [
            *note("repeated_video", self.repeated, "{n} entries repeat a video; joined, e.g. {first}."),
            *note("caption_lines", self.broken, "{n} captions had several lines; joined, e.g. {first}."),
            *note("empty_caption", self.empty, "{n} captions without a word left out, e.g. {first}."),
        ]


def note(code: str, of: Sequence[str], sentence: str) -> list[Notice]:
    """Makes a notice with how many there are of something and the first of them; none where there is none.

    Args:
        code: the notice's.
        of: names of what there is.
        sentence: has places for ``n``, ``first`` and ``videos``.
    """
    if not of:
        return []
    videos = "video is" if len(of) == 1 else "videos are"
    return [Notice(code, sentence.format(n=len(of), first=of[0], videos=videos))]
