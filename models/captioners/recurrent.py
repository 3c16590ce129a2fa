"""Takes the step that recurrent captioners have alike: a word is embedded, and behind the decoder scored."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

from models.captioner import Captioner, MemoryT_co, StateT_co
from models.memory import StepAttention


class RecurrentCaptioner(Captioner[MemoryT_co, StateT_co]):
    """Writes by a recurrent decoder; a subclass makes the layers below, and advances its decoder."""

    word_embedding: nn.Embedding
    dropout: nn.Dropout
    #: From the decoder's output to what is scored against the vocabulary.
    project: nn.Module
    output: nn.Linear

    def step(
        self,
        state: StateT_co,  # type: ignore[misc]
        word: Tensor,
        memory: MemoryT_co,  # type: ignore[misc]
    ) -> tuple[Tensor, StateT_co, StepAttention | None]:
        output, state, attention = self.advance(state, self.embed_words(word), memory)
        return self.score_words(output), state, attention

    @abstractmethod
    def advance(
        self,
        state: StateT_co,  # type: ignore[misc]
        embedded: Tensor,
        memory: MemoryT_co,  # type: ignore[misc]
    ) -> tuple[Tensor, StateT_co, StepAttention | None]: ...  # as of ``Captioner``

    def embed_words(self, words: Tensor) -> Tensor:
        """Embeds words (…) → (…, E), scaled to unit variance."""
        embedded: Tensor = self.dropout(self.word_embedding(words) * self.word_embedding.embedding_dim**0.5)
        return embedded

    def score_words(self, output: Tensor) -> Tensor:
        """Scores the vocabulary: (N, H) → log-probabilities (N, V)."""
        logits: Tensor = self.output(self.project(self.dropout(output)))
        return logits.float().log_softmax(1)
