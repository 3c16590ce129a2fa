"""Groups extractors by input: frames, sound, or other extractors' streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from extractors.extractor import AnyExtractor, DerivedExtractor, SoundExtractor
from extractors.features import FrameSize, Stream
from extractors.media.request import DecodeRequest
from extractors.windowing.window_extractor import WindowExtractor


class ExtractorGroup:
    """Raises ValueError where there is none, two have one name, or one needs what no decoder gives."""

    def __init__(self, extractors: Sequence[AnyExtractor]) -> None:
        self.frames: list[WindowExtractor] = []
        self.sound: list[SoundExtractor] = []
        self.derived: list[DerivedExtractor] = []
        for extractor in extractors:
            self._place(extractor)
        counts = Counter(extractor.name for extractor in extractors)
        twice = [name for name, count in counts.items() if count > 1]
        if twice or not counts:
            raise ValueError(f"extractors given twice: {', '.join(twice)}" if twice else "no extractor given")

    def _place(self, extractor: AnyExtractor) -> None:
        if isinstance(extractor, WindowExtractor):
            self.frames.append(extractor)
        elif "audio" in extractor.needs:
            self.sound.append(extractor)  # type: ignore[arg-type]
        elif "streams" in extractor.needs:
            self.derived.append(extractor)  # type: ignore[arg-type]
        else:
            raise ValueError(f"{extractor.name} cannot be fed by a decoder: it needs {set(extractor.needs)}")

    def request(self) -> DecodeRequest:
        """Requests every frame that any extractor looks at, in the sizes that they want, and the sound."""
        return DecodeRequest(
            sampling=None,
            short_side=None,
            audio_rate=max((extractor.rate for extractor in self.sound), default=None),
            windows=tuple(dict.fromkeys(extractor.windows for extractor in self.frames)),
            sizes=tuple(dict.fromkeys(streamed_size(extractor) for extractor in self.frames)),
        )

    def derive(self, streams: dict[str, Stream]) -> None:
        """Adds the derived streams, each after those that it needs.

        Raises ValueError where a stream that is needed comes from none of the extractors.
        """
        waiting = list(self.derived)
        while waiting:
            ready = [extractor for extractor in waiting if streams.keys() >= set(extractor.needs_streams)]
            if not ready:
                missing = sorted(set(waiting[0].needs_streams) - streams.keys())
                raise ValueError(f"{waiting[0].name} needs {', '.join(missing)}, which no extractor gives")
            for extractor in ready:
                streams.update(extractor.derive(streams))
                waiting.remove(extractor)


def streamed_size(extractor: WindowExtractor) -> FrameSize:
    """Chooses the size in which the decoder streams frames to an extractor.

    Made smaller by the decoder they are the very bytes that the extractor's own resizing on a CPU gives.
    Another device resizes by itself, faster and not bit by bit alike.
    """
    return extractor.frame_size if extractor.device.type == "cpu" else FrameSize(extractor.short_side)
