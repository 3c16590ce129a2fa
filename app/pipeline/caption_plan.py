"""Declares the ways to caption: from feature streams, frames beside them in a fusion, or from frames alone.

The engine computes the streams of all plans of a batch together, then each plan writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

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


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Captions from the streams of extractors: the papers' captioners, alone or combined.

    A fusion with pretrained members looks at the frames, too.
    """

    choice: CaptionerChoice
    writer: Writer
    feature_source: StreamSource  #: computes the streams

    def caption(
        self,
        videos: Sequence[CaptionInputs],
        options: DecodingOptions,
        prompt: str | None = None,  # noqa: ARG002 - refused before it comes here
    ) -> list[list[Caption]]:
        """Writes for each video its best captions, best first.

        Args:
            videos: together.
            options: of the search.
            prompt: none of these captioners takes one.
        """
        streams = [video.streams for video in videos]
        if isinstance(self.writer, FusedWriter):
            return self.writer.caption_frames([video.frames for video in videos], streams, options)
        return self.writer.caption(streams, options)

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:
        """Lists the name tag of each stream that was used, with how its frames were chosen.

        The frames that each pretrained member was shown stand under "frames/NAME".
        """
        specs = {name: video.streams[name].spec for name in self.writer.streams if name in video.streams}
        used = {
            name: {**asdict(spec), "sampling": self.feature_source.sampling_of(name) or spec.sampling}
            for name, spec in specs.items()
        }
        members = self.writer.pretrained if isinstance(self.writer, FusedWriter) else {}
        return {**used, **{f"frames/{name}": _describe_shown(each) for name, each in members.items()}}


@dataclass(frozen=True, eq=False)
class FramePlan:
    """Captions from frames: a pretrained captioner, which has its own image encoder."""

    choice: CaptionerChoice
    captioner: AnyPretrainedCaptioner
    feature_source: None = None  #: no extractor runs

    def caption(
        self, videos: Sequence[CaptionInputs], options: DecodingOptions, prompt: str | None = None
    ) -> list[list[Caption]]:
        """Writes for each video its best captions, best first.

        Args:
            videos: together.
            options: of the search.
            prompt: what the captioner is asked, where it takes one.

        Raises:
            OptionRefused: the prompt cannot be taken.
        """
        return self.captioner.caption([video.frames for video in videos], options, prompt)

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:  # noqa: ARG002 - of all videos alike
        """Names the model's class, and how many frames it was shown."""
        return {"frames": _describe_shown(self.captioner)}


CaptionPlan: TypeAlias = StreamPlan | FramePlan


def _describe_shown(captioner: AnyPretrainedCaptioner) -> dict[str, str]:
    sampling = captioner.sampling
    rate = f"{sampling.fps} frames a second, at most {sampling.max_frames}"
    chosen = describe_spread(sampling.count) if sampling.fps is None else rate
    return {"network": captioner.info.architecture, "sampling": chosen}
