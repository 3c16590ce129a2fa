"""Takes the step that recurrent captioners have alike: a word is embedded, and after the decoder scored."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from models.captioner import Captioner
from models.inputs import InputStream
from models.memory import State, StepAttention


class RecurrentCaptioner(Captioner):
    """Writes by a recurrent decoder; a subclass makes the layers below, and advances its decoder."""

    config: Any  #: has ``streams``, and where ``add_output`` is called ``tie_words`` and ``dropout``
    word_embedding: nn.Embedding
    dropout: nn.Dropout
    #: From the decoder's output to what is scored against the vocabulary.
    project: nn.Module
    output: nn.Linear

    @property
    def inputs(self) -> Sequence[InputStream]:
        return self.config.streams  # type: ignore[no-any-return]

    def add_output(self, hidden: int, *, project: bool = True) -> None:
        """Adds the layers after a decoder of ``hidden`` numbers, for the words of ``word_embedding``.

        Where ``tie_words``, the output is projected to the words' width, or has it without ``project``, and
        is scored against their embedding.
        """
        size, width = self.word_embedding.weight.shape
        tied = self.config.tie_words
        self.project = nn.Linear(hidden, width) if tied and project else nn.Identity()
        self.output = nn.Linear(width if tied else hidden, size)
        self.dropout = nn.Dropout(self.config.dropout)
        nn.init.normal_(self.word_embedding.weight, std=width**-0.5)
        if tied:
            self.output.weight = self.word_embedding.weight

    def step(self, state: Any, word: Tensor, memory: Any) -> tuple[Tensor, Any, StepAttention | None]:
        output, state, attention = self.advance(state, self.embed_words(word), memory)
        return self.score_words(output), state, attention

    @abstractmethod
    def advance(
        self, state: Any, embedded: Tensor, memory: Any
    ) -> tuple[Tensor, State, StepAttention | None]: ...  # as of ``Captioner``

    def embed_words(self, words: Tensor) -> Tensor:
        """Embeds words (…) → (…, E), scaled to unit variance."""
        embedded: Tensor = self.dropout(self.word_embedding(words) * self.word_embedding.embedding_dim**0.5)
        return embedded

    def score_words(self, output: Tensor) -> Tensor:
        """Scores the vocabulary: (N, H) → log-probabilities (N, V)."""
        logits: Tensor = self.output(self.project(self.dropout(output)))
        return logits.float().log_softmax(1)
