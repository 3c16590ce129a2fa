"""Loads the extractors of stream sets once, lists the frames they need, and makes streams of the frames."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

from extractors.extractor import AnyExtractor, create
from extractors.features import WHOLE, Footage, Frames, FrameSize, Stream
from extractors.media.request import DecodeRequest
from extractors.pretrained.errors import WeightsMissing
from extractors.video_features.extract_videos import ExtractorGroup
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windows import Sampling, WindowOptions, Windows
from models.stream_set import StreamSet, combine_stream_sets

#: Pixels of the frames that are kept and shown. All networks of a set that spreads frames over the time look
#: at these, too; in other sets each extractor is handed frames in its own size, as ``extract`` does it.
SHORT_SIDE = 256


class ExtractorPool:
    """Keeps extractors by name and windows, each loaded once however many sets have it.

    Args:
        device: Where they compute, as torch names it.
        threads: Of the CPU engines.
        cache: Folder of compiled networks, None for none.
    """

    def __init__(self, device: str = "cpu", *, threads: int = 1, cache: Path | None = None) -> None:
        self._device, self._threads, self._cache = device, threads, cache
        self._extractors: dict[tuple[str, WindowOptions], AnyExtractor] = {}

    def get(self, name: str, windows: WindowOptions) -> AnyExtractor:
        """Gives an extractor, loading it the first time. Raises UnknownExtractor, WeightsError."""
        if (name, windows) not in self._extractors:
            self._extractors[name, windows] = create(
                name, self._device, threads=self._threads, cache=self._cache, windows=windows
            )
        return self._extractors[name, windows]


class FeatureSource:
    """Turns frames, and their sound, into the streams of one set.

    Args:
        wanted: The set.
        device: Where extractors compute, as torch names it.
        threads: Of the CPU engines.
        cache: Folder of compiled networks, None for none.
        frames: How many, for a set whose frames are spread over the time; None for the set's own number.
        pool: Extractors shared with other sources, in place of ``device``, ``threads`` and ``cache``.

    Raises:
        UnknownExtractor: The set names one that is not there.
        WeightsError: Its weights cannot be had.
    """

    def __init__(
        self,
        wanted: StreamSet,
        device: str = "cpu",
        *,
        threads: int = 1,
        cache: Path | None = None,
        frames: int | None = None,
        pool: ExtractorPool | None = None,
    ) -> None:
        self.wanted, self._frames = wanted, frames or wanted.spread
        pool = pool or ExtractorPool(device, threads=threads, cache=cache)
        self.extractors = tuple(_load_all(wanted, pool))
        self._group = ExtractorGroup(self.extractors)

    @property
    def request(self) -> DecodeRequest:
        """The frames or windows, their sizes and the rate of sound that the decoder is asked for."""
        rate = max((extractor.rate for extractor in self._group.sound), default=None)
        if self._spread is not None:
            return self._request_spread(self._spread, rate)
        sizes = dict.fromkeys(extractor.frame_size for extractor in self._group.frames)
        sizes.pop(FrameSize(SHORT_SIDE), None)
        windows = tuple(dict.fromkeys(extractor.windows for extractor in self._group.frames))
        return DecodeRequest(short_side=SHORT_SIDE, audio_rate=rate, windows=windows, sizes=tuple(sizes))

    def _request_spread(self, spread: Sampling, rate: int | None) -> DecodeRequest:
        """Asks for the spread frames, and beside them for those of extractors that look at windows.

        All come in the one size that is shown: making others of each frame would cost more than networks that
        see 300 pixels gain by it.
        """
        beside = dict.fromkeys(each.windows for each in self._group.frames if not each.any_frames)
        if not beside:
            return DecodeRequest(spread, SHORT_SIDE, rate)
        windows = (Windows(extraction_total=spread.count), *beside)
        return DecodeRequest(spread, SHORT_SIDE, rate, windows=windows, shown=spread)

    @property
    def identity(self) -> str:
        """Names all that decides the streams of given frames: networks, weights, preprocessing, engines,
        their precision, and which of the frames they look at. Thirty-two hexadecimal digits.
        """
        looks = [
            (each.name, each.spec, getattr(each, "windows", None), getattr(each, "frame_size", None))
            for each in self.extractors
        ]
        return hashlib.sha256(repr((self._spread, looks)).encode()).hexdigest()[:32]

    @property
    def sampling(self) -> str | None:
        """The choice of frames in words; None where the streams' name tags have it."""
        if self._spread is None:
            return None
        return describe_spread(self._spread.count)

    @property
    def samplings(self) -> Mapping[str, str | None]:
        """Describes for each stream how its frames are chosen."""
        return dict.fromkeys(self.wanted.streams, self.sampling)

    @property
    def _spread(self) -> Sampling | None:
        if self._frames is None or self.wanted.spread is None:
            return None
        return Sampling(count=self._frames)

    @property
    def parts(self) -> Sequence[Self]:
        """Lists itself: it is made of no others."""
        return (self,)

    @property
    def frame_extractors(self) -> Sequence[WindowExtractor]:
        """Lists the extractors that look at frames."""
        return self._group.frames

    def join(self, streams: Sequence[Mapping[str, Stream]]) -> dict[str, Stream]:
        """Returns the streams of its one part."""
        return dict(streams[0])

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """Makes for each video the set's streams; videos are batched together.

        Those of sound are left out where the decoder was not asked for it: ``Footage`` carries sound.
        """
        return extract_together([(self, video) for video in videos])

    def complete(self, known: dict[str, Stream], video: Frames) -> None:
        """Adds to the streams of a video's frames those of its sound, and what is made of streams."""
        if isinstance(video, Footage):
            for of_sound in self._group.sound:
                known.update(of_sound.extract(video.sound, video.duration))
        if self._group.derived:
            self._group.derive(known)

    def choose(self, video: Frames, extractor: WindowExtractor) -> Frames:
        """Gives an extractor the frames that it looks at, also where others had more of them decoded.

        extractor: one of ``frame_extractors``; one of windows finds its own among all frames. Returns the
        frames, in the extractor's size where the set does not spread frames.
        """
        footage = (
            video
            if isinstance(video, Footage)
            else Footage(video.pixels, video.pts, video.duration, video.fps)
        )
        if self._spread is None:
            return footage.at(extractor.frame_size)
        if extractor.any_frames and len(video) > self._spread.count:
            footage = footage.take(self._spread.choose(video.pts, video.duration))
        return footage.at(FrameSize(SHORT_SIDE))


