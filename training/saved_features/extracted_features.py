"""Reads features that ``reelword extract`` wrote: safetensors, npy or HDF5, a folder an extractor."""

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
from extractors.windows import WindowOptions, Windows
from models.stream_set import StreamSet
from training.batches.video_features import FailedVideo, FeatureStore
from training.datasets.caption_set import VideoItem
from training.saved_features.feature_map import FeaturesDoNotFit, check_width, list_failed, strip_suffix

#: The forms that files may be in.
FORMS: tuple[type[FileFormat], ...] = (SafetensorsForm, NpyForm, Hdf5Form)


class ExtractorFolder:
    """One extractor's folder."""

    def __init__(self, folder: Path, extractor: str) -> None:
        self.extractor, self.folder = extractor, folder
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
        self._command = f"reelword extract VIDEO… --streams {wanted.name} --out {root}"
        folders = {name: _find_folder(root, name) for name in wanted.extractors}
        if missing := [
            name_extractor_folder(name, seeded=False) for name, at in folders.items() if at is None
        ]:
            raise FeaturesDoNotFit(
                f"{root} has no folder {', '.join(missing)}: make all with {self._command}, or say in "
                f"{root}/features.yaml where the features lie."
            )
        self._folders = [ExtractorFolder(folder, name) for name, folder in folders.items() if folder]
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
        if differences := [each for folder in self._folders for each in self._check(folder, video)]:
            listed = "; ".join(differences)
            raise FeaturesDoNotFit(
                f"The set {self._wanted.name} asks for others: {listed}: make all with {self._command}."
            )

    def _check(self, folder: ExtractorFolder, video: VideoItem) -> Iterator[str]:
        """Yields in what the windows of an extractor's features are not the set's, for its first video."""
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
        windows = next(each.windows for each in self._wanted.inputs if each.extractor == folder.extractor)
        yield from _compare_windows(folder.extractor, windows, self._wanted.spread, header.tag.windows)

    def _is_optional(self, folder: ExtractorFolder) -> bool:
        extracted = {each.stream for each in self._wanted.inputs if each.extractor == folder.extractor}
        return extracted <= self._optional


def _find_files(folder: Path) -> Iterator[tuple[str, FileFormat]]:
    """Finds the features in a folder: name of the video, with slashes, and the form of its file."""
    for file_format in (form() for form in FORMS):
        for file in sorted(folder.rglob(f"*{file_format.ending}")):
            yield file.relative_to(folder).as_posix().removesuffix(file_format.ending), file_format


def _find_folder(root: Path, extractor: str) -> Path | None:
    """Finds the folder of an extractor's features, of published weights first; None where there is none."""
    names = (name_extractor_folder(extractor, seeded=seeded) for seeded in (False, True))
    return next((root / name for name in names if (root / name).is_dir()), None)


def _compare_windows(
    extractor: str, asked: WindowOptions, spread: int | None, saved: Windows | None
) -> Iterator[str]:
    """Yields in what the windows of features differ from those that a stream set asks for.

    spread: frames that the set spreads over the time, None where it does not. saved: those of the features,
    None for an extractor that has its own way.
    """
    if saved is None:
        return
    if spread is not None and asked == WindowOptions() and saved.stack_size == 1:
        if saved.extraction_total is None:
            yield f"{extractor} with extraction_total {spread}, not windows every {saved.step_size} frames"
        return
    for member, value in asdict(asked).items():
        is_fit = getattr(saved, member) >= value if member == "most" and value else None
        if value is not None and not (getattr(saved, member) == value if is_fit is None else is_fit):
            yield f"{extractor} with {member} {value}, not {getattr(saved, member)}"
