"""Says whose a run's folder is: run.json, which is written before the first step and read by every later one.

The same command goes on; one that would train something else is refused, with what differs. Where, when and
with which versions a run went on is recorded, and compared with nothing: a run may move to another machine.
"""

import hashlib
import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError

from extractors.errors import ReelwordError
from extractors.features import Features, StreamSpec
from extractors.files import atomic_write
from models.captioner import Captioner
from models.captioners.semantic_embedding import SemanticEmbedding
from training.batches.training_batch import CaptionedItem
from training.recipes.recipe import Recipe

#: Packages whose versions are recorded.
PACKAGES = ("torch", "numpy", "safetensors")
ROOT = Path(__file__).resolve().parents[2]
#: Differences that are named.
NAMED = 6


class RunDiffers(ReelwordError, ValueError, code="run_differs"):
    """The run's folder holds another run; the message says in what they differ."""

    hint = (
        "Give another folder (--out), or the options that its run.json has. --start with its "
        "best.safetensors goes on from its weights in a new run."
    )


class TrainedData(BaseModel, frozen=True):
    """Describes the captioned videos or pictures of a run."""

    name: str  #: of the set
    train: int  #: videos that are trained on
    held_out: int  #: videos that weights are chosen by
    sha256: str  #: of the ids and captions of both

    @classmethod
    def of(cls, name: str, train: Sequence[CaptionedItem], held_out: Sequence[CaptionedItem]) -> Self:
        """Describes items, in their order.

        Args:
            name: of the set.
            train: that are learned.
            held_out: by which weights are chosen.
        """
        listed = [[[item.id, item.captions] for item in items] for items in (train, held_out)]
        digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
        return cls(name=name, train=len(train), held_out=len(held_out), sha256=digest)


class RunDescription(BaseModel, frozen=True):
    """Describes what a run trains; two runs that differ in a member are two runs."""

    captioner: str
    recipe: Recipe  #: with all that was changed of it
    config: Mapping[str, Any]  #: the captioner's
    words: str  #: sha256 of its vocabulary
    data: TrainedData
    stream_set: str  #: its name
    streams: Mapping[str, Mapping[str, Any]]  #: the name tag of each
    #: Of the first video's features, where they are read from a folder; "" where they are made here.
    features_sha256: str = ""
    start_sha256: str = ""  #: of the checkpoint that it goes on from
    teachers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        network: Captioner | SemanticEmbedding,
        recipe: Recipe,
        data: TrainedData,
        stream_set: str,
        streams: Mapping[str, StreamSpec],
        **further: Any,
    ) -> Self:
        """Describes the training of a network.

        Args:
            network: What is trained.
            recipe: With all that was changed of it.
            data: What it is trained on.
            stream_set: The name of what feeds it.
            streams: Name tags, of which engine and precision may change on the way.
            further: Other members.
        """
        return cls(
            captioner=network.name,
            recipe=recipe,
            config=network.config.model_dump(mode="json"),
            words=hashlib.sha256("\n".join(network.vocabulary.words).encode()).hexdigest(),
            data=data,
            stream_set=stream_set,
            streams={name: asdict(replace(spec, engine="", precision="")) for name, spec in streams.items()},
            **further,
        )

    def describe_training(self) -> dict[str, Any]:
        """Returns what a card says of the training."""
        described = {"recipe": self.recipe.model_dump(), "streams": self.stream_set}
        return described | ({"start_sha256": self.start_sha256} if self.start_sha256 else {})


class RunSession(BaseModel, frozen=True):
    """Records one start of the command."""

    command: str
    started: datetime
    host: str
    device: str
    processes: int
    python: str
    packages: Mapping[str, str]
    commit: str | None  #: of the checkout that ran

    @classmethod
    def begin(cls, device: str, processes: int) -> Self:
        """Describes the process that runs."""
        return cls(
            command=shlex.join(sys.argv),
            started=datetime.now(UTC),
            host=platform.node(),
            device=device,
            processes=processes,
            python=platform.python_version(),
            packages={name: version(name) for name in PACKAGES},
            commit=_read_commit(),
        )


class RunRecord(BaseModel, frozen=True):
    """Holds what run.json says."""

    run: RunDescription
    sessions: tuple[RunSession, ...] = Field(min_length=1)


def claim_folder(folder: Path, run: RunDescription, session: RunSession) -> None:
    """Takes a folder for a run, or goes on with the run that it holds.

    Args:
        folder: The run's.
        run: What is to be trained.
        session: This start, which is recorded.

    Raises:
        RunDiffers: The folder holds another run, or one that nothing is recorded of.
    """
    file, sessions = folder / "run.json", [session]
    if file.exists():
        earlier = _read(file)
        if differences := list(_compare(_dump(earlier.run), _dump(run))):
            more = f" and {len(differences) - NAMED} more" if len(differences) > NAMED else ""
            raise RunDiffers(f"{folder} holds another run: {'; '.join(differences[:NAMED])}{more}.")
        sessions = [*earlier.sessions, session]
    elif (folder / "last.pt").exists():
        raise RunDiffers(f"{folder} holds a run without run.json, of which nothing is recorded.")
    with atomic_write(file) as unfinished:
        unfinished.write_text(RunRecord(run=run, sessions=tuple(sessions)).model_dump_json(indent=1))


def hash_features(features: Features) -> str:
    """Computes the sha256 of a video's features."""
    digest = hashlib.sha256()
    for name, stream in sorted(features.items()):
        digest.update(name.encode() + stream.values.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(file: Path) -> RunRecord:
    try:
        return RunRecord.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise RunDiffers(
            f"{file} cannot be read as the record of a run ({error.error_count()} faults)."
        ) from error


def _dump(run: RunDescription) -> dict[str, Any]:
    dumped: dict[str, Any] = json.loads(run.model_dump_json())
    return dumped


def _compare(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Yields the members that differ, each with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*before, *now)):
            yield from _compare(before.get(key), now.get(key), f"{name}.{key}".lstrip("."))
    elif before != now:
        yield f"{name} is {_shorten(before)} there, and {_shorten(now)} here"


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]} …"


def _read_commit() -> str | None:
    """Reads the commit of the checkout that runs, with "-dirty" where files differ; None where it is none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if not (ROOT / ".git").exists() or which("git") is None:
        return None
    described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return described.stdout.strip() or None
