"""Opens a folder of saved features: what ``extract`` wrote, or what a map says of other people's files."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from models.checkpoint import Card
from models.feature_sources.stream_checks import select_stream_set
from models.stream_set import SAVED, StreamSet
from models.video_category import list_extracted
from training.batches.video_features import FeatureStore
from training.saved_features.extracted_features import ExtractedFeatures
from training.saved_features.feature_map import FeatureMap, find_feature_map, read_feature_map
from training.saved_features.mapped_features import MappedFeatures


@dataclass(frozen=True)
class FeatureFolder:
    """A folder of saved features."""

    folder: Path  #: where they lie
    #: the file that names them, by default features.yaml or features.json there, where there is one; without
    #: one the folder is what ``extract`` wrote
    map: Path | None = None

    @cached_property
    def map_path(self) -> Path | None:
        """The map's file; None for what ``extract`` wrote."""
        return self.map or find_feature_map(self.folder)

    @cached_property
    def feature_map(self) -> FeatureMap | None:
        """The map's content; None for what ``extract`` wrote. Raises FeatureMapDamaged."""
        return None if self.map_path is None else read_feature_map(self.map_path)

    @property
    def stream_set(self) -> StreamSet | None:
        """The set of a map's streams; None for what ``extract`` wrote. Raises FeatureMapDamaged."""
        return None if self.feature_map is None else self.feature_map.stream_set

    def open(self, wanted: StreamSet, optional: frozenset[str] = frozenset()) -> FeatureStore:
        """Opens the features of a stream set.

        Raises FeatureMapDamaged: the map cannot be read; FeaturesDoNotFit: what lies there has other streams,
        widths or clocks.
        """
        if self.map_path is None or self.feature_map is None:
            return ExtractedFeatures(self.folder, wanted, optional)
        return MappedFeatures(self.folder, self.map_path, self.feature_map, wanted, optional)

    def select(self, card: Card, asked: str | None = None) -> StreamSet:
        """Chooses what a captioner, or an embedding, reads of these features.

        asked: a stream set by name, by default the card's. Raises StreamMismatch, UnknownStreamSet: the set
        makes other streams than it was trained on; UnknownStream: the map names other streams.
        """
        mapped = self.stream_set
        if asked is None and mapped is not None and card.training.get("streams") == SAVED:
            return mapped.only(list_extracted(card.streams))
        return select_stream_set(card, asked).only(list_extracted(card.streams))
