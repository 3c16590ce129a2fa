"""Captions pictures, sparse frames or real clips for their scores, through the path that serves users."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from extractors.features import Frames, Stream
from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest
from extractors.windows import FRAMES, Sampling
from models.combining.caption_writers import Writer
from models.decoding.decode import DecodingOptions
from training.batches.archives import CorpusError, read_items, read_pictures
from training.batches.video_batches import CaptionedVideo

GROUP = 32


@dataclass(frozen=True)
class CaptionedSet:
    """Captions and references by id, in the order they were made."""

    hypotheses: dict[str, str]
    references: dict[str, list[str]]


class StreamExtractor(Protocol):
    """An extractor, or all of a stream set's."""

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]: ...


class NoExtractor:
    """Refuses pictures and clips, where captioners read saved features of a set's videos."""

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """Raises ValueError."""
        raise ValueError(f"these {len(videos)} pictures or clips have no saved features")


@dataclass(frozen=True, eq=False)
class CaptioningRun:
    """Captions sets with one writer."""

    writer: Writer
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
        request = self.request or DecodeRequest(Sampling(count=frames))
        references = {e["file"]: e["captions"] for e in read_clip_list(captions)[:limit]}
        decoded = decode_clips(captions, request, limit)
        return CaptionedSet(self._caption_frames(decoded, len(references)), references)

    def caption_videos(self, videos: Sequence[CaptionedVideo]) -> CaptionedSet:
        """Captions videos of a captioned set, whose features are on the disk."""
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
                best = self.writer.caption(features, self.options)
                hypotheses |= {
                    name: captions[0].text for (name, _), captions in zip(group, best, strict=True)
                }
                bar.update(len(group))
        return hypotheses


def read_clip_list(captions: Path) -> list[dict[str, Any]]:
    """Reads a list of {"file", "captions"}. Raises CorpusError where it has another form."""
    entries = json.loads(captions.read_text())
    if not isinstance(entries, list) or not all({"file", "captions"} <= entry.keys() for entry in entries):
        raise CorpusError(f'{captions} is no list of {{"file", "captions"}}')
    return entries


def decode_clips(
    captions: Path, request: DecodeRequest, limit: int | None = None
) -> Iterator[tuple[str, Frames]]:
    """Decodes the clips of a list that lies beside them, one after another: the file's name, and frames.

    Args:
        captions: the list.
        request: which frames.
        limit: only the first so many.

    Raises:
        CorpusError: the list has another form.
        MediaError: a clip cannot be read.
    """
    for entry in read_clip_list(captions)[:limit]:
        yield entry["file"], decode_here(captions.parent / entry["file"], request).footage


def stack_frames(pictures: list[NDArray[np.uint8]]) -> Frames:
    """Stacks pictures to a video of one second each; differing sizes are brought to the first one's."""
    height, width = pictures[0].shape[:2]
    same = [
        p if p.shape[:2] == (height, width) else np.asarray(Image.fromarray(p).resize((width, height)))
        for p in pictures
    ]
    return Frames(np.stack(same), np.arange(len(same), dtype=np.float64), float(len(same)))
