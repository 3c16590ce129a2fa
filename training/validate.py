"""CIDEr-D on held-out pictures, quick enough to choose checkpoints by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from models.captioner import Captioner
from models.decoding import DecodingOptions, decode
from models.vocabulary import Vocabulary
from training.cider import CiderD
from training.dataset import Captioned
from training.pseudo_video import batch_of, whole

GROUP = 50


class Validation:
    """Beam search of 3 over whole pictures; document frequencies are the held-out set's own."""

    def __init__(self, items: Sequence[Captioned], vocabulary: Vocabulary, max_length: int) -> None:
        self.items, self.vocabulary = items, vocabulary
        self.options = DecodingOptions(beam_size=3, length_penalty=0.5, max_length=max_length)
        self.scorer = CiderD({item.id: item.captions for item in items})

    def cider(self, captioner: Captioner[Any, Any], precision: torch.dtype) -> float:
        """×100, as papers print it."""
        captioner.eval()
        captions = list(self._captions(captioner, precision))
        return 100 * float(self.scorer.score([item.id for item in self.items], captions).mean())

    def _captions(self, captioner: Any, precision: torch.dtype) -> Iterator[list[str]]:
        for start in range(0, len(self.items), GROUP):
            group = self.items[start : start + GROUP]
            samples = [whole(item.pictures) for item in group]
            enabled = precision != torch.float32
            with torch.inference_mode(), torch.autocast("cpu", precision, enabled=enabled):
                batches = batch_of(samples)
                memory = captioner.encode_batches([batches[s.name] for s in captioner.config.streams])
                for hypotheses in decode(captioner, memory, self.options):
                    yield self.vocabulary.decode(hypotheses[0].tokens)