def _load_all(wanted: StreamSet, pool: ExtractorPool) -> Iterator[AnyExtractor]:
    """Loads a set's extractors. Raises WeightsMissing, which names the weights of all that lack any."""
    missing: dict[str, None] = {}
    for name, windows in wanted.extractors.items():
        try:
            yield pool.get(name, windows)
        except WeightsMissing as error:
            missing[str(error)] = None
    if missing:
        several = WeightsMissing(" ".join(missing))
        several.hint = ""  # each says what brings it
        raise several


class CombinedFeatureSource:
    """Makes the streams of several sources on one decode. Raises ValueError where two would make the same."""

    def __init__(self, sources: Sequence[FeatureSource]) -> None:
        self._sources = tuple(sources)
        self._owner: dict[str, FeatureSource] = {}
        for source in sources:
            if twice := sorted(self._owner.keys() & set(source.wanted.streams)):
                raise ValueError(f"the stream {twice[0]!r} would be made in two ways, of different frames")
            self._owner |= dict.fromkeys(source.wanted.streams, source)
        self.request = DecodeRequest.together([source.request for source in sources])

    @property
    def extractors(self) -> Sequence[AnyExtractor]:
        return tuple(dict.fromkeys(extractor for source in self._sources for extractor in source.extractors))

    @property
    def identity(self) -> str:
        """Names all that decides the streams of given frames, in thirty-two hexadecimal digits."""
        text = "\n".join(source.identity for source in self._sources)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def samplings(self) -> Mapping[str, str | None]:
        """Describes for each stream how its frames are chosen."""
        return {stream: source.sampling for stream, source in self._owner.items()}

    @property
    def parts(self) -> Sequence[FeatureSource]:
        """Lists the sources that it is made of."""
        return self._sources

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """Makes for each video the streams of every source."""
        return extract_together([(self, video) for video in videos])

    def join(self, streams: Sequence[Mapping[str, Stream]]) -> dict[str, Stream]:
        """Makes one video's streams of those of its parts."""
        joined: dict[str, Stream] = {}
        for source, new in zip(self._sources, streams, strict=True):
            # extractors make more streams than their set names: another source may be the one to make them
            owned = {name: stream for name, stream in new.items() if self._owner.get(name, source) is source}
            joined.update(owned)
        return joined


#: Makes the streams of one captioner, or of several.
StreamSource: TypeAlias = FeatureSource | CombinedFeatureSource


def extract_together(asked: Sequence[tuple[StreamSource, Frames]]) -> list[dict[str, Stream]]:
    """Makes the streams of videos of several captioners; each extractor runs once over all that need it.

    asked: for each video who is to make its streams, and its frames. Returns for each video its streams.
    """
    shares = [(part, video) for source, video in asked for part in source.parts]
    streams: list[dict[str, Stream]] = [{} for _ in shares]
    for extractor in dict.fromkeys(each for part, _ in shares for each in part.frame_extractors):
        places = [place for place, (part, _) in enumerate(shares) if extractor in part.frame_extractors]
        extracted = extractor.extract(
            [shares[place][0].choose(shares[place][1], extractor) for place in places]
        )
        for place, new in zip(places, extracted, strict=True):
            streams[place].update(new)
    for part_streams, (part, video) in zip(streams, shares, strict=True):
        part.complete(part_streams, video)
        if video.view != WHOLE:
            for name, stream in part_streams.items():
                part_streams[name] = stream.placed_within(video.view)
    of_parts = iter(streams)
    return [source.join([next(of_parts) for _ in source.parts]) for source, _ in asked]


def describe_spread(frames: int) -> str:
    """Describes how frames are chosen that are spread over the time."""
    return f"{frames} frames, each from the middle of an equal part"


def complete_sampling(own: str, spread: str | None) -> str:
    """Adds to what a name tag says of the choice of frames that some are spread over the time.

    own: of windows all is there; of what is made of several streams a part for each, with semicolons between,
    which is empty where its frames are spread. spread: how, None where the set spreads none.
    """
    if spread is None:
        return own
    return "; ".join(part or spread for part in own.split("; ")) if "stack_size" in own else spread


def build_feature_source(
    sets: Sequence[StreamSet], pool: ExtractorPool, frames: int | None = None
) -> StreamSource:
    """Builds what makes the streams of all the sets, each extractor running once.

    Args:
        sets: Stream sets; those that spread frames alike are made of the same frames.
        pool: Loads the extractors.
        frames: How many, for sets whose frames are spread over the time; None for their own number.

    Raises:
        ValueError: Two sets would make the same stream in different ways.
    """
    by_spread: dict[int | None, list[StreamSet]] = {}
    for each in sets:
        by_spread.setdefault(each.spread, []).append(each)
    sources = [
        FeatureSource(combine_stream_sets(alike), pool=pool, frames=frames) for alike in by_spread.values()
    ]
    return sources[0] if len(sources) == 1 else CombinedFeatureSource(sources)
