"""Embeds pictures and sentences of any kind by the semantic embedding of the weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from app.settings import Settings
from extractors.engines.engine_choice import choose_device
from extractors.features import Footage
from models.captioners.semantic_embedding import SemanticEmbedding
from models.checkpoint import Card, find_embedding, load_embedding
from models.content_words import words_of
from models.feature_sources.feature_source import ExtractorPool, build_feature_source
from models.feature_sources.stream_checks import select_stream_set
from models.vocabulary import EOS

AT_ONCE = 16  #: pictures embedded together


@dataclass(eq=False)
class LoadedSemanticSpace:
    """Embeds by a loaded embedding; networks that look at pictures are loaded when the first one comes."""

    embedding: SemanticEmbedding  #: its networks
    card: Card  #: what its file says of them
    pool: ExtractorPool  #: of the extractors that look at pictures

    def __post_init__(self) -> None:
        self._stream_set = select_stream_set(self.card)

    def pictures(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Embeds pictures uint8 (H, W, 3) of any sizes: unit vectors (N, D)."""
        source = build_feature_source([self._stream_set], self.pool, frames=1)
        vectors = []
        for begin in range(0, len(pictures), AT_ONCE):
            some = pictures[begin : begin + AT_ONCE]
            stills = [Footage.of_picture(picture) for picture in some]
            with torch.inference_mode():
                vectors.append(self.embedding.encode(source.extract(stills)).cpu().numpy())
        return np.concatenate(vectors).astype(np.float32) if vectors else self._none()

    def sentences(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Embeds sentences: unit vectors (N, D). Words that it was not trained on count as unknown."""
        if not sentences:
            return self._none()
        rows = [[*self.embedding.vocabulary.encode(words_of(text)), EOS] for text in sentences]
        longest = max(map(len, rows))
        padded = [row + [-1] * (longest - len(row)) for row in rows]
        ids = torch.tensor(padded, device=next(self.embedding.parameters()).device)
        with torch.inference_mode():
            return np.asarray(self.embedding.encode_sentences(ids).cpu().numpy(), np.float32)

    def _none(self) -> NDArray[np.float32]:
        return np.zeros((0, self.embedding.config.joint), np.float32)


def load_semantic_space(settings: Settings) -> LoadedSemanticSpace | None:
    """Loads the embedding, None where the folder of weights has none. Raises CheckpointError."""
    path = find_embedding(settings.weights)
    if path is None:
        return None
    device = choose_device(settings.device)
    pool = ExtractorPool(device, threads=settings.rows_side_by_side, cache=settings.cache_folder)
    return LoadedSemanticSpace(*load_embedding(path, device), pool)
