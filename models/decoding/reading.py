"""Reads given captions as if a search had written them, for sentences that a captioner recalls."""

from __future__ import annotations

import torch
from torch import Tensor

from models.captioner import AnyCaptioner
from models.decoding.partial_captions import PartialCaptions, SearchResult
from models.likelihood import teacher_force
from models.memory import Memory
from models.vocabulary import EOS


def read_captions(captioner: AnyCaptioner, memory: Memory, targets: Tensor) -> SearchResult:
    """Gives a captioner captions word by word, and keeps how likely each word is and where it looks.

    Args:
        captioner: Reads the words.
        memory: B videos, as that captioner encoded them.
        targets: (R, L) ids, ended by <eos> and padded by -1; the captions of a video side by side.

    Returns:
        R finished rows with the attention of L steps.
    """
    read = teacher_force(captioner, memory, targets)
    rows = torch.arange(len(targets), device=targets.device)
    captions = PartialCaptions(
        tokens=targets.masked_fill(~read.valid, EOS),
        logprobs=read.log_p,
        steps=rows.unsqueeze(1).expand_as(targets),
        total=read.log_p.sum(1),
        length=read.valid.sum(1).to(read.log_p.dtype),
        finished=torch.ones_like(rows, dtype=torch.bool),
    )
    return SearchResult(captions, read.attentions)
