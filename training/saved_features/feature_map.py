"""Reads the file that says how other people's features are called: features.yaml, or the same as JSON.

It names each stream with its file, width and clock. A file's name is a pattern: ``{id}`` is the video as its
set calls it, ``{stem}`` the same without folders and suffix, ``{number}`` the number at its end, ``{split}``
train, val or test, and ``{name}`` what the file of ``names`` calls it, or else its id.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator
from tqdm import tqdm

from extractors.errors import ReelwordError
from extractors.media.containers.container import PICTURE_SUFFIXES, VIDEO_SUFFIXES
from extractors.video_features.feature_files import FeaturesDamaged
from models.stream_set import SAVED, StreamInput, StreamKind, StreamSet
from training.batches.video_features import FailedVideo
from training.datasets.caption_set import VideoItem
from training.datasets.files import CLIP

FILE_NAMES = ("features.yaml", "features.yml", "features.json")
AXES = "TNHWC1"
PLACEHOLDERS = ("id", "stem", "number", "split", "name")
Pattern: TypeAlias = str


class FeatureMapDamaged(ReelwordError, ValueError, code="feature_map_damaged"):
    """The file that names saved features is not there or has another form; the message says where."""

    hint = "docs/data.md, Saved features, has the members of that file."


#: Seconds that rows may begin after a video's end, or two sources differ: clips' seconds are whole ones.
LATE = 1.0


class FeaturesDoNotFit(ReelwordError, ValueError, code="features_do_not_fit"):
    """Saved features have another width, shape or clock than they should; the message says which."""

    hint = "Correct the map, name another stream set, or make the features again with reelword extract."


class MappedStream(BaseModel, frozen=True, extra="forbid"):
    """Describes where one stream of every video lies, and what its rows are."""

    file: Pattern  #: pattern below the map's folder; ``.npy``, ``.npz``, ``.pt`` or HDF5.
    key: Pattern | None = None  #: pattern of the array in a ``.npz``, ``.pt`` or HDF5 file.
    #: for an array of all videos, a file beside the map with the video of each place of its first axis: a
    #: line each, or a JSON list.
    ids: str | None = None
    width: int = Field(ge=1)  #: channels C
    #: what the array's axes are: T time, N regions, H and W of a grid, C channels, 1 an axis of one. By
    #: default C, TC or 1TC; with regions NC, TNC or THWC.
    axes: str | None = None
    regions: Literal["none", "grid", "boxes"] = "none"  #: what the N rows of a step are; none for vectors
    count: int = Field(1, ge=1)  #: N of a grid, or the most boxes
    kind: StreamKind = "picture"  #: whether single frames, neighbouring frames or sound are described
    network: str | None = None  #: what made it. Captioners refuse features of another network.
    fps: float | None = Field(None, gt=0)  #: rows a second
    stride: int | None = Field(None, ge=1)  #: frames from one row to the next, at ``frame_rate``
    window: int | None = Field(None, ge=1)  #: frames that a row covers, by default its stride
    #: frames a second that strides count, or the pattern of a ``.npy`` file with that number.
    frame_rate: float | Pattern | None = None
    timestamps: Pattern | None = None  #: pattern of a ``.npy`` file with the milliseconds at which rows end.
    spread: bool = False  #: rows lie evenly over the whole video

    @model_validator(mode="after")
    def _whole(self) -> Self:
        clocks = [self.fps is not None, self.stride is not None, self.timestamps is not None, self.spread]
        if sum(clocks) > 1:
            raise ValueError("fps, stride, timestamps and spread exclude each other")
        if self.axes is not None and (set(self.axes) - set(AXES) or len(set(self.axes)) < len(self.axes)):
            raise ValueError(f"axes are letters of {AXES}, each once, and not {self.axes!r}")
        if self.axes is not None and "C" not in self.axes:
            raise ValueError("axes need C, the channels")
        for pattern in (self.file, self.key, self.timestamps, self.frame_rate):
            if isinstance(pattern, str):
                check_pattern(pattern)
        return self

    @property
    def clock(self) -> str:
        """The clock in words."""
        if self.fps is not None:
            return f"{self.fps:g} rows a second"
        if self.stride is not None:
            return f"rows of {self.window or self.stride} frames every {self.stride}"
        if self.timestamps is not None:
            return "rows with times of their own"
        return "rows spread over the video" if self.spread else "one row a video"


class FeatureMap(BaseModel, frozen=True, extra="forbid"):
    """Describes where all streams lie."""

    streams: dict[str, MappedStream] = Field(min_length=1)  #: by name
    frame_rate: float | Pattern | None = None  #: for streams that have none of their own
    #: seconds of every video, or "name" where ids end in ``_<start>_<end>``; by default what the set's
    #: annotations say. Spread rows need it.
    duration: float | Literal["name"] | None = None
    #: a file beside the map with what these features call each video: JSON ``{id: name}``, or a line ``id
    #: name`` each, as MSVD's youtube_mapping.txt has it.
    names: str | None = None

    @model_validator(mode="after")
    def _rates(self) -> Self:
        for name, stream in self.streams.items():
            if stream.stride is not None and (stream.frame_rate or self.frame_rate) is None:
                raise ValueError(f"{name} has a stride and no frame_rate, which says what its frames last")
        return self

    @property
    def stream_set(self) -> StreamSet:
        """The set that captioners are built for where no other is named."""
        inputs = tuple(
            StreamInput(
                name,
                each.network or name,
                each.width,
                count=each.count,
                regions=each.regions,
                kind=each.kind,
                use=each.clock,
            )
            for name, each in self.streams.items()
        )
        return StreamSet(SAVED, "any", inputs, "features that were made elsewhere")

    def duration_of(self, video: VideoItem) -> float | None:
        """Finds a video's seconds; None where they are not known.

        Raises FeaturesDoNotFit where the map says another number than the set's annotations.
        """
        if self.duration != "name":
            listed = video.seconds
            if self.duration is not None and listed is not None and abs(self.duration - listed) > LATE:
                raise FeaturesDoNotFit(
                    f"the map has duration {self.duration:g}, and by the annotations {video.id} lasts "
                    f"{listed:g} s: leave duration out of the map."
                )
            return self.duration if listed is None else listed
        clip = CLIP.fullmatch(strip_suffix(video.id))
        return None if clip is None else float(clip["end"]) - float(clip["start"])


def check_pattern(pattern: Pattern) -> None:
    """Checks a pattern's placeholders. Raises ValueError, which names the first that is not known."""
    for name in re.findall(r"{(.*?)}", pattern):
        if name not in PLACEHOLDERS:
            placeholders = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            raise ValueError(f"{pattern} has {{{name}}}; there are: {placeholders}")


