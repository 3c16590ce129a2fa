"""Makes training batches of videos' frames, for captioners that read frames and no features.

A video is decoded once, by the request that the captioner makes when it serves, and its frames are kept on
the disk as features are: a run that was stopped goes on with the videos that have none yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from extractors.decoder.decoder import Decoder
from extractors.features import Frames, FrameSize, Stream, StreamSpec
from extractors.media.request import DecodeRequest, Limits, cut_clip
from extractors.video_features.feature_files import FeatureSpec, SavedFeatures, VideoSource
from models.vocabulary import Vocabulary
from training.batches.training_batch import TrainingBatch, TrainingBatches
from training.batches.video_batches import CaptionedVideo
from training.batches.video_features import KeptVideos
from training.datasets.caption_set import VideoItem

FRAMES = "frames"


class VideoFrames(KeptVideos):
    """The frames of videos. request: decides which, and how large they are."""

    def __init__(self, request: DecodeRequest, cache: Path) -> None:
        spec = StreamSpec(FRAMES, "", f"short side {request.short_side}", str(request.sampling))
        super().__init__(FeatureSpec(FRAMES, spec), cache)
        self._request, self._spec = request, spec

    def _make(self, video: VideoItem, decoder: Decoder) -> SavedFeatures:
        assert video.path is not None
        part = None if video.start is None or video.end is None else (video.start, video.end)
        decoded = decoder.decode(video.path, replace(self._request, part=part), Limits())
        footage = decoded.footage if part is None else cut_clip(decoded.footage, *part)
        frames = footage.at(FrameSize(self._request.short_side))
        ends = np.append(frames.pts[1:], max(frames.duration, frames.pts[-1]))
        pixels = torch.from_numpy(np.ascontiguousarray(frames.pixels))
        stream = Stream(pixels, frames.pts, ends, self._spec, view=frames.view)
        source = VideoSource.of(video.path)
        return SavedFeatures(self._tag, source, decoded.video.media(), footage.rate, {FRAMES: stream})


def load_frames(video: CaptionedVideo) -> Frames:
    """Reads the frames of a video. Raises FeaturesDamaged."""
    stream = video.load()[FRAMES]
    return Frames(stream.values.numpy(), stream.start, float(stream.end[-1]), view=stream.view)


@dataclass(frozen=True, eq=False)
class FrameBatch(TrainingBatch):
    """B videos with their frames, and K captions of each as they were written."""

    frames: Sequence[Frames] = ()
    texts: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, eq=False)
class FrameBatches(TrainingBatches[CaptionedVideo]):
    """Batches of videos' frames. Texts are spelt by the captioner, which has a vocabulary of its own."""

    vocabulary: Vocabulary = field(default=Vocabulary(()), kw_only=True)

    def at(self, step: int) -> FrameBatch:
        """Makes batch ``step``. Raises FeaturesDamaged."""
        drawn = self.part.of(self._choose_captions(step))
        return FrameBatch(
            ids=tuple(item.id for item, _ in drawn),
            batches={},
            targets=torch.zeros(len(drawn) * self.captions, 1, dtype=torch.long),
            true_steps=None,
            frames=[load_frames(item) for item, _ in drawn],
            texts=[[item.video.captions[place] for place in places] for item, places in drawn],
        )
