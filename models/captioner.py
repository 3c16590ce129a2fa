"""Declares what every captioner does: encode features, start a state, take a step, and what training and the
service ask beside that.

Nothing outside a captioner's own folder knows which captioner it has. What it carries from step to step is
declared in models/memory.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor, nn

from extractors.features import Features
from extractors.preprocessing.images import Edges, find_cell_edges
from models.caption import ChosenMoment, ExplanationPart
from models.inputs import Batch, InputStream, collate_inputs
from models.memory import Memory, State, StepAttention
from models.training_phase import CROSS_ENTROPY, PhaseSpec
from models.vocabulary import BOS, Vocabulary

Array: TypeAlias = NDArray[np.floating[Any]]
DIGITS = 5  #: of a weight that is shown: exact to the eye, and the document small


@dataclass(frozen=True, eq=False)
class Judgement:
    """Holds what a captioner thinks of R captions that it wrote."""

    merit: Tensor  #: (R,), by which the captions of a video are ranked
    #: (R,), how often captions alike are right, in [0, 1]; None where that is not known
    confidence: Tensor | None


@dataclass(frozen=True, eq=False)
class CaptionSteps:
    """Holds the steps of one caption, by which its captioner explains it."""

    steps: StepAttention  #: tensors (words, …) as they were batched
    memory: Memory  #: the batch's
    video: int  #: the video's place in the batch
    times: NDArray[np.float64]  #: (T, 2) seconds, the video's own moments
    regions: int  #: N, the video's own
    text: str = ""  #: the caption
    #: writes what the captioner would from another memory of this video; None where it did not write the
    #: caption alone
    write: Callable[[Memory], str] | None = None
    words: Sequence[str] = ()  #: the caption's, in order
    features: Features = field(default_factory=dict)  #: the video's streams by name

    def moment(
        self, row: int, weight: float, title: str | None = None, text: str | None = None
    ) -> ChosenMoment:
        """Names row ``row`` of the captioner's clock.

        Args:
            row: The moment.
            weight: By which it was chosen.
            title: What it was chosen as.
            text: What was written from it.
        """
        time = round(float(self.times[row, 0]), 4)
        return ChosenMoment(moment=row, time=time, weight=round(weight, DIGITS), title=title, text=text)


def as_numpy(value: Tensor) -> NDArray[np.float64]:
    """Copies a tensor to float64 on the CPU."""
    return value.detach().to("cpu", torch.float64).numpy()


def rounded(values: Any, digits: int = DIGITS) -> Any:
    """Turns an array into nested lists, or a number, with as many digits as are shown."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def without_nothing(weights: Array) -> list[list[float] | None]:
    """Turns (words, n) into rows; None for a word whose weights are all zero, which had no attention."""
    return [rounded(row) if np.any(row) else None for row in weights]