def strip_suffix(name: str) -> str:
    """Takes away the suffix of a video's or a picture's file, and no other dot."""
    stem, dot, suffix = name.rpartition(".")
    return stem if f"{dot}{suffix}".lower() in VIDEO_SUFFIXES | PICTURE_SUFFIXES else name


def fill_pattern(pattern: Pattern, video: VideoItem, names: Mapping[str, str]) -> str:
    """Puts a video into a pattern.

    Args:
        pattern: With placeholders.
        video: Of a set.
        names: Id → what the features call it.
    """
    bare = strip_suffix(video.id)
    number = re.search(r"\d+$", bare)
    values = {
        "id": video.id,
        "stem": bare.rpartition("/")[2],
        "number": str(int(number[0])) if number else bare,
        "split": video.split,
        "name": names.get(video.id, video.id),
    }
    return re.sub(r"{(.*?)}", lambda found: values[found[1]], pattern)


def find_feature_map(folder: Path) -> Path | None:
    """Looks for a map in a folder; None where it has none."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


def read_feature_map(path: Path) -> FeatureMap:
    """Reads a map. Raises FeatureMapDamaged."""
    document = _read_document(path)
    try:
        return FeatureMap.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise FeatureMapDamaged(f"{path}: {place}: {first['msg'].removeprefix('Value error, ')}.") from error


def read_names(path: Path) -> dict[str, str]:
    """Reads what features call the videos. Raises FeatureMapDamaged."""
    if path.suffix == ".json":
        document = _read_document(path)
        if not isinstance(document, dict):
            raise FeatureMapDamaged(f"{path} is no object of ids and names.")
        return {str(ours): str(theirs) for ours, theirs in document.items()}
    pairs = [line.rsplit(maxsplit=1) for line in _read_text(path).splitlines() if line.strip()]
    if wrong := [pair for pair in pairs if len(pair) != 2]:
        raise FeatureMapDamaged(f'{path} has the line {wrong[0][0]!r}, not "<id> <name>".')
    return {ours.strip(): theirs for ours, theirs in pairs}


def read_ids(path: Path) -> dict[str, int]:
    """Reads which place of an array of all videos is whose. Raises FeatureMapDamaged."""
    listed = _read_document(path) if path.suffix == ".json" else _read_text(path).split("\n")
    if not isinstance(listed, list):
        raise FeatureMapDamaged(f"{path} is no list of ids.")
    return {str(name).strip(): place for place, name in enumerate(listed)}


def _read_document(path: Path) -> Any:
    """Reads YAML or JSON."""
    text = _read_text(path)
    try:
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise FeatureMapDamaged(f"{path} is no YAML or JSON: {' '.join(str(error).split())}.") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FeatureMapDamaged(f"{path} cannot be read ({error}).") from error


def list_failed(videos: Iterable[VideoItem], check: Callable[[VideoItem], None]) -> list[FailedVideo]:
    """Lists the videos whose features ``check`` misses (FileNotFoundError) or finds damaged, and why."""
    failed = []
    for video in tqdm(videos, desc="saved features", unit="video", disable=None):
        try:
            check(video)
        except FileNotFoundError as error:
            failed.append(FailedVideo(video.id, "features_missing", f"its features are missing: {error}"))
        except FeaturesDamaged as error:
            failed.append(FailedVideo(video.id, error.code, str(error)))
    return failed


def check_width(name: str, found: int, wanted: int, asked_by: str) -> None:
    """Checks a stream's channels.

    Args:
        name: Of the stream.
        found: Channels that the features have.
        wanted: Channels that they should have.
        asked_by: Who says so, for the error.
    """
    if found != wanted:
        raise FeaturesDoNotFit(f"{name} is {found} wide, and {asked_by} has it {wanted} wide.")
