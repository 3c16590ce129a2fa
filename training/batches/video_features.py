"""Makes features of videos once, by what feeds a captioner, and keeps them on the disk, a file a video.

They are made as the service makes them: one decoding, the frames that the stream set asks for, its
extractors. Windows of whole files are read in chunks, so that a set which keeps its stride needs no more
memory for a long video. A run that was stopped continues with the videos that have no file yet. Features that
another network, other windows or another engine would make lie in another folder.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm import tqdm

from extractors.decoder.decoder import Decoder
from extractors.extractor import AnyExtractor
from extractors.features import Features, StreamSpec
from extractors.media.errors import MediaError
from extractors.media.request import Limits, Video, cut_clip
from extractors.video_features.extract_videos import extract_video
from extractors.video_features.feature_files import (
    FeaturesDamaged,
    FeatureSpec,
    SafetensorsForm,
    SavedFeatures,
    VideoSource,
    path_digest,
)
from extractors.windows import Windows
from models.feature_sources.feature_source import FeatureSource
from training.datasets.caption_set import VideoItem


@dataclass(frozen=True)
class FailedVideo:
    """A video without features: why, as docs/decoding.md names it."""

    id: str
    code: str
    message: str


class FeatureStore(ABC):
    """Keeps the features of videos, and verifies those of each video once, when they are read first.

    Verifying takes several times as long as reading, which a training does again in every epoch.
    """

    def __init__(self) -> None:
        self._verified: set[str] = set()  # ids of videos

    @abstractmethod
    def make(self, videos: Iterable[VideoItem], decoder: Decoder) -> list[FailedVideo]:
        """Makes or finds the features of videos; returns those that have none, and why."""

    def load(self, video: VideoItem) -> Features:
        """Reads a video's features, float16 as they were saved. Raises FeaturesDamaged."""
        if video.id in self._verified:
            return self._read(video, verify=False)
        features = self._read(video, verify=True)
        for name, stream in features.items():
            if not all(bool(bound.isfinite()) for bound in stream.values.aminmax()):
                raise FeaturesDamaged(f"{name} of {video.id} has values that are infinite or no number.")
        self._verified.add(video.id)
        return features

    @abstractmethod
    def _read(self, video: VideoItem, *, verify: bool) -> Features:
        """Reads a video's features; compares digests, where there are any, if ``verify``."""


class KeptVideos(FeatureStore):
    """Makes something of videos once, and keeps it below ``cache``. tag: what decides it, the video apart."""

    def __init__(self, tag: FeatureSpec, cache: Path) -> None:
        super().__init__()
        self._form, self._tag = SafetensorsForm(), tag
        self.folder = cache / "videos" / f"{tag.extractor}-{tag.spec_hash}"

    def make(self, videos: Iterable[VideoItem], decoder: Decoder) -> list[FailedVideo]:
        """Makes what is missing of videos that have files.

        Returns the videos that cannot be read; they are tried again the next time. Raises OSError where the
        folder cannot be written to.
        """
        missing = [video for video in videos if video.path is not None and not self.has(video)]
        failed, title = [], f"features for {self._tag.extractor}"
        for video in tqdm(missing, desc=title, unit="video", disable=None):
            try:
                self._form.write(self.folder, _name_file(video), self._make(video, decoder))
            except MediaError as error:
                failed.append(FailedVideo(video.id, error.code, str(error)))
        return failed

    def has(self, video: VideoItem) -> bool:
        """Returns whether there are features of this file as it is now, going by its size."""
        if video.path is None or not self._form.main_file(self.folder, _name_file(video)).exists():
            return False
        try:
            header = self._form.header(self.folder, _name_file(video))
        except FeaturesDamaged:
            return False
        return header.tag == self._tag and header.source.bytes == video.path.stat().st_size

    def _read(self, video: VideoItem, *, verify: bool) -> Features:
        return self._form.read(self.folder, _name_file(video), verify=verify).streams

    @abstractmethod
    def _make(self, video: VideoItem, decoder: Decoder) -> SavedFeatures:
        """Makes it of a video that has a file. Raises MediaError."""


