"""Makes training batches of real videos: each has as many rows of each stream as the video has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

from torch.nn.functional import pad
from tqdm import tqdm

from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.features import Features
from models.captioner import Captioner
from models.inputs import PLAIN_LAYOUT, Batch, BatchLayout, InputStream, collate_inputs, count_regions
from models.video_category import add_category
from models.vocabulary import pad_captions
from training.batches.loading import find_device
from training.batches.training_batch import TrainingBatch, TrainingBatches
from training.batches.video_features import FeatureStore, describe_failures
from training.datasets.caption_set import VideoItem
from training.datasets.errors import NothingToUse
from training.precision import CPU

#: Is given sentences that the user should know.
Notify: TypeAlias = Callable[[str], None]


class NoFeatures(ReelwordError, ValueError, code="no_features"):
    """Saved features have none of a set's videos; the message says what was looked for of the first."""

    hint = "Correct the patterns of the map, or name the features of this set."


@dataclass(frozen=True, eq=False)
class CaptionedVideo:
    """A video whose features are on the disk, and its captions as words."""

    video: VideoItem
    features: FeatureStore
    captions: tuple[tuple[str, ...], ...]

    @classmethod
    def from_video(cls, video: VideoItem, features: FeatureStore) -> Self:
        """Splits the video's captions into words."""
        captions = tuple(tuple(video.split_caption(caption)) for caption in video.captions)
        return cls(video, features, captions)

    @property
    def id(self) -> str:
        return self.video.id

    def load(self) -> Features:
        """Reads the features, and adds what the annotations say of the video. Raises FeaturesDamaged."""
        return add_category(self.features.load(self.video), self.video.category)


def load_captioned_videos(
    name: str, videos: Sequence[VideoItem], features: FeatureStore, notify: Notify
) -> list[CaptionedVideo]:
    """Makes the features that are not there yet, and returns the videos that can be read.

    Args:
        name: what the set is called in errors.
        videos: of the set, each with a file.
        features: makes and keeps the videos' features.
        notify: is given a sentence for each of the first few videos that cannot be read.

    Raises:
        NoFeatures: no video's features are where they are looked for.
        NothingToUse: no video can be read.
    """
    with closing(Decoder()) as decoder:  # its process starts with the first file, if there is one
        failed = features.make(videos, decoder)
    for line in describe_failures(failed):
        notify(line)
    lost = {each.id for each in failed}
    read = [CaptionedVideo.from_video(video, features) for video in videos if video.id not in lost]
    if not read and all(each.code == "features_missing" for each in failed):
        raise NoFeatures(f"None of the {len(videos)} videos of {name} has features: {failed[0].message}.")
    if not read:
        raise NothingToUse(f"None of the {len(videos)} videos of {name} can be read.")
    return read


@dataclass(frozen=True)
class VideoInputs:
    """The streams that a captioner reads."""

    streams: tuple[InputStream, ...]
    optional: frozenset[str] = frozenset()  #: those that a video may lack
    layout: BatchLayout = PLAIN_LAYOUT  #: of every stream's batch
    #: of streams whose batches have all the same shape: rows of time and regions
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def for_captioner(cls, captioner: Captioner) -> Self:
        """Lists the captioner's inputs, each once; where it lies on a GPU, half precision goes there."""
        named = {each.name: InputStream(name=each.name, width=each.width) for each in captioner.inputs}
        layout = BatchLayout(keeps_half=find_device(captioner).type == "cuda")
        return cls(tuple(named.values()), captioner.optional_streams, layout)

    def fix_shapes(self, videos: Iterable[CaptionedVideo]) -> Self:
        """Returns the same inputs, all of whose batches are as long and wide as these videos need at most.

        The features of all are read, and verified, at once. Raises FeaturesDamaged.
        """
        shapes: dict[str, tuple[int, int]] = {}
        for video in tqdm(videos, desc="shapes", unit="video", disable=None):
            for name, stream in video.load().items():
                frames, regions = shapes.get(name, (0, 0))
                shapes[name] = max(frames, len(stream)), max(regions, count_regions(stream))
        return replace(self, shapes=shapes)

    def collate(self, features: Sequence[Features]) -> dict[str, Batch]:
        """Pads features of B videos to one batch a stream."""
        batches = {}
        for stream in self.streams:
            frames, regions = self.shapes.get(stream.name, (0, 0))
            layout = replace(self.layout, frames=frames, regions=regions)
            [batches[stream.name]] = collate_inputs(features, [stream], CPU, self.optional, layout)
        return batches

    def load(self, videos: Sequence[CaptionedVideo]) -> Mapping[str, Batch]:
        """Reads whole videos as one batch a stream. Raises FeaturesDamaged."""
        return self.collate([video.load() for video in videos])


@dataclass(frozen=True, eq=False)
class VideoBatches(TrainingBatches[CaptionedVideo]):
    """Batches of whole videos."""

    inputs: VideoInputs
    fixed_shapes: bool = False  #: whether captions are padded to ``max_length``, as ``inputs`` are then too

    def at(self, step: int) -> TrainingBatch:
        """Makes batch ``step``. Raises FeaturesDamaged."""
        taken = self.part.of(self._choose_captions(step))
        chosen, drawn = [item for item, _ in taken], [(item, i) for item, places in taken for i in places]
        captions = [self.vocabulary.encode(item.captions[i]) for item, i in drawn]
        targets = pad_captions(captions, self.max_length, keep_end=self.keep_end)
        longer = self.max_length - targets.shape[1] if self.fixed_shapes else 0
        return TrainingBatch(
            ids=tuple(item.id for item in chosen),
            batches=self.inputs.load(chosen),
            targets=pad(targets, (0, longer), value=-1),
            places=tuple(i for _, i in drawn),
            true_steps=None,
        )
