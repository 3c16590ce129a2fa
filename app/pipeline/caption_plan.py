"""Declares the two ways to caption: from feature streams, or from the frames themselves.

The engine computes the streams of all plans of a batch together, then each plan writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from app.jobs.options import CaptionerChoice
from extractors.features import Frames, Stream
from models.caption import Caption
from models.combining.caption_writers import Writer
from models.decoding.options import DecodingOptions
from models.feature_sources.feature_source import StreamSource, describe_spread

if TYPE_CHECKING:  # transformers takes seconds to import, and many have no such captioner
    from models.pretrained.load import AnyPretrainedCaptioner


@dataclass(frozen=True, eq=False)
class VideoInputs:
    """Holds what one video is captioned from. streams: those of its own captioners, by name."""

    frames: Frames
    streams: Mapping[str, Stream]


class CaptionPlan(Protocol):
    """Holds who writes, and what feeds them."""

    @property
    def choice(self) -> CaptionerChoice: ...

    @property
    def feature_source(self) -> StreamSource | None:
        """Names what computes the streams; None where frames are read as they are."""
        ...

    def caption(self, videos: Sequence[VideoInputs], options: DecodingOptions) -> list[list[Caption]]:
        """Writes for each video its best captions, best first."""
        ...

    def provenance(self, video: VideoInputs) -> dict[str, Any]:
        """Names what the caption was written from."""
        ...


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Captions from the streams of extractors: the papers' captioners, alone or combined."""

    choice: CaptionerChoice
    writer: Writer
    feature_source: StreamSource

    def caption(self, videos: Sequence[VideoInputs], options: DecodingOptions) -> list[list[Caption]]:
        """Writes for each video its best captions, best first."""
        return self.writer.caption([video.streams for video in videos], options)

    def provenance(self, video: VideoInputs) -> dict[str, Any]:
        """Lists the name tag of each stream that was used, with how its frames were chosen."""
        streams = video.streams
        specs = {name: streams[name].spec for name in self.writer.streams if name in streams}
        return {
            name: {**asdict(spec), "sampling": self.feature_source.sampling_of(name) or spec.sampling}
            for name, spec in specs.items()
        }


@dataclass(frozen=True, eq=False)
class FramePlan:
    """Captions from frames: a pretrained captioner, which has its own image encoder."""

    choice: CaptionerChoice
    captioner: AnyPretrainedCaptioner

    @property
    def feature_source(self) -> None:
        """None: no extractor runs."""
        return None

    def caption(self, videos: Sequence[VideoInputs], options: DecodingOptions) -> list[list[Caption]]:
        """Writes for each video its best captions, best first."""
        return self.captioner.caption([video.frames for video in videos], options)

    def provenance(self, video: VideoInputs) -> dict[str, Any]:  # noqa: ARG002 - of all videos alike
        """Names the model's class, and how many frames it was shown."""
        sampling = self.captioner.sampling
        rate = f"{sampling.fps} frames a second, at most {sampling.max_frames}"
        return {
            "frames": {
                "network": self.captioner.info.architecture,
                "sampling": describe_spread(sampling.count) if sampling.fps is None else rate,
            }
        }
