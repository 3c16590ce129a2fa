"""Configures the three captioners of the VATEX challenge: their inputs and their widths."""

from pydantic import BaseModel

from models.inputs import InputStream, deduplicate


class VatexConfig(BaseModel, frozen=True):
    """Configures the vanilla and the temporal captioner. Widths are ours, the paper gives none."""

    image: InputStream = InputStream(name="resnext101", width=2048)
    motion: InputStream | None = InputStream(name="ir_csn", width=2048)
    audio: InputStream | None = InputStream(name="vggish", width=128)
    hidden: int = 512
    embedded: int = 512
    words: int = 300
    attention: int = 512
    dropout: float = 0.5
    tie_words: bool = False

    @property
    def pooled(self) -> tuple[InputStream, ...]:
        """The streams that v̄ is made of."""
        return tuple(stream for stream in (self.image, self.motion, self.audio) if stream is not None)

    @property
    def streams(self) -> tuple[InputStream, ...]:
        """The streams in the order of ``encode_batches``; attention is reported on the first one's clock."""
        return deduplicate(*self.pooled)


class SpatialVatexConfig(VatexConfig):
    """Configures the spatial captioner, whose objects lead the clock."""

    objects: InputStream = InputStream(name="mask_rcnn_roi", width=4096)
    #: the same boxes on the motion network's map, where that is a stream of its own
    moving_objects: InputStream | None = None

    @property
    def streams(self) -> tuple[InputStream, ...]:
        return deduplicate(self.objects, self.moving_objects, *self.pooled)
