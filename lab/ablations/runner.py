"""Runs a job: trains or reads a row, scores it, and saves the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.ablations.corpus import AblationCorpus
from lab.ablations.readers import Reader, RerankedReader, SingleReader, average_readers
from lab.ablations.results import AblationPlan, AblationResults, RowResult
from lab.ablations.row import AblationJob, NotThere, ReadingSpec, TrainingSpec
from lab.ablations.row_training import TrainedRow, locate_checkpoint, train_row
from lab.ablations.scoring import score_row
from lab.ablations.word_weights import load_word_weights
from models.captioner import AnyCaptioner
from models.captioners.registry import UnknownStreamSet
from models.checkpoint import WEIGHTS, Checkpoint, load_checkpoint, load_embedding, read_card
from models.combining.reranking import LIKELIHOOD_WEIGHT
from models.feature_sources.stream_checks import StreamMismatch, select_stream_set
from training.batches.loading import find_device

EMBEDDING = "semantic_embedding.safetensors"
#: How several are fused → what the members' likelihoods weigh.
FUSED_WEIGHTS = {"fused": 0.0, "judged": LIKELIHOOD_WEIGHT}


@dataclass(frozen=True, eq=False)
class AblationRunner:
    """Runs jobs of a plan.

    corpus: from the names of stream sets, joined by "+"; asked often, so it should remember.
    """

    plan: AblationPlan
    results: AblationResults
    corpus: Callable[[str], AblationCorpus]
    weights: Path = WEIGHTS

    def run(self, job: AblationJob) -> RowResult:
        """Trains or reads a row, scores it, and saves the result.

        Raises NotThere, FileNotFoundError.
        """
        corpus, make = self.corpus(self._name_streams(job)), job.row.make
        trained: TrainedRow | None = None
        if isinstance(make, TrainingSpec):
            folder = self.results.run_folder(job.name)
            words = load_word_weights(job.family, corpus.vocabulary, self.weights) if self.plan.words else {}
            trained = train_row(job, corpus, self.plan, folder, words)
            captioners = {job.row.name: trained.captioner}
            reader: Reader = SingleReader(trained.captioner)
        else:
            captioners = {name: self._read(make, name, job.seed, corpus) for name in make.of}
            reader = self._make_reader(make, captioners)
        shown = corpus.show_eval_sets()
        result = RowResult(
            row=job.row.name,
            seed=job.seed,
            steps=trained.steps if trained else None,
            seconds=trained.seconds if trained else 0.0,
            parameters=sum(p.numel() for each in captioners.values() for p in each.parameters()),
            scores={
                name: score_row(reader, shown[name], corpus, job.row.measures_attention)
                for name in job.row.eval_sets
            },
        )
        self.results.save(job, result)
        return result

    def _name_streams(self, job: AblationJob) -> str:
        """Names the stream sets of the family, and of the shipped checkpoints that the row reads."""
        names = [job.family.streams]
        for path in self._find_shipped(job.row.make):
            try:
                names.append(select_stream_set(read_card(path)).name)
            except (StreamMismatch, UnknownStreamSet) as error:
                raise NotThere(f"{path} cannot be fed: {error}") from error
        return "+".join(dict.fromkeys(names))

    def _find_shipped(self, make: TrainingSpec | ReadingSpec) -> list[Path]:
        """Finds checkpoints in ``weights``. Raises NotThere."""
        names: list[str] = []
        if isinstance(make, ReadingSpec):
            names += [f"{name}.safetensors" for name in make.of if make.shipped]
            names += [EMBEDDING] if make.how in FUSED_WEIGHTS else []
        return [_require(self.weights / name) for name in names]

    def _read(self, make: ReadingSpec, name: str, seed: int, corpus: AblationCorpus) -> AnyCaptioner:
        if make.shipped:
            path = self.weights / f"{name}.safetensors"
        else:
            path = locate_checkpoint(self.results.run_folder(f"{name}-{seed}"))
        checkpoint = load_checkpoint(_require(path), corpus.device)
        _check_streams(checkpoint, corpus)
        read: AnyCaptioner = checkpoint.captioner.with_config(make.config).to(corpus.device)
        return read

    def _make_reader(self, make: ReadingSpec, captioners: Mapping[str, AnyCaptioner]) -> Reader:
        if make.how in FUSED_WEIGHTS:
            device = find_device(next(iter(captioners.values())))
            embedding, _ = load_embedding(self.weights / EMBEDDING, device)
            return RerankedReader(captioners, embedding, FUSED_WEIGHTS[make.how])
        if make.how == "averaged":
            return average_readers(list(captioners.values()))
        [captioner] = captioners.values()
        return SingleReader(captioner, step_1=make.how == "step_1")


def _require(path: Path) -> Path:
    if not path.exists():
        raise NotThere(f"it reads {path}, which is not there")
    return path


def _check_streams(checkpoint: Checkpoint, corpus: AblationCorpus) -> None:
    """Checks that a captioner was trained on the corpus's streams. Raises NotThere."""
    for name, spec in checkpoint.card.streams.items():
        if name not in corpus.specs or corpus.specs[name].identity != spec.identity:
            raise NotThere(f"its {checkpoint.card.captioner} reads {name!r}, which {corpus.streams!r} lacks")
