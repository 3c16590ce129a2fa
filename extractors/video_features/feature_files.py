"""Keeps a video's features in a file: safetensors with values, times, boxes, masks and their name tag.

One file holds one extractor's streams of one video. Its metadata says by which network, weights,
preprocessing, windows, engine and precision the numbers came to be (``spec_hash`` stands for all of it), of
which video, and what the bytes of the tensors sum up to, so that a damaged file is noticed when it is read.
The forms for other people's code are in extractors/video_features/npy_hdf5.py.
"""

import errno
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from extractors.errors import ReelwordError
from extractors.features import Stream, StreamSpec
from extractors.files import atomic_write, sha256_of
from extractors.video_features.packed_streams import Arrays, collect_arrays, make_stream
from extractors.windows import Windows

FORMAT = "reelword-features-1"


class FeaturesDamaged(ReelwordError, ValueError, code="features_damaged"):
    """Raised for a file of features that was cut, changed, or written by something else, which it names."""

    hint = "Run reelword extract again: it makes damaged features anew."


@dataclass(frozen=True)
class FeatureSpec:
    """Names all that decides the numbers of one extractor, the video apart."""

    extractor: str
    spec: StreamSpec  #: network, weights, preprocessing, engine, precision
    #: how the video is cut, None for an extractor that has its own way (sound, regions of others' maps)
    windows: Windows | None = None
    #: extractor → spec_hash of those whose streams it takes
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec_hash(self) -> str:
        """Sixteen hexadecimal digits, the same where and only where everything above is the same."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        windows = document["windows"]
        return cls(
            document["extractor"],
            StreamSpec(**document["spec"]),
            None if windows is None else Windows(**windows),
            dict(document["inputs"]),
        )

    def differences(self, other: Self) -> list[str]:
        """Lists ``member: ours, not theirs`` for each member that differs."""
        ours, theirs = _flatten(asdict(self)), _flatten(asdict(other))
        return [
            f"{name}: {ours.get(name)}, not {theirs.get(name)}"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        ]


@dataclass(frozen=True)
class VideoSource:
    """Names the video that features are of."""

    file: str  #: its name
    path: str  #: digest of the file's place
    sha256: str  #: of its content
    bytes: int  #: the content's size

    @classmethod
    def of(cls, file: Path) -> Self:
        """Reads the whole file. Raises OSError, also for what is no file and might have no end."""
        if file.exists() and not file.is_file():
            raise OSError(errno.EINVAL, "it is no regular file")
        return cls(file.name, path_digest(file), sha256_of(file), file.stat().st_size)


def name_extractor_folder(extractor: str, *, seeded: bool = False) -> str:
    """Names the folder of an extractor's features; those of random weights lie apart, and say so."""
    name = extractor.replace(":", "-").replace("/", "-")
    return f"{name}-seeded" if seeded else name


def path_digest(file: Path) -> str:
    """Returns eight hexadecimal digits that distinguish files of one name in different folders."""
    return hashlib.sha256(os.fsencode(os.path.abspath(file))).hexdigest()[:8]


@dataclass(frozen=True, eq=False)
class SavedFeatures:
    """Content of one file of features."""

    tag: FeatureSpec
    source: VideoSource
    media: Mapping[str, Any]  #: facts about the video (``Video.media``)
    fps: float  #: frames a second on the extraction clock
    streams: Mapping[str, Stream]  #: by name
    classes: tuple[str, ...] | None = None  #: labels of a ``…_logits`` stream's columns, where known


