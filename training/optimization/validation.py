"""Computes scores and loss on held-out items, quick enough to choose checkpoints by."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from models.caption import join_words
from models.captioner import Captioner
from models.decoding.decode import DecodingOptions, decode
from models.inputs import Batch, order_inputs
from models.likelihood import teacher_force
from models.memory import Memory
from models.vocabulary import pad_captions
from training.batches.loading import find_device, move_to
from training.batches.training_batch import ItemT_co
from training.batches.video_batches import CaptionedVideo, VideoInputs
from training.optimization.processes import ALONE, Processes
from training.precision import autocast
from training.scores.bootstrap import Floats
from training.scores.cider import CiderD
from training.scores.java import find_java
from training.scores.meteor import Meteor, compute_meteor
from training.scores.metrics import compute_bleu, compute_rouge_l, count_bleu


def keep_memory(memory: Memory) -> Memory:
    """Returns the memory as it is."""
    return memory


@dataclass(frozen=True)
class HeldOutScores:
    """Holds what held-out items say of a network."""

    #: Name → value: metrics × 100, and nats a word as "validation_loss".
    scores: Mapping[str, float]
    captions: tuple[str, ...] = ()  #: that were written, one an item
    ciders: Floats | None = None  #: (items,) CIDEr-D × 100


class Validation(ABC, Generic[ItemT_co]):
    """Scores captioners on held-out items; document frequencies are these items' own.

    options: of the search that checkpoints are chosen by, the recipe's ``decoding``.
    """

    #: Items that are captioned together.
    group: int

    def __init__(self, items: Sequence[ItemT_co], options: DecodingOptions) -> None:
        self.items = items
        self.options = options
        self.scorer = CiderD({item.id: item.captions for item in items})

    @abstractmethod
    def load_group(self, start: int) -> Mapping[str, Batch]:
        """Returns a batch for each stream of the group of items that begins at ``start``."""

    def judge(
        self,
        captioner: Captioner,
        precision: torch.dtype,
        choose_memory: Callable[[Memory], Memory] = keep_memory,
        *,
        meteor: bool = False,
        processes: Processes = ALONE,
    ) -> HeldOutScores:
        """Captions all items, and reads their first captions.

        Args:
            captioner: is put into evaluation mode.
            precision: what it computes in.
            choose_memory: the memory that is written from, where a captioner has several.
            meteor: whether METEOR is computed too.
            processes: that share the items, and all learn what comes of it.

        Raises:
            JavaError: METEOR does not run.
        """
        captioner.eval()
        groups = self._write_groups(captioner, precision, choose_memory, processes)
        by_group = {start: (texts, loss.double().cpu()) for start, texts, loss in groups}
        joined = {start: group for part in processes.gather(by_group) for start, group in part.items()}
        captions = [words for start in sorted(joined) for words in joined[start][0]]
        loss = torch.cat([joined[start][1] for start in sorted(joined)]).mean()
        scores = {"validation_loss": float(loss), **self._score_texts(captions, meteor)}
        ciders = 100 * self.scorer.score([item.id for item in self.items], captions)
        if self.scorer.is_computable:
            scores["cider"] = float(ciders.mean())
        return HeldOutScores(scores, tuple(map(join_words, captions)), ciders)

    def _write_groups(
        self,
        captioner: Captioner,
        precision: torch.dtype,
        choose_memory: Callable[[Memory], Memory],
        processes: Processes,
    ) -> Iterator[tuple[int, list[list[str]], Tensor]]:
        """Yields where each group of this process begins, its captions, and nats of its true words."""
        for start, items, memory in self._encode_groups(captioner, precision, processes):
            chosen = choose_memory(memory)
            with torch.inference_mode(), autocast(precision, find_device(captioner)):
                written = decode(captioner, chosen, self.options)
                texts = [captioner.vocabulary.decode(best.tokens) for best, *_ in written]
                first = [captioner.vocabulary.encode(item.captions[0]) for item in items]
                forced = teacher_force(captioner, chosen, pad_captions(first).to(find_device(captioner)))
            yield start, texts, -forced.log_p[forced.valid]

    def _score_texts(self, captions: Sequence[Sequence[str]], meteor: bool) -> dict[str, float]:
        """Computes BLEU-4 and ROUGE-L × 100 of the items' captions, and METEOR where it is asked for."""
        texts = [" ".join(words) for words in captions]
        references = [[" ".join(words) for words in item.captions] for item in self.items]
        scores = {
            "bleu4": float(compute_bleu(4, count_bleu(texts, references).sum(0))),
            "rouge_l": 100 * float(compute_rouge_l(texts, references).mean()),
        }
        if meteor:
            with Meteor(find_java()) as running:
                scores["meteor"] = 100 * float(
                    compute_meteor(running.count_matches(texts, references).sum(0))
                )
        return scores

    def _encode_groups(
        self, captioner: Captioner, precision: torch.dtype, processes: Processes
    ) -> Iterator[tuple[int, Sequence[ItemT_co], Memory]]:
        """Yields where each group of this process begins, its items, and their memory."""
        device, every = find_device(captioner), self.group * processes.count
        for start in range(self.group * processes.rank, len(self.items), every):
            batches = move_to(self.load_group(start), device)
            with torch.inference_mode(), autocast(precision, device):
                memory = captioner.encode_batches(order_inputs(captioner.inputs, batches))
            yield start, self.items[start : start + self.group], memory


class VideoValidation(Validation[CaptionedVideo]):
    """On whole videos."""

    group = 16

    def __init__(
        self, items: Sequence[CaptionedVideo], options: DecodingOptions, inputs: VideoInputs
    ) -> None:
        super().__init__(items, options)
        self.inputs = inputs

    def load_group(self, start: int) -> Mapping[str, Batch]:
        """Reads the group's features. Raises FeaturesDamaged."""
        return self.inputs.load(self.items[start : start + self.group])
