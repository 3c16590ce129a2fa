"""Gives any captioner labels to know by, and sentences to remember, beside what it writes itself.

The captioner inside searches as it does alone. Then sentences that were written in advance are
recalled by what is expected of this one; the captioner reads them word by word, which tells how likely it
finds each word and where it looks; and all are ranked by ``ExpectedMeaning``. So a caption may name what no
picture that the captioner was trained on was captioned with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel
from torch import Tensor

from extractors.preprocessing.images import Edges
from models.caption import ExplanationPart
from models.captioner import Captioner, CaptionSteps, Judgement
from models.inputs import Batch, InputStream, average_frames
from models.labels.expected_meaning import LABELS, LABELS_INPUT, ExpectedMeaning, MeaningConfig, ReadLabels
from models.labels.explanation import explain_labels
from models.likelihood import teacher_force
from models.memory import Memory, State, StepAttention
from models.vocabulary import EOS, Vocabulary

WriterConfigT = TypeVar("WriterConfigT", bound=BaseModel)


class RememberedConfig(BaseModel, frozen=True):
    """Configures the sentences."""

    sentences: int = 0  #: how many
    words: int = 12  #: of each at most, its end among them
    classes: int = 0  #: pairs of a sentence and a class that it was written of
    recalled: int = 8  #: of each video
    places: int = 49  #: regions of the typical picture


class LabelledConfig(BaseModel, Generic[WriterConfigT], frozen=True):
    """Configures a captioner that knows labels."""

    writer: WriterConfigT
    meaning: MeaningConfig = MeaningConfig()
    remembered: RememberedConfig = RememberedConfig()

    @property
    def streams(self) -> tuple[InputStream, ...]:
        """Lists what the captioner inside reads, and the labels."""
        return (*self.writer.streams, LABELS_INPUT)  # type: ignore[attr-defined]  # every captioner's has them


@dataclass(frozen=True, eq=False)
class LabelledMemory(Memory):
    """Holds what is known of B videos."""

    writer: Memory  #: the captioner's own memory
    seen: Tensor  #: v̄ (B, C)
    labels: ReadLabels  #: as they were read
    expected: Tensor  #: μ (B, texts)

    @property
    def moments(self) -> Tensor:
        return self.writer.moments


class LabelledCaptioner(Captioner):
    """Writes with the captioner inside, and ranks what it wrote and what it recalled by labels."""

    writer_class: ClassVar[type[Captioner]]
    config: LabelledConfig[Any]
    remembered: Tensor
    written_of: Tensor
    lengths: Tensor
    priors: Tensor
    typical: Tensor

    def __init__(self, config: LabelledConfig[Any], vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.writer = self.writer_class(config.writer, vocabulary)
        first = self.writer.inputs[0]
        self.meaning = ExpectedMeaning(config.meaning, first.width, len(vocabulary))
        sizes = config.remembered
        ids = torch.full((sizes.sentences, sizes.words), EOS, dtype=torch.int16)
        self.register_buffer("remembered", ids)
        # places of a sentence and of a class that it was written of; earlier checkpoints have none
        pairs = torch.zeros(sizes.classes, 2, dtype=torch.int16)
        self.register_buffer("written_of", pairs, persistent=sizes.classes > 0)
        self.register_buffer("lengths", torch.ones(sizes.sentences))  # |Σ u_w| of each
        # log-probability of each of the typical picture; NaN where none was measured, then each judging does
        self.register_buffer("priors", torch.full((sizes.sentences,), torch.nan))
        self.register_buffer("typical", torch.zeros(sizes.places, first.width))  # a picture of no video

    @property
    def inputs(self) -> Sequence[InputStream]:
        """Lists the streams of the captioner inside, and the labels."""
        return (*self.writer.inputs, LABELS_INPUT)

    @property
    def optional_streams(self) -> frozenset[str]:
        """Names the labels too: without them the picture alone says what to expect."""
        return self.writer.optional_streams | {LABELS}

    @property
    def needs_all_cells(self) -> bool:
        return self.writer.needs_all_cells

    @property
    def word_scorer(self) -> Captioner:
        return self.writer.word_scorer

    def encode_batches(self, batches: Sequence[Batch]) -> LabelledMemory:
        """Encodes one batch a stream of ``inputs``."""
        *streams, labels = batches
        memory, seen, read = (
            self.writer.encode_batches(streams),
            average_frames(streams[0]),
            self.meaning.read(labels),
        )
        expected = self.meaning.expect(seen, read)
        return LabelledMemory(memory.times, writer=memory, seen=seen, labels=read, expected=expected)

    def start(self, memory: LabelledMemory, rows_per_video: int) -> State:
        return self.writer.start(memory.writer, rows_per_video)

    def first_word(self, memory: LabelledMemory, rows_per_video: int) -> Tensor:
        return self.writer.first_word(memory.writer, rows_per_video)

    def step(
        self, state: State, word: Tensor, memory: LabelledMemory
    ) -> tuple[Tensor, State, StepAttention | None]:
        return self.writer.step(state, word, memory.writer)

    def embed_words(self, words: Tensor) -> Tensor:
        return self.writer.embed_words(words)

    def advance(
        self, state: State, embedded: Tensor, memory: LabelledMemory
    ) -> tuple[Tensor, State, StepAttention | None]:
        return self.writer.advance(state, embedded, memory.writer)

    def score_words(self, output: Tensor) -> Tensor:
        return self.writer.score_words(output)

    def recall(self, memory: LabelledMemory, longest: int) -> Tensor | None:
        """Recalls the sentences that fit each video best.

        longest: words at most, the end among them. Returns (B·K, t) ids ended by <eos> and padded by -1,
        those of a video side by side; None where there are none so short.
        """
        tokens = self.remembered.long()
        short = ((tokens != EOS).sum(1) < longest).nonzero().flatten()
        if not len(short):
            return None
        count = self.config.remembered.recalled
        rows = [
            short[self.meaning.recall(each, tokens[short], self.lengths[short], count)]
            for each in memory.expected
        ]
        return _cut_padding(F.pad(tokens[torch.cat(rows)], (0, 1), value=EOS))

    def judge(
        self, memory: LabelledMemory, tokens: Tensor, scores: Tensor, divisor: Callable[[Tensor], Tensor]
    ) -> Judgement:
        targets = _cut_padding(tokens)
        priors = self._find_priors(tokens)
        new = priors.isnan()
        if new.any():
            priors[new] = self.measure_priors(targets[new])
        words = (targets >= 0).sum(1).clamp(min=1).float()
        return self.meaning.judge(memory.expected, tokens, scores, priors / divisor(words))

    def measure_priors(self, targets: Tensor) -> Tensor:
        """Computes log-probabilities (R,) of captions (R, t), padded by -1, of the typical picture."""
        return teacher_force(self.writer, self._typical_memory(), targets).log_p.sum(1).float()

    @torch.inference_mode()
    def measure_remembered(self) -> Tensor:
        """Computes log-probabilities (S,) of all that is remembered, of the typical picture."""
        targets = _cut_padding(F.pad(self.remembered.long(), (0, 1), value=EOS))
        return torch.cat([self.measure_priors(rows) for rows in torch.split(targets, 256)])

    def _find_priors(self, tokens: Tensor) -> Tensor:
        """Finds what was measured of captions (R, t) that are remembered; NaN of others."""
        row, place = self._match_remembered(tokens).nonzero().unbind(1)
        priors = self.priors.new_full((len(tokens),), torch.nan)
        priors[row] = self.priors[place]
        return priors

    def _match_remembered(self, tokens: Tensor) -> Tensor:
        """Compares captions (R, t), ended by <eos> or not at all, with S that are remembered: bool (R, S)."""
        width = self.remembered.shape[1]
        ids = F.pad(tokens, (0, max(0, width - tokens.shape[1])), value=EOS)
        is_same = (tokens[:, -1:] == EOS) & (ids[:, width:] == EOS).all(1, keepdim=True)
        for word, remembered in zip(ids[:, :width].T, self.remembered.T, strict=True):  # (R, S) at a time
            is_same = is_same & (word.unsqueeze(1) == remembered)
        return is_same

    def _typical_memory(self) -> Memory:
        """Encodes the typical picture as one moment; other streams than the first are empty."""
        values = [
            self.typical[None, None],
            *(self.typical.new_zeros(1, 1, 1, s.width) for s in self.writer.inputs[1:]),
        ]
        return self.writer.encode_batches([_make_moment(each.float()) for each in values])

    def explain(self, caption: CaptionSteps) -> list[ExplanationPart]:
        """Tells what the captioner inside shows, and which labels each word is of."""
        memory = caption.memory
        assert isinstance(memory, LabelledMemory)
        shown = self.writer.explain(replace(caption, memory=memory.writer))
        tokens = torch.tensor(self.vocabulary.encode(caption.words), device=memory.seen.device)
        video = torch.tensor([caption.video], device=memory.seen.device)
        labels = memory.labels.select(video)
        shares = self.meaning.share_words(memory.seen[caption.video], labels, tokens)
        return [*shown, *explain_labels(caption, shares, self.find_written(tokens, labels.rows[0]))]

    def find_written(self, tokens: Tensor, classes: Tensor) -> Tensor:
        """Finds which words of a caption that was recalled were written of which classes.

        tokens: (t,) ids of the caption. classes: (L,), places among CLASS_NAMES. Returns bool (t, L), whether
        a sentence that was written of the class has the word; nowhere in a caption that is not remembered.
        """
        is_recalled = self._match_remembered(F.pad(tokens, (0, 1), value=EOS).unsqueeze(0)).any()
        sentence, of = self.written_of.long().unbind(1)
        columns = [torch.isin(tokens, self.remembered[sentence[of == each]]) for each in classes]
        empty = torch.zeros(len(tokens), 0, dtype=torch.bool, device=tokens.device)
        return (torch.stack(columns, 1) if columns else empty) & is_recalled

    def map_edges(self, stream: str, side: int) -> Edges:
        """Says where rows and columns of the captioner's own map lie."""
        return self.writer.map_edges(stream, side)


def _cut_padding(tokens: Tensor) -> Tensor:
    """Pads captions (R, t), ended by <eos> or not at all, by -1 behind their ends, as far as the longest."""
    targets = tokens.masked_fill((tokens == EOS).cumsum(1) > 1, -1)
    return targets[:, : int((targets >= 0).any(0).sum())]


def _make_moment(values: Tensor) -> Batch:
    """Makes one video of one moment of values (1, 1, N, C)."""
    there = torch.ones(values.shape[:3], dtype=torch.bool, device=values.device)
    times = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64, device=values.device)
    return Batch(times=times, values=values, frame_mask=there[..., 0], region_mask=there)
