"""Checks whether a set is all there: annotations, videos, captions and words, and what is missing.

A quick look opens each file's header with the project's own reader; a deep one decodes frames spread over
each file, in a process of its own, as training will.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from extractors.decoder.decoder import Decoder
from extractors.media.containers.container import open_media, select_picture_stream
from extractors.media.errors import MediaError
from extractors.media.request import DecodeRequest, Limits
from extractors.media.stills.picture_format import is_picture
from models.vocabulary import SPECIALS
from training.datasets.caption_set import SPLITS, CaptionSet, Notice, Split
from training.datasets.data_set import DataSet
from training.datasets.errors import DataSetError

Probe: TypeAlias = Callable[[Path], None]


@dataclass(frozen=True)
class FoundAnnotation:
    """An annotation file that was looked for."""

    names: tuple[str, ...]
    what: str
    needed: bool
    path: Path | None  #: None where it is not there


@dataclass(frozen=True)
class SplitCount:
    """Counts of one split."""

    split: Split
    annotated: int  #: videos that the annotations name
    expected: int | None  #: as the paper has them, None where it says nothing
    found: int  #: videos whose file is there
    unreadable: int  #: those of them that cannot be opened
    captions: int  #: of the annotated videos

    @property
    def complete(self) -> bool:
        needed = self.annotated if self.expected is None else self.expected
        return self.found - self.unreadable >= needed


@dataclass(frozen=True)
class Unreadable:
    """A file that is no readable video; code and message as docs/decoding.md has them."""

    path: Path
    code: str
    message: str


@dataclass(frozen=True)
class SetCheck:
    """The result of ``reelword data check``."""

    data_set: str  #: its title
    root: Path  #: folder that was checked
    paper: str  #: whose splits and words
    annotations: tuple[FoundAnnotation, ...]
    splits: tuple[SplitCount, ...]
    rule: str  #: which words are known
    words: int  #: of the vocabulary under ``rule``
    printed: int | None  #: the paper's number of words
    unreadable: tuple[Unreadable, ...]
    notices: tuple[Notice, ...]
    missing: tuple[str, ...]  #: what is not there, a sentence each
    error: str | None  #: why the set could not be read, None where it could
    obtain: str  #: how to get the set

    @property
    def complete(self) -> bool:
        return not self.missing and self.error is None

    def to_json(self) -> dict[str, Any]:
        """Returns the result as a JSON document."""
        document = asdict(self) | {"complete": self.complete, "root": str(self.root)}
        for each in (*document["annotations"], *document["unreadable"]):
            each["path"] = None if each["path"] is None else str(each["path"])
        return document


def check_data_set(
    wanted: DataSet, root: Path, paper: str | None = None, probe: Probe | None = None
) -> SetCheck:
    """Checks a set; what is wrong with its files is part of the answer.

    Args:
        wanted: which set.
        root: its folder.
        paper: whose splits and words, by default the first that the set has.
        probe: opens a file or raises MediaError; without one files are only looked for.

    Raises:
        UnknownProtocol: the paper did not use the set.
    """
    protocol = wanted.find_protocol(paper)
    annotations = tuple(
        FoundAnnotation(each.names, each.what, each.needed, each.find(root)) for each in wanted.annotations
    )
    try:
        captions, error = wanted.load(root, protocol.paper), None
    except DataSetError as failure:
        captions, error = CaptionSet(wanted.name, ()), str(failure)
    unreadable = _find_unreadable(captions, probe) if probe is not None else ()
    counts = _count_splits(captions, unreadable)
    missing = _find_missing(annotations, captions, counts) if error is None else _list_absent(annotations)
    return SetCheck(
        wanted.name, root, protocol.paper, annotations, counts, str(protocol.rule),
        len(protocol.rule.build_vocabulary(captions)) - len(SPECIALS), protocol.rule.printed,
        unreadable, captions.notices, tuple(missing), error, wanted.obtain,
    )  # fmt: skip


def _count_splits(captions: CaptionSet, unreadable: Sequence[Unreadable]) -> tuple[SplitCount, ...]:
    broken = {each.path for each in unreadable}
    return tuple(
        SplitCount(
            split=split,
            annotated=len(videos),
            expected=captions.expected.get(split),
            found=sum(video.path is not None for video in videos),
            unreadable=sum(video.path in broken for video in videos),
            captions=sum(len(video.captions) for video in videos),
        )
        for split in SPLITS
        if (videos := captions.in_split(split)) or split in captions.expected
    )


def _find_unreadable(captions: CaptionSet, probe: Probe) -> tuple[Unreadable, ...]:
    """Opens each file once, however many clips are parts of it."""
    paths = list(dict.fromkeys(video.path for video in captions.videos if video.path is not None))
    unreadable = []
    for path in tqdm(paths, desc="videos", unit="file", disable=None, leave=False):
        try:
            probe(path)
        except MediaError as error:
            unreadable.append(Unreadable(path, error.code, str(error)))
    return tuple(unreadable)


def _find_missing(
    annotations: Sequence[FoundAnnotation], captions: CaptionSet, counts: Sequence[SplitCount]
) -> list[str]:
    sentences = _list_absent(annotations) if captions.expected else []
    for count in counts:
        if not count.complete:
            needed = count.annotated if count.expected is None else count.expected
            good = count.found - count.unreadable
            sentences.append(f"{count.split}: {needed - good} of {needed} videos are missing or unreadable.")
    return sentences if captions.usable else [*sentences, "No captioned video is there at all."]


def _list_absent(annotations: Sequence[FoundAnnotation]) -> list[str]:
    absent = (each for each in annotations if each.path is None and each.needed)
    return [f"{' or '.join(each.names)} ({each.what})" for each in absent]


def probe_header(path: Path) -> None:
    """Opens the file and finds its picture track. Raises MediaError."""
    if is_picture(path):
        return
    with open_media(path) as container:
        select_picture_stream(container, Limits().pixels)


def make_deep_probe(decoder: Decoder) -> Probe:
    """Decodes frames spread over the whole file, in the decoder's process."""

    def probe(path: Path) -> None:
        decoder.decode(path, DecodeRequest())

    return probe
