"""Configures refocus: its inputs, its widths, and the rows of the paper's table 1."""

from typing import Literal

from pydantic import BaseModel

from models.inputs import InputStream, deduplicate


class RefocusConfig(BaseModel, frozen=True):
    """Configures the captioner; widths default to the paper's."""

    grid: InputStream = InputStream(name="resnet152", width=2048)
    audio: InputStream | None = InputStream(name="vggish", width=128)
    embedded: int | None = None
    hidden: int = 512  #: also the words' width, since o_i takes a word's place
    attention: int = 512
    #: "vre" is the paper's; "kbigru" (the first step alone) and "none", with ``spatial`` and ``audio``, are
    #: the rows of its table 1
    encoder: Literal["vre", "kbigru", "none"] = "vre"
    spatial: bool = True
    beta: float = 0.03
    dropout: float = 0.5
    frozen_key_frames: bool = False
    tie_words: bool = False

    @property
    def streams(self) -> tuple[InputStream, ...]:
        """In the order of ``encode_batches``; the grid leads, since attention is reported on its clock."""
        return deduplicate(self.grid, self.audio)

    @property
    def width(self) -> int:
        """Width d of what the encoder and the attentions read."""
        return self.grid.width if self.embedded is None else self.embedded

    @property
    def audio_width(self) -> int:
        """Width of v^a, 0 without sound."""
        return 0 if self.audio is None else self.audio.width