@dataclass(frozen=True, eq=False)
class _MadeFeatures:
    """A file's report, its frames a second, and the streams that were made of it, by name."""

    video: Video
    rate: float
    streams: Features


class VideoFeatures(KeptVideos):
    """The features of a stream set's videos. feature_source: makes those that are not there yet."""

    def __init__(self, feature_source: FeatureSource, cache: Path) -> None:
        super().__init__(build_feature_spec(feature_source), cache)
        self._source = feature_source

    def _make(self, video: VideoItem, decoder: Decoder) -> SavedFeatures:
        assert video.path is not None
        if video.start is not None and video.end is not None:
            features = self._make_of_part(video.path, (video.start, video.end), decoder)
        elif self._source.wanted.spread is not None:
            features = self._make_of_whole(video.path, decoder)
        else:
            features = self._make_in_chunks(video.path, decoder)
        kept = {
            name: features.streams[name] for name in self._source.wanted.streams if name in features.streams
        }
        source = VideoSource.of(video.path)
        return SavedFeatures(self._tag, source, features.video.media(), features.rate, kept)

    def _make_of_whole(self, path: Path, decoder: Decoder) -> _MadeFeatures:
        """Reads a few frames that are spread over the video."""
        decoded = decoder.decode(path, self._source.request, Limits())
        [streams] = self._source.extract([decoded.footage])
        return _MadeFeatures(decoded.video, decoded.footage.rate, streams)

    def _make_in_chunks(self, path: Path, decoder: Decoder) -> _MadeFeatures:
        """Reads windows of frames one after another: however many there are, few frames are held."""
        extracted = extract_video(decoder, path, self._source.extractors, Limits())
        return _MadeFeatures(extracted.video, extracted.video.fps_average, extracted.streams)

    def _make_of_part(self, path: Path, part: tuple[float, float], decoder: Decoder) -> _MadeFeatures:
        """Reads some seconds of a longer file, whose sound may lie after what is read of a whole one."""
        limits = Limits()
        limits = replace(limits, audio_seconds=max(limits.audio_seconds, part[1]))
        decoded = decoder.decode(path, replace(self._source.request, part=part), limits)
        footage = cut_clip(decoded.footage, *part)
        [streams] = self._source.extract([footage])
        return _MadeFeatures(decoded.video, footage.rate, streams)


def build_feature_spec(feature_source: FeatureSource) -> FeatureSpec:
    """Describes all that decides a feature source's numbers: set, streams, choice of frames, extractors."""
    streams = feature_source.wanted
    # what a set without a sampling of its own made of frames shrunk for all alike has another name tag
    spec = StreamSpec(
        streams.name, "", ", ".join(streams.streams), feature_source.sampling or "each extractor's frames"
    )
    return FeatureSpec(
        streams.name,
        spec,
        inputs={each.name: _describe_extractor(each).spec_hash for each in feature_source.extractors},
    )


def _describe_extractor(extractor: AnyExtractor) -> FeatureSpec:
    windows = getattr(extractor, "windows", None)
    return FeatureSpec(extractor.name, extractor.spec, windows if isinstance(windows, Windows) else None)


def _name_file(video: VideoItem) -> str:
    """Returns the file's stem, and digits that distinguish equal stems in other folders."""
    assert video.path is not None
    part = "" if video.start is None else f"-{video.start:g}-{video.end:g}"
    return f"{video.path.stem}-{path_digest(video.path)}{part}"


def describe_failures(failed: Sequence[FailedVideo], most: int = 5) -> list[str]:
    """Describes each of the first few in a line."""
    lines = [f"{each.id}: {each.message} ({each.code})" for each in failed[:most]]
    return lines + ([f"… and {len(failed) - most} more"] if len(failed) > most else [])
