"""Captions pictures, sparse frames or real clips for their scores, through the path that serves users."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from extractors.features import Features, Footage, Frames, Stream
from extractors.media.decode import decode_here
from extractors.media.errors import MediaError
from extractors.media.request import DecodeRequest, cut_clip
from extractors.windows import FRAMES, Sampling
from models.caption import Caption
from models.combining.caption_writers import FusedWriter, Writer
from models.decoding.decode import DecodingOptions
from training.batches.archives import CorpusError, read_items, read_pictures
from training.batches.video_batches import CaptionedVideo, Notify
from training.batches.video_features import FailedVideo, describe_failures
from training.datasets.caption_set import VideoItem

if TYPE_CHECKING:  # transformers takes seconds to import, and many have no such captioner
    from models.pretrained.load import AnyPretrainedCaptioner

GROUP = 32


@dataclass(frozen=True)
class CaptionedSet:
    """Captions and references by id, in the order they were made."""

    hypotheses: dict[str, str]
    references: dict[str, list[str]]


class StreamExtractor(Protocol):
    """An extractor, or all of a stream set's."""

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]: ...


class NoStreams:
    """Makes no stream, for captioners that look at frames alone, or at saved features."""

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """Returns nothing for each video."""
        return [{} for _ in videos]


@dataclass(frozen=True, eq=False)
class FrameWriter:
    """Writes with a pretrained captioner, which looks at frames and at no stream."""

    captioner: "AnyPretrainedCaptioner"

    def caption_frames(
        self, frames: Sequence[Frames], _features: Sequence[Features], options: DecodingOptions
    ) -> list[list[Caption]]:
        """Writes captions of videos, best first, as ``FusedWriter.caption_frames`` does, but reads no
        features.

        Args:
            frames, options: as of that one.
            _features: none.

        Raises:
            OptionRefused, NotANumber: as ``PretrainedCaptioner.caption`` does.
        """
        return self.captioner.caption(frames, options)


@dataclass(frozen=True, eq=False)
class CaptioningRun:
    """Captions sets with one writer."""

    writer: Writer | FrameWriter
    extractor: StreamExtractor
    options: DecodingOptions
    request: DecodeRequest | None = None  #: the frames of a clip, by default some spread over it

    def caption_pictures(
        self, archive: Path, captions: Path, split: str | None, limit: int | None = None
    ) -> CaptionedSet:
        """Captions pictures, or videos given as their frames in order (MSR-VTT's form).

        Args:
            archive: a tar or a folder of pictures.
            captions: their captions, in either JSON form.
            split: one of the splits, None for all.
            limit: only the first so many.

        Raises:
            CorpusError: a file is not what it should be.
        """
        items = read_items(captions, split)[:limit]
        pictures = dict(read_pictures(archive, [name for item in items for name in item.files]))
        frames = ((item.id, stack_frames([pictures.pop(name) for name in item.files])) for item in items)
        return CaptionedSet(
            self._caption_frames(frames, len(items)), {item.id: list(item.captions) for item in items}
        )

    def caption_clips(self, captions: Path, frames: int = FRAMES, limit: int | None = None) -> CaptionedSet:
        """Captions video files that a JSON list of {"file", "captions"} names, beside that list.

        Args:
            captions: the list.
            frames: how many of each clip.
            limit: only the first so many.

        Raises:
            CorpusError: the list has another form.
            MediaError: a clip cannot be read.
        """
        clips = read_clip_list(captions)[:limit]
        request = self.request or DecodeRequest(Sampling(count=frames))
        decoded = ((clip.id, decode_video(clip, request)) for clip in clips)
        return match(self._caption_frames(decoded, len(clips)), clips)

    def caption_files(self, videos: Sequence[VideoItem], notify: Notify) -> CaptionedSet:
        """Captions videos of a set from their files; features are made and not kept.

        videos: with files. notify: is given a sentence for each of the first few that cannot be read.
        """
        failed: list[FailedVideo] = []
        request = self.request or DecodeRequest()
        written = self._caption_frames(_decode_videos(videos, request, failed), len(videos))
        for line in describe_failures(failed):
            notify(line)
        return match(written, videos)

    def caption_videos(self, videos: Sequence[CaptionedVideo]) -> CaptionedSet:
        """Captions videos of a captioned set, whose features are on the disk."""
        assert not isinstance(self.writer, FrameWriter), "features are captioned, and it looks at frames"
        hypotheses: dict[str, str] = {}
        for start in tqdm(range(0, len(videos), GROUP), desc="captions", unit="group", disable=None):
            group = videos[start : start + GROUP]
            best = self.writer.caption([each.load() for each in group], self.options)
            hypotheses |= {each.id: captions[0].text for each, captions in zip(group, best, strict=True)}
        return CaptionedSet(hypotheses, {each.id: list(each.video.captions) for each in videos})

    def _caption_frames(self, videos: Iterator[tuple[str, Frames]], total: int) -> dict[str, str]:
        hypotheses: dict[str, str] = {}
        with tqdm(total=total, desc="captions", unit="video") as bar:
            while group := list(islice(videos, GROUP)):
                features = self.extractor.extract([frames for _, frames in group])
                if isinstance(self.writer, FusedWriter | FrameWriter):
                    frames = [each for _, each in group]
                    best = self.writer.caption_frames(frames, features, self.options)
                else:
                    best = self.writer.caption(features, self.options)
                hypotheses |= {
                    name: captions[0].text for (name, _), captions in zip(group, best, strict=True)
                }
                bar.update(len(group))
        return hypotheses


def match(hypotheses: dict[str, str], videos: Sequence[VideoItem]) -> CaptionedSet:
    """Puts the references of those videos beside the captions that have one."""
    return CaptionedSet(hypotheses, {v.id: list(v.captions) for v in videos if v.id in hypotheses})


def read_clip_list(captions: Path) -> list[VideoItem]:
    """Reads a list of {"file", "captions"}; the files lie beside it.

    Raises CorpusError where it has another form.
    """
    entries = json.loads(captions.read_text())
    if not isinstance(entries, list) or not all({"file", "captions"} <= entry.keys() for entry in entries):
        raise CorpusError(f'{captions} is no list of {{"file", "captions"}}')
    return [
        VideoItem(entry["file"], captions.parent / entry["file"], "test", tuple(entry["captions"]))
        for entry in entries
    ]


def decode_video(video: VideoItem, request: DecodeRequest) -> Footage:
    """Decodes a video's file, or the part of it that is meant. Raises MediaError."""
    assert video.path is not None
    if video.start is None or video.end is None:
        return decode_here(video.path, request).footage
    part = (video.start, video.end)
    return cut_clip(decode_here(video.path, replace(request, part=part)).footage, *part)


def _decode_videos(
    videos: Sequence[VideoItem], request: DecodeRequest, failed: list[FailedVideo]
) -> Iterator[tuple[str, Frames]]:
    """Decodes videos one after another: id and frames; those that cannot be read go to ``failed``."""
    for video in videos:
        try:
            yield video.id, decode_video(video, request)
        except MediaError as error:
            failed.append(FailedVideo(video.id, error.code, str(error)))


def stack_frames(pictures: list[NDArray[np.uint8]]) -> Frames:
    """Stacks pictures to a video of one second each; differing sizes are brought to the first one's."""
    height, width = pictures[0].shape[:2]
    same = [
        p if p.shape[:2] == (height, width) else np.asarray(Image.fromarray(p).resize((width, height)))
        for p in pictures
    ]
    return Frames(np.stack(same), np.arange(len(same), dtype=np.float64), float(len(same)))