class Captioner(nn.Module, ABC):
    """Writes words from features.

    ``config`` (pydantic) and ``vocabulary`` decide every shape; a checkpoint carries both. It is given back
    only the memory and the states that it made itself, which no type can say: hence ``Any`` below, in whose
    place each captioner names its own.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[BaseModel]]
    config: BaseModel

    def __init__(self, config: BaseModel, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary

    @property
    @abstractmethod
    def inputs(self) -> Sequence[InputStream]:
        """Lists the streams that it reads, in the order of ``encode_batches``; each name once.

        Attention lies on the clock and in the places of the first.
        """

    @property
    def optional_streams(self) -> frozenset[str]:
        """Names those of ``inputs`` that any video may lack, such as its sound."""
        return frozenset()

    @property
    def needs_all_cells(self) -> bool:
        """Whether a map of cells has to be whole, as for a convolution; else any cells of it may be read."""
        return False

    @property
    def word_scorer(self) -> "Captioner":
        """The captioner that computes probabilities of its words: itself, or one inside that reads less."""
        return self

    def encode(self, features: Sequence[Features]) -> Any:
        """Encodes features of B videos, padded together by masks.

        Any may lack ``optional_streams``. Raises KeyError for a video that lacks another one.
        """
        device = next(self.parameters()).device
        return self.encode_batches(collate_inputs(features, self.inputs, device, self.optional_streams))

    @abstractmethod
    def encode_batches(self, batches: Sequence[Batch]) -> Memory:
        """Encodes B videos from one padded batch a stream, in the order of ``inputs``."""

    @abstractmethod
    def start(self, memory: Any, rows_per_video: int) -> State:
        """Makes the state before the first word, R = B · ``rows_per_video`` rows."""

    @abstractmethod
    def step(self, state: Any, word: Tensor, memory: Any) -> tuple[Tensor, Any, StepAttention | None]:
        """Predicts the next word of R rows.

        Args:
            state: Of ``start``, or of the step before.
            word: (R,) ids just written.
            memory: B videos, as this captioner encoded them.

        Returns:
            Log-probabilities (R, V), the state after ``word``, and the attention; None for a step that
            attended to nothing.
        """

    def embed_words(self, words: Tensor) -> Tensor:
        """Computes what ``advance`` takes of words, which no state changes: so of a whole caption at once.

        words: (…) ids. Returns (…, E); by default the ids, for a captioner that has nothing to share.
        """
        return words

    def advance(
        self, state: Any, embedded: Tensor, memory: Any
    ) -> tuple[Tensor, State, StepAttention | None]:
        """Takes ``step`` without scoring the vocabulary.

        Args:
            state, memory: as of ``step``.
            embedded: (R, E), the words just written, by ``embed_words``.

        Returns:
            What ``score_words`` takes (R, …), the state after the words, and the attention.
        """
        return self.step(state, embedded, memory)

    def score_words(self, output: Tensor) -> Tensor:
        """Computes log-probabilities (N, V) of what ``advance`` returned for N rows, of any steps."""
        return output

    def recall(self, memory: Any, longest: int) -> Tensor | None:  # noqa: ARG002
        """Recalls sentences that compete with what a search writes; None where a captioner remembers none.

        longest: words at most, the end among them. Returns (B·K, t) ids ended by <eos> and padded by -1,
        those of a video side by side.
        """
        return None

    def judge(
        self,
        memory: Any,  # noqa: ARG002
        tokens: Tensor,  # noqa: ARG002
        scores: Tensor,
        divisor: Callable[[Tensor], Tensor],  # noqa: ARG002
    ) -> Judgement:
        """Judges captions of videos.

        Args:
            memory: B videos, as this captioner encoded them.
            tokens: (R, t) ids of the captions, those of a video side by side.
            scores: (R,), their log-probabilities over the length penalty.
            divisor: From lengths (N,) in words to what log-probabilities were divided by.

        Returns:
            By default the scores themselves as their merit.
        """
        return Judgement(scores, None)

    @property
    def phases(self) -> Sequence[PhaseSpec]:
        """Lists the phases of its training in their order, cross-entropy first, or what takes its place."""
        return (CROSS_ENTROPY,)

    def with_config(self, changes: Mapping[str, object]) -> Self:
        """Copies the weights under a config with other values, in eval mode.

        Raises ValueError where the config has no member of that name.
        """
        if unknown := changes.keys() - type(self.config).model_fields.keys():
            raise ValueError(f"{self.name} has no {min(unknown)}")
        config = self.config_class.model_validate({**dict(self.config), **changes})
        other = type(self)(config, self.vocabulary)
        other.load_state_dict(self.state_dict())
        return other.eval()

    def explain(self, caption: CaptionSteps) -> Sequence[ExplanationPart]:  # noqa: ARG002
        """Explains a caption by what its paper has beside the two maps; by nothing by default."""
        return ()

    def map_edges(self, stream: str, side: int) -> Edges:
        """Says where the rows, and columns, of its spatial attention lie in what the network saw.

        stream: the map that it attends to, side: how many rows its attention has.
        """
        return find_cell_edges(stream, side)

    def first_word(self, memory: Any, rows_per_video: int) -> Tensor:
        """Makes the (R,) ids that the first step is given."""
        return torch.full((memory.size * rows_per_video,), BOS, dtype=torch.long, device=memory.times.device)
