"""Configures the transformer: its inputs and its widths."""

from pydantic import BaseModel

from models.inputs import InputStream


class TransformerConfig(BaseModel, frozen=True):
    """Configures the transformer. Widths are those of the base model of Vaswani et al. (2017)."""

    #: What is looked at; attention is reported on the first one's clock and places.
    frames: tuple[InputStream, ...] = (InputStream(name="resnext101_grid", width=2048),)
    #: What is heard; any video may lack it.
    sound: InputStream | None = None
    width: int = 512  #: of every token
    heads: int = 8
    feed_forward: int = 2048
    encoder_layers: int = 0  #: over the tokens of all streams, before the first word
    layers: int = 4  #: of the decoder
    dropout: float = 0.1
    tie_words: bool = True

    @property
    def streams(self) -> tuple[InputStream, ...]:
        """The streams in the order of ``encode_batches``."""
        return self.frames if self.sound is None else (*self.frames, self.sound)
