"""Defines the base of extractors that look at windows of frames, a single frame being a window of one.

A subclass has two methods: one prepares frames, which is done once however many windows share a frame, one
turns a batch of windows into rows. extractors/windowing/batching.py cuts and batches them, in memory here or
as a decoder hands the frames over (extractors/video_features/extract_videos.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from extractors.features import WHOLE, Frames, FrameSize, Resizing, Stream, StreamSpec, View
from extractors.preprocessing.images import to_device
from extractors.windowing.batching import Batcher, PendingRows, WindowCutter
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows


class WindowExtractor(ABC):
    """Turns frames into streams. These are called ``<name>`` (T, C), ``<name>_grid`` (T, cells, C), row by
    row, and ``<name>_logits`` (T, classes).
    """

    name: str
    needs: frozenset[str] = frozenset({"frames"})
    spec: StreamSpec  #: the name tag
    width: int  #: channels of ``<name>``
    windows: Windows  #: how a video is cut
    #: Pixels of the shorter edge to which the decoder shrinks larger frames, None for frames as stored.
    short_side: int | None
    batch: int  #: windows a forward pass
    device: torch.device
    classes: tuple[str, ...] | None = None  #: labels of the logits, where known
    #: Whether ``extract`` takes every frame that it is given, by whatever rule these were chosen, and not
    #: windows.
    any_frames: bool = False

    @property
    def resizing(self) -> Resizing | None:
        """Returns ``prepare``'s first resizing of whole frames; None where it resizes none."""
        return None

    @cached_property
    def frame_size(self) -> FrameSize:
        """The size in which frames may be handed to it without changing what ``prepare`` makes of them."""
        return FrameSize(self.short_side, self.resizing)

    @abstractmethod
    def prepare(self, frames: Tensor) -> Tensor:
        """Resizes or cuts frames uint8 (T, H, W, 3), on the device, to uint8 (T, h, w, 3)."""

    def view(self, height: int, width: int) -> View:  # noqa: ARG002 - a subclass that cuts needs them
        """Computes the part that ``prepare`` keeps of frames of that size."""
        return WHOLE

    @abstractmethod
    def extract_windows(self, stacks: Tensor) -> Mapping[str, WindowRows]:
        """Turns windows, prepared frames uint8 (N, stack_size, h, w, 3), into rows by stream name."""

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """Extracts each video's streams, on the CPU; windows of all videos are batched together."""
        batcher, waiting = Batcher(self), []
        for video in videos:
            cut = self.windows.cut(video.duration, video.rate)
            pending = PendingRows(self, cut, self.view(*video.pixels.shape[1:3]))
            frames = to_device(video.pixels, self.device)
            for stack in WindowCutter(self, cut).push(frames, video.pts, video.duration):
                batcher.add(stack, pending)
            waiting.append(pending)
        batcher.flush()
        return [pending.streams() for pending in waiting]


def describe_windows(windows: Windows) -> str:
    """Describes how a video is cut, for the name tag."""
    clock = f"{windows.extraction_fps:g} fps" if windows.extraction_fps else "every frame"
    if windows.extraction_total is not None:
        clock = f"extraction_total {windows.extraction_total}"
    return f"stack_size {windows.stack_size}, step_size {windows.step_size}, {clock}"
