"""Scores a row's captions of the judged pictures, and measures where its attention lies.

Which shot of a pseudo-video is the captioned one cannot be seen before a word is written, and a reader may
write of another. So its attention is read while it is given a true caption's words, which it should follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from lab.ablations.corpus import AblationCorpus, JudgedPictures
from lab.ablations.readers import Reader, SingleReader, Words
from lab.ablations.results import EvalSetScores
from models.memory import StepAttention
from training.batches.loading import move_to
from training.batches.pseudo_video import stack_samples
from training.precision import autocast

DIGITS = 4


def score_row(
    reader: Reader, pictures: JudgedPictures, corpus: AblationCorpus, measures_attention: bool
) -> EvalSetScores:
    """Scores a reader on pictures.

    Args:
        reader: writes the captions.
        pictures: as they are shown to it.
        corpus: has the scorer.
        measures_attention: whether the reader's temporal attention is worth reading.
    """
    captions: list[Words] = []
    attention_shares: defaultdict[str, list[float]] = defaultdict(list)
    for items, samples in pictures.draw_groups():
        batches = move_to(stack_samples(samples, corpus.precision), corpus.device)
        with torch.inference_mode(), autocast(corpus.precision, corpus.device):
            captions += reader.write_captions(batches)
            attentions: Sequence[StepAttention] = ()
            if measures_attention and pictures.steps > 1 and isinstance(reader, SingleReader):
                attentions = reader.read_attention(batches, [item.captions[0] for item in items])
        for attention, shown in zip(attentions, samples, strict=False):
            for name, share in measure_attention(attention, shown.true).items():
                attention_shares[name].append(round(share, DIGITS))
    scores = 100 * corpus.scorer.score([item.id for item in pictures.items], captions)
    return EvalSetScores(
        captions=tuple(" ".join(words) for words in captions),
        cider=tuple(np.round(scores, DIGITS).tolist()),
        attention_shares={name: tuple(shares) for name, shares in attention_shares.items()},
    )


def measure_attention(attention: StepAttention, true: NDArray[np.bool_]) -> Mapping[str, float]:
    """Measures shares of one caption, where the sample's steps ``true`` (T,) are of the captioned picture.

    chance: of the steps that are true. attention: of the words' attention that lies on them. word_frame: of
    the words whose most attended step is one of them. selected: G2L, of the key frames. key_frame, middle:
    refocus, 1 where the predicted key frame or the default one is true. No words look by chance.
    """
    steps, chance = torch.from_numpy(true).to(attention.temporal.device), float(true.mean())
    shares = dict.fromkeys(("chance", "attention", "word_frame"), chance)
    temporal = attention.temporal.float()
    if len(temporal):
        shares["attention"] = float((temporal * steps).sum(1).mean())
        shares["word_frame"] = float(steps[temporal.argmax(1)].float().mean())
    extras = attention.extras
    if "selected" in extras:
        selected = extras["selected"].float()
        total = selected.sum()
        shares["selected"] = float((selected * steps).sum() / total) if total > 0 else chance
    for name, key in (("key_frame", "key_frame"), ("middle", "default_key_frame")):
        if key in extras:
            shares[name] = float(true[int(extras[key][0])]) if len(extras[key]) else chance
    return shares
