"""Computes vectors of sentences by all-MiniLM-L6-v2, and the similarity of captions to references by them.

Two sentences that share no word may mean the same, which no count of n-grams sees. The similarity of a
caption is the mean cosine of its vector with those of its references. The network is read from a file of a
package, none of whose code is imported; it is a BERT of six layers (Wang et al., MiniLM, NeurIPS 2020;
Reimers and Gurevych, Sentence-BERT, EMNLP 2019), whose sentence vector is the mean of its last layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from extractors.pretrained.load import find_weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WEIGHTS = "all-minilm-l6-v2"  #: in weights/manifest.toml
WIDTH, HEADS, LAYERS, EPSILON = 384, 12, 6, 1e-12
MOST_TOKENS = 128
BATCH = 64


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """Turns sentences into unit vectors."""

    weights: dict[str, Tensor]  #: of the network, by BERT's names
    tokenizer: "Tokenizer"

    @classmethod
    def load(cls, data: Path | None = None) -> Self:
        """Loads the network and its tokenizer.

        data: the data folder, by default REELWORD_DATA.

        Raises WeightsError: the package is not installed, or its file is damaged.
        """
        from tokenizers import Tokenizer

        file = find_weights(WEIGHTS, data=data).file
        tokenizer = Tokenizer.from_file(str(file.with_name("tokenizer.json")))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MOST_TOKENS)
        return cls(load_file(file), tokenizer)

    @torch.inference_mode()
    def encode(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Computes unit vectors (n, 384) of n sentences."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(list(sentences))]
        order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        vectors = torch.zeros(len(ids), WIDTH)
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            vectors[places] = self._encode_ids([ids[place] for place in places])
        return vectors.numpy()

    def _encode_ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        longest = max(len(row) for row in rows)
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        mask = torch.tensor([[place < len(row) for place in range(longest)] for row in rows])
        hidden = self._embed(ids)
        for layer in range(LAYERS):
            hidden = self._apply_layer(f"encoder.layer.{layer}.", hidden, mask)
        kept = mask.unsqueeze(2)
        return F.normalize((hidden * kept).sum(1) / kept.sum(1), dim=1)

    def _embed(self, ids: Tensor) -> Tensor:
        words = self.weights["embeddings.word_embeddings.weight"][ids]
        places = self.weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        kind = self.weights["embeddings.token_type_embeddings.weight"][0]
        return self._normalise("embeddings.LayerNorm", words + places + kind)

    def _apply_layer(self, name: str, hidden: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        query, key, value = (
            self._linear(f"{name}attention.self.{part}", hidden)
            .view(batch, length, HEADS, -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        joined = attended.transpose(1, 2).reshape(batch, length, WIDTH)
        attention = self._linear(f"{name}attention.output.dense", joined)
        hidden = self._normalise(f"{name}attention.output.LayerNorm", hidden + attention)
        inner = F.gelu(self._linear(f"{name}intermediate.dense", hidden))
        return self._normalise(f"{name}output.LayerNorm", hidden + self._linear(f"{name}output.dense", inner))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _normalise(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(
            x, (WIDTH,), self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], EPSILON
        )


def compare_sentences(
    encoder: SentenceEncoder, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> NDArray[np.float64]:
    """Computes (n,) the mean cosine of each caption with its references.

    Args:
        encoder: makes the vectors.
        hypotheses: n captions.
        references: of each caption, one or more.
    """
    vectors = encoder.encode(hypotheses)
    reference_vectors = encoder.encode([text for texts in references for text in texts])
    owner = np.repeat(np.arange(len(hypotheses)), [len(texts) for texts in references])
    cosines = (vectors[owner] * reference_vectors).sum(1)
    totals = np.bincount(owner, cosines, len(hypotheses))
    return np.asarray(totals / np.bincount(owner, minlength=len(hypotheses)))
