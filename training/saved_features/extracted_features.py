"""Reads features that ``reelword extract`` wrote: safetensors, npy or HDF5, a folder an extractor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from extractors.decoder.decoder import Decoder
from extractors.features import Features, Stream
from extractors.video_features.feature_files import (
    FeatureHeader,
    FeaturesDamaged,
    FeatureSpec,
    FileFormat,
    SafetensorsForm,
    name_extractor_folder,
)
from extractors.video_features.npy_hdf5 import Hdf5Form, NpyForm
from extractors.windows import Windows
from models.stream_set import StreamInput, StreamSet
from training.batches.video_features import FailedVideo, FeatureStore
from training.datasets.caption_set import VideoItem
from training.saved_features.feature_map import FeaturesDoNotFit, check_width, list_failed, strip_suffix

#: The forms that files may be in.
FORMS: tuple[type[FileFormat], ...] = (SafetensorsForm, NpyForm, Hdf5Form)


class ExtractorFolder:
    """One extractor's folder. Raises FeaturesDoNotFit where it is not there, or holds no features."""

    def __init__(self, root: Path, extractor: str) -> None:
        names = [name_extractor_folder(extractor, seeded=seeded) for seeded in (False, True)]
        folders = [root / name for name in names if (root / name).is_dir()]
        if not folders:
            raise FeaturesDoNotFit(
                f"{root} has no folder {names[0]}: make it with reelword extract … --extractor "
                f"{extractor} --out {root}, or say in {root}/features.yaml where the features lie."
            )
        self.extractor, self.folder = extractor, folders[0]
        self._forms = dict(_find_files(self.folder))
        self._by_stem: dict[str, list[str]] = {}
        for name in self._forms:
            self._by_stem.setdefault(name.rpartition("/")[2], []).append(name)
        self._first: FeatureHeader | None = None

    def header(self, video: VideoItem) -> FeatureHeader:
        """Reads what describes a video's features.

        Raises FileNotFoundError, FeaturesDamaged, and FeaturesDoNotFit where others were made otherwise.
        """
        name = self._find(video)
        header = self._forms[name].header(self.folder, name)
        self._first = self._first or header
        self._check_like_the_first(header, name)
        self._check_source(header, name, video)
        return header

    def load(self, video: VideoItem, *, verify: bool = True) -> dict[str, Stream]:
        """Reads a video's streams. Raises FileNotFoundError, FeaturesDamaged."""
        name = self._find(video)
        return dict(self._forms[name].read(self.folder, name, verify=verify).streams)

    def _find(self, video: VideoItem) -> str:
        """Finds the features of a video by its id, or by the file's name where one file alone has it."""
        bare = strip_suffix(video.id)
        for name in (video.id, bare):
            if name in self._forms:
                return name
        stems = [bare.rpartition("/")[2]]
        if video.path is not None and video.start is None:
            stems.append(video.path.stem)
        for stem in stems:
            names = self._by_stem.get(stem, [])
            if len(names) == 1:
                return names[0]
            if names:
                raise FileNotFoundError(f"{self.folder} has several called {stem}: {', '.join(names[:3])}")
        raise FileNotFoundError(f"{self.folder} has none called {bare}")

    def _check_source(self, header: FeatureHeader, name: str, video: VideoItem) -> None:
        """Compares sizes where the whole file is still there."""
        if video.path is None or video.start is not None or not video.path.is_file():
            return
        size = video.path.stat().st_size
        if header.source.bytes != size:
            raise FeaturesDamaged(
                f"{self.folder / name} are features of another file than {video.path}: {header.source.bytes} "
                f"bytes, not {size}."
            )

    def _check_like_the_first(self, header: FeatureHeader, name: str) -> None:
        assert self._first is not None
        tags = (header.tag, self._first.tag)
        ours, first = (FeatureSpec(tag.extractor, tag.spec, tag.windows) for tag in tags)
        if (ours.spec.identity, ours.windows) != (first.spec.identity, first.windows):
            differing = "; ".join(ours.differences(first)[:3])
            raise FeaturesDoNotFit(
                f"{self.folder / name} was made otherwise than {self._first.source.file} ({differing})."
            )


