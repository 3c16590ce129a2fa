"""Loads the words that all rows of a family begin with, as its shipped captioner has learned them.

From nothing, the minutes of a row go into learning to write, and what a row is about, how to look, hardly
begins. So the embedding of the words, the decoder and the output come from the shipped checkpoint, as far
as every row has them: no row begins with more than another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from lab.ablations.row import NotThere, RowFamily, TrainingSpec
from models.captioner import AnyCaptioner
from models.checkpoint import load_checkpoint
from models.vocabulary import Vocabulary

#: The captioners' modules that know of words and not of pictures, by their names.
PARTS = (
    *("word_embedding", "word_query", "word_key", "word_value", "query"),
    *("decoder", "gru_1", "gru_2", "lstm_1", "lstm_2"),
    *("project", "output"),
)


def load_word_weights(family: RowFamily, vocabulary: Vocabulary, weights: Path) -> dict[str, Tensor]:
    """Loads the shipped captioner's parameters that know of words, as far as all rows of a family have them.

    Args:
        family: whose ``words`` name the captioner.
        vocabulary: of the rows.
        weights: the folder of shipped checkpoints.

    Returns:
        Parameter name → its last columns, which may be all.

    Raises:
        NotThere: the checkpoint is not there or knows other words.
    """
    path = weights / f"{family.words}.safetensors"
    if not path.exists():
        raise NotThere(f"it begins with the words of {path}, which is not there: give --from-nothing")
    shipped = load_checkpoint(path).captioner
    if shipped.vocabulary.words != vocabulary.words:
        raise NotThere(f"{path} knows other words than these captions have: give --from-nothing")
    columns = count_common_columns(family, vocabulary)
    return {
        name: value[..., -columns[name] :]
        for name, value in shipped.state_dict().items()
        if name.partition(".")[0] in PARTS and name in columns
    }


def copy_words(captioner: AnyCaptioner, words: Mapping[str, Tensor]) -> None:
    """Puts the words' parameters, or their last columns, in the place of the captioner's own."""
    parameters = captioner.state_dict()
    for name, value in words.items():
        parameters[name][..., -value.shape[-1] :] = value


def count_common_columns(family: RowFamily, vocabulary: Vocabulary) -> Mapping[str, int]:
    """Counts for each parameter how many of its last columns all of the family's trained rows share.

    What has one shape in all of them is shared whole; of a decoder that reads more in one row than in
    another, the columns that read the last word, which stand last.
    """
    with torch.device("meta"):
        every = [
            {name: value.shape for name, value in row.make.build(vocabulary).state_dict().items()}
            for row in family.rows
            if isinstance(row.make, TrainingSpec)
        ]
    shared = set.intersection(*(set(each) for each in every))
    columns = {}
    for name in sorted(shared):
        shapes = {each[name] for each in every}
        if len(shapes) == 1:
            columns[name] = every[0][name][-1]
        elif name.endswith("weight_ih") and len({shape[0] for shape in shapes}) == 1:
            columns[name] = every[0]["word_embedding.weight"][1]
    return columns
