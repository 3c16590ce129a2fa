"""Compares a captioner's captions with those of transformers' own ``generate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from extractors.features import Frames
from models.caption import Caption
from models.decoding.options import DecodingOptions
from models.pretrained.captioner import PretrainedCaptioner

#: How long the captions of the tests may be.
LENGTH = 9
LOOKING = DecodingOptions(max_length=LENGTH, explanation="attention")
SEARCHES = {
    "greedy": LOOKING.changed(method="greedy", length_penalty=1.0),
    "beam": LOOKING.changed(beam_size=4, num_captions=3, length_penalty=0.7),
    "plain beam": LOOKING.changed(beam_size=3, num_captions=3, length_penalty=0.0, suppress_unk=False),
}


@dataclass(frozen=True)
class Generated:
    """texts: (R,) without special tokens. scores: (R,), log-probability over length^penalty. lengths: (R,)
    tokens that were written, the end token too."""

    texts: list[str]
    scores: list[float]
    lengths: list[int]


def arguments(options: DecodingOptions, unknown: int | None) -> dict[str, Any]:
    """Of ``generate``, written here by hand."""
    said: dict[str, Any] = {"max_new_tokens": options.max_length, "do_sample": False}
    if options.suppress_unk and unknown is not None:
        said["suppress_tokens"] = [unknown]
    if options.method == "beam":
        said |= {"num_beams": options.beam_size, "num_return_sequences": options.num_captions}
        said |= {"length_penalty": options.length_penalty, "early_stopping": "never"}
    return said


def generated(
    model: Any, tokenizer: Any, options: DecodingOptions, ends: int | Sequence[int], **inputs: Any
) -> Generated:
    """What transformers' own ``generate`` writes. ends: the tokens that end a caption."""
    ends = [ends] if isinstance(ends, int) else list(ends)
    output = model.generate(
        **inputs,
        **arguments(options, None if tokenizer.unk_token_id in ends else tokenizer.unk_token_id),
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    begun = inputs["input_ids"].shape[1] if "input_ids" in inputs else 1
    written = output.sequences[:, begun:]
    ended = torch.isin(written, torch.tensor(ends)).long().cumsum(1).cumsum(1)
    kept = ended <= 1
    lengths = kept.sum(1)
    if options.method == "beam":
        scores = output.sequences_scores
    else:
        logits = torch.stack(output.logits, 1).log_softmax(2)
        each = logits.gather(2, written[:, :, None])[:, :, 0]
        scores = (each * kept).sum(1) / lengths ** float(options.length_penalty)
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    return Generated([" ".join(text.split()) for text in texts], scores.tolist(), lengths.tolist())


def assert_same(
    captioner: PretrainedCaptioner[Any],
    videos: Sequence[Frames],
    options: DecodingOptions,
    expected: Callable[[DecodingOptions], Generated],
    tolerance: float = 1e-4,
) -> list[list[Caption]]:
    """Texts and scores are the same, best first, and captions of several lengths are among them."""
    found = captioner.caption(videos, options)
    theirs = expected(options)
    flat = [caption for of_video in found for caption in of_video]
    assert [caption.text for caption in flat] == theirs.texts
    assert [caption.score for caption in flat] == pytest.approx(theirs.scores, abs=tolerance)
    assert len(set(theirs.lengths)) > 1, "all of one length: nothing is padded"
    for caption in flat:
        assert caption.text == " ".join(word.word for word in caption.words)
        assert caption.attention is not None
        assert caption.attention.words == [word.word for word in caption.words]
    return found
