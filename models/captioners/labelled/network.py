"""Gives STaTS labels and remembered sentences; models/labels/labelled_captioner.py is what it does."""

from models.captioners.stats.config import STaTSConfig
from models.captioners.stats.network import STaTS
from models.labels.labelled_captioner import LabelledCaptioner, LabelledConfig


class LabelledSTaTS(LabelledCaptioner):
    """Writes with STaTS, and ranks what it wrote and what it recalled by labels and picture."""

    name = "labelled_stats"
    writer_class = STaTS
    config_class = LabelledConfig[STaTSConfig]
