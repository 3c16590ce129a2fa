"""Says what the captioners of the VATEX challenge read of any stream set."""

from models.captioners.vatex.config import SpatialVatexConfig, VatexConfig
from models.inputs import InputStream
from models.stream_choice import FRAMES, StreamChoice, to_input
from models.stream_set import StreamInput, StreamSet


def fit(base: VatexConfig, streams: StreamSet) -> VatexConfig:
    """Gives the members of the fusion picture, motion and sound, as far as the set has them.

    The spatial one has objects beside them: boxes, or else cells.

    Raises StreamsDoNotFit where the set has sound alone, or for objects neither boxes nor cells.
    """
    objects = _choose_objects(streams) if isinstance(base, SpatialVatexConfig) else {}
    choice = StreamChoice("the fusion's captioner", streams)
    image = choice.require(FRAMES, ("none", "grid", "boxes"), "frames")
    motion = [each for each in choice.list(("motion",), ("none", "grid")) if each != image]
    sound = choice.first(("sound",), ("none",))
    pooled = {
        "image": to_input(image),
        "motion": to_input(motion[0]) if motion else None,
        "audio": None if sound is None else to_input(sound),
    }
    return base.model_copy(update={**pooled, **objects})


def _choose_objects(streams: StreamSet) -> dict[str, InputStream | None]:
    """Chooses boxes, or else cells, and the same boxes on the motion network's map where there are such."""
    choice = StreamChoice("spatial", streams)
    objects = choice.first_regions() or choice.require((), (), "boxes, or cells in their place")
    moving = [each for each in choice.list(("motion",), ("boxes",)) if _boxes(each) == _boxes(objects)]
    return {
        "objects": to_input(objects),
        "moving_objects": to_input(moving[0]) if moving and moving[0] != objects else None,
    }


def _boxes(stream: StreamInput) -> str:
    """Names whose boxes a stream's values are of."""
    return stream.extractor.rpartition("@")[2]
