"""The extractors of a stream set, loaded, and the frames that they have to be given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from extractors.crew import Crew
from extractors.extractor import create
from extractors.features import Frames, Stream
from extractors.request import DecodeRequest
from extractors.sampling import Sampling
from models.stream_sets import StreamSet

SHORT_SIDE = 256  #: pixels; networks that look at frames spread over the time look at 224
#: The same for frames that come by windows, of which there are many. Detectors would look at more.
WINDOW_SHORT_SIDE = 480


class Feed:
    """Turns frames into the streams of one set.

    frames: how many of them, for a set whose frames are spread over the time. Raises UnknownExtractor,
    WeightsError, and ValueError for a set with sound: frames alone are given here.
    """

    def __init__(
        self,
        wanted: StreamSet,
        device: str = "cpu",
        *,
        threads: int = 1,
        cache: Path | None = None,
        frames: int | None = None,
    ) -> None:
        self.wanted, self._frames = wanted, frames or wanted.spread
        self.extractors = tuple(
            create(name, device, threads=threads, cache=cache, windows=windows)
            for name, windows in wanted.extractors.items()
        )
        self._crew = Crew(self.extractors)
        if self._crew.sound:
            raise ValueError(
                f"the stream set {wanted.name} needs the sound, and only pictures are given here"
            )

    @property
    def request(self) -> DecodeRequest:
        if self._frames is not None and self.wanted.spread is not None:
            return DecodeRequest(Sampling(count=self._frames), short_side=SHORT_SIDE)
        windows = tuple(dict.fromkeys(extractor.windows for extractor in self._crew.frames))
        return DecodeRequest(short_side=WINDOW_SHORT_SIDE, windows=windows)

    @property
    def sampling(self) -> str | None:
        """How the frames were chosen, None where the streams' name tags say it."""
        if self.wanted.spread is None:
            return None
        return f"{self._frames} frames, each from the middle of an equal part"

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """For each video the set's streams; videos are batched together."""
        streams: list[dict[str, Stream]] = [{} for _ in videos]
        for extractor in self._crew.frames:
            for known, new in zip(streams, extractor.extract(videos), strict=True):
                known.update(new)
        for known in streams:
            self._crew.derive(known)
        return streams
