"""Explains a caption of G2L: the key frames of each word."""

import torch

from models.caption import ExplanationPart, MomentsExplanation
from models.captioner import CaptionSteps


def explain_key_frames(caption: CaptionSteps) -> list[ExplanationPart]:
    """Shows for each word the frames that the sampler took, with the attention it took them by."""
    selected = caption.steps.extras["selected"][:, : len(caption.times)]
    weights = caption.steps.temporal.tolist()
    by_word = [
        [caption.moment(k, weights[word][k]) for k in torch.nonzero(row > 0.5).flatten().tolist()]
        for word, row in enumerate(selected)
    ]
    return [
        MomentsExplanation(
            name="selected",
            title="Frames read closely",
            note="The key frames of a word are read whatever their weights.",
            words=by_word,
        )
    ]
