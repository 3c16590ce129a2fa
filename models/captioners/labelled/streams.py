"""Says what captioners that know labels read of a stream set."""

from dataclasses import replace

from models.captioners.stats.config import STaTSConfig
from models.captioners.stats.streams import fit as fit_stats
from models.labels.expected_meaning import LABELS
from models.labels.labelled_captioner import LabelledConfig
from models.stream_set import StreamSet

#: What STaTS reads of a set with labels: the picture, by whose words and attention it was trained.
PICTURE = "tuned_pair_grid"


def fit(base: LabelledConfig[STaTSConfig], streams: StreamSet) -> LabelledConfig[STaTSConfig]:
    """Gives the captioner inside the picture of a set that has labels beside it, of any other all of it.

    Raises StreamsDoNotFit where the captioner inside cannot be fed by the set.
    """
    read = (
        [each for each in streams.inputs if each.stream == PICTURE]
        if LABELS in streams.streams
        else streams.inputs
    )
    writer = fit_stats(base.writer, replace(streams, inputs=tuple(read)))
    return base.model_copy(update={"writer": writer})
