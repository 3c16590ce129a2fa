"""The bench: a job in, its result in the folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from models.captioner import AnyCaptioner
from models.checkpoint import WEIGHTS, Checkpoint, load_checkpoint, load_embedding, read_card
from models.combining.reranking import LIKELIHOOD_WEIGHT
from models.feature_sources.stream_checks import StreamMismatch, select_stream_set
from models.feature_sources.stream_sets import UnknownStreamSet
from training.ablations.data import Corpus
from training.ablations.readers import Reader, RerankedReader, SingleReader, joined
from training.ablations.results import AblationPlan, AblationResults, RowResult
from training.ablations.row import AblationJob, NotThere, Read, Trained
from training.ablations.row_training import Learned, checkpoint_in, learned
from training.ablations.scoring import score
from training.ablations.word_weights import language_side

EMBEDDING = "semantic_embedding.safetensors"
#: How several are fused → what the members' likelihoods weigh.
FUSED_WEIGHTS = {"fused": 0.0, "judged": LIKELIHOOD_WEIGHT}


@dataclass(frozen=True, eq=False)
class AblationRunner:
    """corpus: from the names of stream sets, joined by "+"; asked often, so it should remember. minutes: a
    trained row's most."""

    plan: AblationPlan
    results: AblationResults
    corpus: Callable[[str], Corpus]
    minutes: float
    weights: Path = WEIGHTS

    def run(self, job: AblationJob) -> RowResult:
        """Trains or reads, scores, and saves. Raises NotThere, TooLittleTime, FileNotFoundError."""
        corpus, make = self.corpus(self._streams(job)), job.row.make
        done: Learned | None = None
        if isinstance(make, Trained):
            folder = self.results.run_folder(job.name)
            words = language_side(job.family, corpus.vocabulary, self.weights) if self.plan.words else {}
            done = learned(job, corpus, self.plan, folder, self.minutes, words)
            captioners = {job.row.name: done.captioner}
            reader: Reader = SingleReader(done.captioner)
        else:
            captioners = {name: self._read(make, name, job.seed, corpus) for name in make.of}
            reader = self._reader(make, captioners)
        sheets = corpus.sheets()
        result = RowResult(
            row=job.row.name,
            seed=job.seed,
            steps=done.steps if done else None,
            planned=done.planned if done else None,
            seconds=done.seconds if done else 0.0,
            parameters=sum(p.numel() for each in captioners.values() for p in each.parameters()),
            sheets={name: score(reader, sheets[name], corpus, job.row.looks) for name in job.row.sheets},
        )
        self.results.save(job, result)
        return result

    def _streams(self, job: AblationJob) -> str:
        """The stream sets of the family, and of the shipped checkpoints that the row reads."""
        names = [job.family.streams]
        for path in self._shipped(job.row.make):
            try:
                names.append(select_stream_set(read_card(path)).name)
            except (StreamMismatch, UnknownStreamSet) as error:
                raise NotThere(f"{path} cannot be fed: {error}") from error
        return "+".join(dict.fromkeys(names))

    def _shipped(self, make: Trained | Read) -> list[Path]:
        """Checkpoints of ``weights``. Raises NotThere."""
        names: list[str] = []
        if isinstance(make, Read):
            names += [f"{name}.safetensors" for name in make.of if make.shipped]
            names += [EMBEDDING] if make.how in FUSED_WEIGHTS else []
        return [_there(self.weights / name) for name in names]

    def _read(self, make: Read, name: str, seed: int, corpus: Corpus) -> AnyCaptioner:
        if make.shipped:
            path = self.weights / f"{name}.safetensors"
        else:
            path = checkpoint_in(self.results.run_folder(f"{name}-{seed}"))
        checkpoint = load_checkpoint(_there(path))
        _check_streams(checkpoint, corpus)
        read: AnyCaptioner = checkpoint.captioner.with_config(make.config)
        return read

    def _reader(self, make: Read, captioners: Mapping[str, AnyCaptioner]) -> Reader:
        if make.how in FUSED_WEIGHTS:
            embedding, _ = load_embedding(self.weights / EMBEDDING)
            return RerankedReader(captioners, embedding, FUSED_WEIGHTS[make.how])
        if make.how == "averaged":
            return joined(list(captioners.values()))
        [captioner] = captioners.values()
        return SingleReader(captioner, step_1=make.how == "step_1")


def _there(path: Path) -> Path:
    if not path.exists():
        raise NotThere(f"it reads {path}, which is not there")
    return path


def _check_streams(checkpoint: Checkpoint, corpus: Corpus) -> None:
    """Raises NotThere where it was trained on other streams than the corpus has."""
    for name, spec in checkpoint.card.streams.items():
        if name not in corpus.specs or corpus.specs[name].identity != spec.identity:
            raise NotThere(f"its {checkpoint.card.captioner} eats {name!r}, which {corpus.streams!r} lacks")