class ExtractedFeatures(FeatureStore):
    """Reads a stream set's features of videos below the ``--out`` of ``extract``.

    Args:
        root: That folder.
        wanted: The part of a stream set that is read.
        optional: Those of its streams that a video may lack.

    Raises:
        FeaturesDoNotFit: An extractor has no folder there.
    """

    def __init__(self, root: Path, wanted: StreamSet, optional: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._wanted, self._optional = wanted, optional
        self._folders = [ExtractorFolder(root, name) for name in wanted.extractors]
        self._checked: set[str] = set()

    def make(self, videos: Iterable[VideoItem], decoder: Decoder) -> list[FailedVideo]:  # noqa: ARG002
        return list_failed(videos, self._check_all)

    def _read(self, video: VideoItem, *, verify: bool) -> Features:
        streams: dict[str, Stream] = {}
        for folder in self._folders:
            try:
                streams |= folder.load(video, verify=verify)
            except FileNotFoundError as error:
                if not self._is_optional(folder):
                    raise FeaturesDamaged(f"features of {video.id} are gone: {error}") from error
        return {name: streams[name] for name in self._wanted.streams if name in streams}

    def _check_all(self, video: VideoItem) -> None:
        for folder in self._folders:
            self._check(folder, video)

    def _check(self, folder: ExtractorFolder, video: VideoItem) -> None:
        try:
            header = folder.header(video)
        except FileNotFoundError:
            if self._is_optional(folder):
                return
            raise
        if folder.extractor in self._checked:
            return
        self._checked.add(folder.extractor)
        streams = folder.load(video)
        for each in self._wanted.inputs:
            if each.extractor != folder.extractor:
                continue
            if each.stream not in streams:
                saved_streams = ", ".join(streams)
                raise FeaturesDoNotFit(f"{folder.folder} holds {saved_streams}, and not {each.stream}.")
            width = streams[each.stream].values.shape[-1]
            check_width(each.stream, width, each.width, f"the stream set {self._wanted.name}")
            _check_windows(each, self._wanted, header.tag.windows)

    def _is_optional(self, folder: ExtractorFolder) -> bool:
        extracted = {each.stream for each in self._wanted.inputs if each.extractor == folder.extractor}
        return extracted <= self._optional


def _find_files(folder: Path) -> Iterator[tuple[str, FileFormat]]:
    """Finds the features in a folder: name of the video, with slashes, and the form of its file."""
    for file_format in (form() for form in FORMS):
        for file in sorted(folder.rglob(f"*{file_format.ending}")):
            yield file.relative_to(folder).as_posix().removesuffix(file_format.ending), file_format


def _check_windows(asked: StreamInput, streams: StreamSet, windows: Windows | None) -> None:
    """Checks how an extractor cut its videos by what a stream set asks for. Raises FeaturesDoNotFit.

    windows: the extractor's, None for one that has its own way.
    """
    if windows is None:
        return
    if streams.spread is not None:
        if windows.extraction_total is None:
            raise FeaturesDoNotFit(
                f"{asked.stream} was made of windows every {windows.step_size} frames, and the stream set "
                f"{streams.name} spreads frames over the video: extract with --extraction-total "
                f"{streams.spread}."
            )
        return
    for member, value in asdict(asked.windows).items():
        saved_value = getattr(windows, member)
        fits = (
            saved_value >= value if member == "most" and value is not None else value in (None, saved_value)
        )
        if not fits:
            option = f"--{member.replace('_', '-')} {value}"
            raise FeaturesDoNotFit(
                f"{asked.stream} was made with {member} {saved_value}, and the stream set {streams.name} "
                f"asks for {value}: extract with {option}."
            )
