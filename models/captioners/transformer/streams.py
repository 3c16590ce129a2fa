"""Says what the transformer reads of any stream set."""

from models.captioners.transformer.config import TransformerConfig
from models.stream_choice import FRAMES, StreamChoice, to_input
from models.stream_set import StreamSet


def fit(base: TransformerConfig, streams: StreamSet) -> TransformerConfig:
    """Gives the transformer all pictures and motion as tokens, and sound where there is some.

    The mean of a map whose cells are tokens already is left out.

    Raises StreamsDoNotFit where the set has sound alone.
    """
    choice = StreamChoice("transformer", streams)
    choice.require(FRAMES, ("grid", "boxes", "none", "steps"), "frames")
    frames = [each for each in streams.inputs if each.kind in FRAMES]
    maps = {each.extractor for each in frames if each.regions in ("grid", "steps")}
    read = [each for each in frames if each.regions != "none" or each.extractor not in maps]
    sound = choice.first(("sound",), ("none",))
    changes = {"frames": tuple(map(to_input, read)), "sound": None if sound is None else to_input(sound)}
    return base.model_copy(update=changes)
