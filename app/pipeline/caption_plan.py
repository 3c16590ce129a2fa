"""Declares the ways to caption: from feature streams, from the frames themselves, or from both in a fusion.

The engine computes the streams of all plans of a batch together, then each plan writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from app.jobs.options import CaptionerChoice
from extractors.features import Frames, Stream
from models.caption import Caption
from models.combining.caption_writers import FusedWriter, Writer
from models.decoding.options import DecodingOptions
from models.feature_sources.feature_source import StreamSource, describe_spread

if TYPE_CHECKING:  # transformers takes seconds to import, and many have no such captioner
    from models.pretrained.load import AnyPretrainedCaptioner


@dataclass(frozen=True, eq=False)
class CaptionInputs:
    """Holds what one video is captioned from."""

    frames: Frames
    streams: Mapping[str, Stream]  #: those of its own captioners, by name


class CaptionPlan(Protocol):
    """Holds who writes, and what feeds them."""

    @property
    def choice(self) -> CaptionerChoice: ...

    @property
    def feature_source(self) -> StreamSource | None:
        """Names what computes the streams; None where frames are read as they are."""
        ...

    def caption(
        self, videos: Sequence[CaptionInputs], options: DecodingOptions, prompt: str | None = None
    ) -> list[list[Caption]]:
        """Writes for each video its best captions, best first.

        Args:
            videos: together.
            options: of the search.
            prompt: what who writes is asked, where that is a captioner that takes one.

        Returns:
            For each video its captions.

        Raises:
            OptionRefused: the prompt cannot be taken.
        """
        ...

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:
        """Names what the caption was written from."""
        ...


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Captions from the streams of extractors: the papers' captioners, alone or combined."""

    choice: CaptionerChoice
    writer: Writer
    feature_source: StreamSource

    def caption(
        self,
        videos: Sequence[CaptionInputs],
        options: DecodingOptions,
        prompt: str | None = None,  # noqa: ARG002 - refused before it comes here
    ) -> list[list[Caption]]:
        """Writes for each video its best captions, best first."""
        return self.writer.caption([video.streams for video in videos], options)

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:
        """Lists the name tag of each stream that was used, with how its frames were chosen."""
        return _describe_streams(self.writer.streams, video.streams, self.feature_source)


@dataclass(frozen=True, eq=False)
class FusionPlan:
    """Captions from streams and from frames: a fusion with pretrained members."""

    choice: CaptionerChoice
    writer: FusedWriter
    feature_source: StreamSource

    def caption(
        self,
        videos: Sequence[CaptionInputs],
        options: DecodingOptions,
        prompt: str | None = None,  # noqa: ARG002 - refused before it comes here
    ) -> list[list[Caption]]:
        """Writes for each video its best captions, best first."""
        frames, streams = [video.frames for video in videos], [video.streams for video in videos]
        return self.writer.caption_frames(frames, streams, options)

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:
        """Lists the streams, and the frames that each pretrained member was shown, under "frames/NAME"."""
        shown = {f"frames/{name}": _describe_shown(each) for name, each in self.writer.pretrained.items()}
        return {**_describe_streams(self.writer.streams, video.streams, self.feature_source), **shown}


@dataclass(frozen=True, eq=False)
class FramePlan:
    """Captions from frames: a pretrained captioner, which has its own image encoder."""

    choice: CaptionerChoice
    captioner: AnyPretrainedCaptioner

    @property
    def feature_source(self) -> None:
        """Returns None: no extractor runs."""
        return None

    def caption(
        self, videos: Sequence[CaptionInputs], options: DecodingOptions, prompt: str | None = None
    ) -> list[list[Caption]]:
        """Writes for each video its best captions, best first."""
        return self.captioner.caption([video.frames for video in videos], options, prompt)

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:  # noqa: ARG002 - of all videos alike
        """Names the model's class, and how many frames it was shown."""
        return {"frames": _describe_shown(self.captioner)}


def _describe_streams(
    names: Iterable[str], streams: Mapping[str, Stream], source: StreamSource
) -> dict[str, Any]:
    specs = {name: streams[name].spec for name in names if name in streams}
    return {
        name: {**asdict(spec), "sampling": source.sampling_of(name) or spec.sampling}
        for name, spec in specs.items()
    }


def _describe_shown(captioner: AnyPretrainedCaptioner) -> dict[str, str]:
    sampling = captioner.sampling
    rate = f"{sampling.fps} frames a second, at most {sampling.max_frames}"
    chosen = describe_spread(sampling.count) if sampling.fps is None else rate
    return {"network": captioner.info.architecture, "sampling": chosen}
