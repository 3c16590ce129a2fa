"""What all rows of a family begin with: the words, as the family's shipped captioner has learned them.

From nothing, the minutes of a row go into learning to write, and what a row is about, how to look, hardly
begins. So the embedding of the words, the decoder and the output are taken from the shipped checkpoint, but
only those that have one shape in every row: no row begins with more than another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoint import load_checkpoint
from models.vocabulary import Vocabulary
from training.ablations.row import Family, NotThere, Trained

#: The captioners' modules that know of words and not of pictures, by their names.
PARTS = (
    *("word_embedding", "word_query", "word_key", "word_value", "query"),
    *("decoder", "gru_1", "gru_2", "lstm_1", "lstm_2"),
    *("project", "output"),
)


def language_side(family: Family, vocabulary: Vocabulary, weights: Path) -> dict[str, Tensor]:
    """Parameter name → value, of ``family.words`` in the folder ``weights``.

    Raises NotThere where that checkpoint is not there or knows other words.
    """
    path = weights / f"{family.words}.safetensors"
    if not path.exists():
        raise NotThere(f"it begins with the words of {path}, which is not there: give --from-nothing")
    shipped = load_checkpoint(path).captioner
    if shipped.vocabulary.words != vocabulary.words:
        raise NotThere(f"{path} knows other words than these captions have: give --from-nothing")
    common = common_shapes(family, vocabulary)
    return {
        name: value
        for name, value in shipped.state_dict().items()
        if name.partition(".")[0] in PARTS and common.get(name) == value.shape
    }


def common_shapes(family: Family, vocabulary: Vocabulary) -> Mapping[str, torch.Size]:
    """Parameter name → shape, of what has the same shape in all of the family's trained rows."""
    with torch.device("meta"):
        every = [
            {name: value.shape for name, value in row.make.captioner_of(vocabulary).state_dict().items()}
            for row in family.rows
            if isinstance(row.make, Trained)
        ]
    first, *others = every
    return {name: shape for name, shape in first.items() if all(o.get(name) == shape for o in others)}