@dataclass(frozen=True)
class FeatureHeader:
    """Description that is written beside the numbers, with the arrays' names and their digest."""

    tag: FeatureSpec
    source: VideoSource
    media: Mapping[str, Any]
    fps: float
    streams: Mapping[str, StreamSpec]  #: by name
    classes: tuple[str, ...] | None
    arrays: tuple[str, ...]
    content_sha256: str

    @classmethod
    def of(cls, saved: SavedFeatures, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """arrays: what is written beside it, by name."""
        specs = {name: stream.spec for name, stream in saved.streams.items()}
        return cls(
            saved.tag, saved.source, saved.media, saved.fps, specs, saved.classes,
            tuple(sorted(arrays)), content_digest(arrays),
        )  # fmt: skip

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "spec_hash": self.tag.spec_hash, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, file: Path) -> Self:
        """Raises FeaturesDamaged for what ``to_json`` did not write."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(document["format"])
            tag = FeatureSpec.from_document(document["tag"])
            if tag.spec_hash != document["spec_hash"]:
                raise ValueError("spec_hash")
            classes = document["classes"]
            return cls(
                tag=tag,
                source=VideoSource(**document["source"]),
                media=document["media"],
                fps=float(document["fps"]),
                streams={name: StreamSpec(**spec) for name, spec in document["streams"].items()},
                classes=None if classes is None else tuple(classes),
                arrays=tuple(document["arrays"]),
                content_sha256=document["content_sha256"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise FeaturesDamaged(f"{file} does not describe features of Reelword ({error}).") from error


class FileFormat(ABC):
    """Lays features down in a folder under a video's name, which may hold slashes."""

    name: ClassVar[str]  #: as ``--format`` has it
    ending: ClassVar[str]  #: of the file whose presence says that the features are there

    def main_file(self, folder: Path, name: str) -> Path:
        """Returns the file whose presence says that the features are there."""
        return folder / f"{name}{self.ending}"

    def header(self, folder: Path, name: str) -> FeatureHeader:
        """Reads the description alone. Raises FeaturesDamaged."""
        return self._open(folder, name, with_arrays=False)[0]

    def read(self, folder: Path, name: str, *, verify: bool = True) -> SavedFeatures:
        """Reads everything.

        Args:
            folder: where features are kept.
            name: the video's.
            verify: whether the numbers are compared with their digest.

        Raises:
            FeaturesDamaged: a file is cut or changed, or something else wrote it.
        """
        header, arrays = self._open(folder, name, with_arrays=True)
        if verify and content_digest(arrays) != header.content_sha256:
            file = self.main_file(folder, name)
            raise FeaturesDamaged(f"The numbers of {file} are not those that were written.")
        return join_streams(header, self._to_own_names(header, arrays))

    @abstractmethod
    def write(self, folder: Path, name: str, saved: SavedFeatures) -> None:
        """Writes features, each file whole or not at all.

        Args:
            folder: where they are kept; it is made.
            name: the video's.
            saved: the features.

        Raises:
            OSError: where the disk does not take them.
        """

    @abstractmethod
    def _open(self, folder: Path, name: str, *, with_arrays: bool) -> tuple[FeatureHeader, Arrays]:
        """Reads the description and, where they are asked for, the arrays as they were written."""

    def _to_own_names(self, header: FeatureHeader, arrays: Arrays) -> Arrays:  # noqa: ARG002 - of another form
        """Names arrays as ``collect_arrays`` does, where the form has other names."""
        return arrays


class SafetensorsForm(FileFormat):
    """Writes ``NAME.safetensors``: tensors ``STREAM.values``, ``.start``, ``.end`` and, where there are any,
    ``.boxes``, ``.mask`` and ``.view``; the metadata's member ``reelword`` is a JSON document."""

    name, ending = "safetensors", ".safetensors"

    def write(self, folder: Path, name: str, saved: SavedFeatures) -> None:
        arrays = collect_arrays(saved.streams)
        with atomic_write(self.main_file(folder, name)) as unfinished:
            save_file(arrays, unfinished, {"reelword": FeatureHeader.of(saved, arrays).to_json()})

    def _open(self, folder: Path, name: str, *, with_arrays: bool) -> tuple[FeatureHeader, Arrays]:
        file = self.main_file(folder, name)
        try:
            with safe_open(file, "pt") as opened:  # of torch, whose tensors are maps of the file, not copies
                metadata = opened.metadata() or {}
                names = list(opened.keys()) if with_arrays else []
                arrays = {name: opened.get_tensor(name).numpy() for name in names}
        except (OSError, SafetensorError) as error:
            raise FeaturesDamaged(f"{file} cannot be read ({error}).") from error
        return FeatureHeader.from_json(metadata.get("reelword", ""), file), arrays


def load(file: Path) -> SavedFeatures:
    """Loads the features of one safetensors file, checked to the byte. Raises FeaturesDamaged."""
    return SafetensorsForm().read(file.parent, file.stem)


def content_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Computes the sha256 over names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.hexdigest()


def join_streams(header: FeatureHeader, arrays: Arrays) -> SavedFeatures:
    """Joins header and arrays."""
    streams = {name: make_stream(name, spec, arrays) for name, spec in header.streams.items()}
    return SavedFeatures(header.tag, header.source, header.media, header.fps, streams, header.classes)


def _flatten(document: Mapping[str, Any]) -> dict[str, Any]:
    """Turns ``{"spec": {"network": …}}`` into ``{"spec.network": …}``."""
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in _flatten(value).items()}
        else:
            flat[name] = value
    return flat
