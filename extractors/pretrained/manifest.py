"""Reads weights/manifest.toml: which file holds the weights of which network, and how it is checked."""

import tomllib
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    Field,
    HttpUrl,
    StringConstraints,
    ValidationError,
    model_validator,
)

from extractors.pretrained.errors import ManifestDamaged, UnknownWeights

MANIFEST = Path(__file__).resolve().parents[2] / "weights" / "manifest.toml"
Source: TypeAlias = Literal["package", "url", "file", "repository"]
#: All 64 digits, or the first few where the publisher gives no more.
Digest: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8,64}$")]
GitBlob: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]


class WeightsEntry(BaseModel, frozen=True, extra="forbid"):
    """Describes one file of weights."""

    name: str
    #: The extractor whose weights it is; several files may serve one, the first one here is taken.
    network: str
    #: "package" (a Python package and the file in it), "url", "file" (the user brings it), or "repository"
    #: (it lies beside the manifest).
    source: Source
    #: The file in the package or in the manifest's folder; elsewhere the name under which it is kept.
    path: str
    requirement: str | None = None
    module: str | None = None
    url: HttpUrl | None = None
    #: For a file that the user brings, where it is published, as the middle of a sentence.
    where: str | None = None
    sha256: Digest | None = None  #: None where none is published; then the first file seen is pinned
    git_blob: GitBlob | None = None  #: what git calls the file in the repository that publishes it
    #: As published, and so only about right where sha256 is not whole; None where it could not be learnt.
    bytes: int | None = Field(None, gt=0)
    licence: str  #: as stated upstream
    paper: str
    preprocessing: str
    reader: str | None = None  #: the function of ours that takes the checkpoint, as module:function
    variant: str | None = None  #: its first argument
    keys: str  #: whose names the parameters have

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def is_vouched_for(self) -> bool:
        """Whether the publisher, or the package, states the whole sha256."""
        return self.sha256 is not None and len(self.sha256) == 64

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        """Refuses an entry that does not say all that it takes to get the file."""
        needed = {"package": ("requirement", "module"), "url": ("url",), "file": ("where",)}
        missing = [name for name in needed.get(self.source, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.name} comes by {self.source} and lacks {', '.join(missing)}")
        return self


@cache
def read_manifest(file: Path) -> tuple[WeightsEntry, ...]:
    """Reads all entries, in the order of the file. Raises ManifestDamaged."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        return tuple(
            WeightsEntry.model_validate({"name": name, "network": name, **table})
            for name, table in tables.items()
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ManifestDamaged(f"{file} has a wrong entry: {where} {first['msg']}.") from error
    except (OSError, ValueError, TypeError) as error:
        raise ManifestDamaged(f"{file} cannot be read: {error}.") from error


def find_entry(name: str, file: Path) -> WeightsEntry:
    """Finds the file of that name. Raises UnknownWeights or ManifestDamaged."""
    for entry in read_manifest(file):
        if entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in read_manifest(file))
    raise UnknownWeights(f"There are no weights called {name}; there are: {names}.")


def find_candidates(name: str, file: Path) -> tuple[WeightsEntry, ...]:
    """Finds the file of that name, and all others of its network. Raises as ``find_entry``."""
    first = find_entry(name, file)
    return (first, *(other for other in read_manifest(file) if other.network == name and other != first))
