"""Maps a model's visual tokens back to the time and the place of the frames that they were made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from extractors.features import WHOLE, View, place_within
from extractors.preprocessing.images import make_even_edges, map_to_picture
from models.caption import AttentionDocument
from models.evidence.places import GridPlaces
from models.pretrained.chosen_frames import ChosenFrames
from models.word_maps import attention_document, grid_attention


@dataclass(frozen=True, eq=False)
class TokenMap:
    """Lists which of a model's keys are visual tokens, and what each of them saw."""

    #: int64 (M, rows · columns), places among the keys that are attended to, the cells of a moment row by
    #: row.
    keys: NDArray[np.int64]
    rows: int  #: rows of the grid of cells
    columns: int  #: columns of the grid of cells
    view: View = WHOLE  #: the part of the frame that the grid covers
    frames_each: int = 1  #: frames that make one moment

    def placed_within(self, view: View) -> Self:
        """Returns the map of frames that are a part of the displayed ones, placed in these."""
        return replace(self, view=place_within(view, self.view))

    @property
    def places(self) -> GridPlaces:
        """The grid's cells, of which a quarter is shown at a time."""
        left, top, right, bottom = self.view
        rows = map_to_picture(make_even_edges(self.rows), top, bottom)
        columns = map_to_picture(make_even_edges(self.columns), left, right)
        return GridPlaces(rows, columns, self.view, parts=2, width=0.5)

    def without_attention(self, words: Sequence[str], frames: ChosenFrames) -> AttentionDocument:
        """Makes a document of the moments alone, in which no word has attention.

        words: L words. frames: the video as the model was shown it.
        """
        times, _ = frames.moments(self.frames_each)
        return attention_document(words, times, np.zeros((len(words), len(times))), None)

    def attention(
        self, words: tuple[str, ...], weights: NDArray[np.float64], frames: ChosenFrames
    ) -> AttentionDocument:
        """Sums what words attend to, by time and place.

        Args:
            words: L words.
            weights: (L, keys), how much each attends to every key; what is no visual token is left out, and
                the rest made to sum to one.
            frames: The video as the model was shown it.

        Returns:
            The attention; all zero for a word that attends to no visual token.
        """
        times, place = frames.moments(self.frames_each)
        joint = np.zeros((len(words), len(times), self.rows * self.columns))
        for moment, keys in zip(place, self.keys, strict=True):
            joint[:, moment] += weights[:, keys]
        whole = joint.sum((1, 2), keepdims=True)
        joint = np.divide(joint, whole, out=np.zeros_like(joint), where=whole > 0)
        temporal = joint.sum(2)
        spatial = np.full_like(joint, 1 / joint.shape[2])
        np.divide(joint, temporal[..., None], out=spatial, where=temporal[..., None] > 0)
        grid = grid_attention(spatial, temporal, (self.rows, self.columns), self.view)
        return attention_document(words, times, temporal, grid)


def grid_keys(moments: int, cells: int, leading: int = 0, each: int = 0) -> NDArray[np.int64]:
    """Keys of moments that lie one behind the other.

    Args:
        moments: How many.
        cells: Visual tokens of one.
        leading: Tokens before the first moment that see no single place.
        each: Such tokens at the head of every moment.

    Returns:
        (moments, cells) places among the keys.
    """
    begins = leading + np.arange(moments, dtype=np.int64) * (each + cells) + each
    return begins[:, None] + np.arange(cells, dtype=np.int64)


def covered(view: View, pixels: int, patch: int) -> View:
    """Cuts a square view to what whole patches cover, where ``pixels`` are no multiple of ``patch``.

    Args:
        view: x0 y0 x1 y1 in [0, 1] of the frame.
        pixels: of the view's side, as the network is given it.
        patch: of a patch's side.

    Returns:
        The view that the patches cover.
    """
    left, top, right, bottom = view
    share = pixels // patch * patch / pixels
    return left, top, left + (right - left) * share, top + (bottom - top) * share
