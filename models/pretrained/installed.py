"""Keeps pretrained captioners in folders under the data folder, each with a card that says what it is.

    DATA/captioners/NAME/        the model in the Hugging Face format
    DATA/captioners/NAME/reelword.json   its card: source, revision, licence, digests, size, scores
    DATA/captioners/.NAME.part/  one that is being brought; what broke off continues there

A folder gets its name when everything in it has been checked.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel, ValidationError

from extractors.files import atomic_write, digest_of, sha256_of
from models.pretrained import errors
from models.pretrained.adapters.card import CHECKPOINT, CONFIG, AdapterBase, AdapterCard

#: Families whose captioners can be asked something, or go on from words that they are given.
PROMPTED = frozenset({"blip", "video_language"})

CARD = "reelword.json"
HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class InstalledFile(BaseModel, frozen=True):
    """A file of an installed captioner as it was when it was added."""

    bytes: int
    sha256: str


class ModelFacts(BaseModel, frozen=True):
    """A pretrained model's facts, read from its configuration and the heads of its weights alone."""

    family: str  #: the adapter that runs it
    architecture: str
    parameters: int
    memory: int  #: bytes that it takes when it is loaded and writes
    licence: str = ""  #: as its README's head says, empty where it does not


class MeasuredSpeed(BaseModel, frozen=True):
    """Seconds from a decoded clip to its caption, the mean over clips; machine: where they were measured."""

    feature_seconds: float
    caption_seconds: float
    machine: str


class PretrainedCard(BaseModel, frozen=True):
    """Describes an installed captioner. revision: of the hub's repository; None from a folder."""

    name: str
    source: str
    revision: str | None
    added_at: str
    facts: ModelFacts
    files: Mapping[str, InstalledFile]
    #: by data set, as checkpoints' cards have them; with speed they decide who writes by default
    scores: Mapping[str, Any] = {}
    speed: MeasuredSpeed | None = None
    base: AdapterBase | None = None  #: of an adapter, which is merged into it when it is loaded
    training: Mapping[str, Any] = {}  #: of an adapter, as its run wrote it

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(file.bytes for file in self.files.values())

    @property
    def weights_sha256(self) -> str:
        """The digest of its weights; of several files, or an adapter and its base, one over their digests."""
        weights = sorted(file.sha256 for name, file in self.files.items() if name.endswith(".safetensors"))
        weights += [self.base.weights_sha256] if self.base else []
        return weights[0] if len(weights) == 1 else digest_of(weights)


ReadFacts = Callable[[Path], ModelFacts]
"""Reads a folder's facts; raises a ReelwordError where no adapter can run it."""


@dataclass(frozen=True)
class InstalledCaptioners:
    """The installed captioners of one data folder."""

    folder: Path  #: ``DATA/captioners``
    reserved: frozenset[str] = frozenset()  #: names that are taken by other captioners
    checkpoints: Path = Path("weights")  #: where those of Reelword's own lie

    def add(
        self,
        source: str,
        read_facts: ReadFacts,
        *,
        name: str | None = None,
        offline: bool = False,
        endpoint: str | None = None,
    ) -> PretrainedCard:
        """Brings a captioner here, and gives it its name once it is whole and an adapter can run it.

        Args:
            source: a folder in the Hugging Face format or with a checkpoint, or ``owner/name[@revision]``
                of a hub.
            read_facts: reads what it is, and refuses what no adapter can run.
            name: what it is called here; the last part of ``source`` in lower case by default.
            offline: whether downloads are forbidden.
            endpoint: the hub's address, where it is not the public one's.

        Returns:
            Its card, which lies in its folder too; a checkpoint has its own, and goes to ``checkpoints``.

        Raises:
            PretrainedError: it cannot be brought. What ``read_facts`` raises: it cannot be run.
        """
        if not Path(source).is_dir() and hub_id(source) is None:
            raise errors.NoSuchCaptioner(f"{source} is neither a folder nor a model's id.")
        chosen = self._free_name(name or default_name(source))
        part = self.folder / f".{chosen}.part"
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f".{chosen}.lock"), _partial_folder(part):
            revision = _bring(source, part, offline=offline, endpoint=endpoint)
            adapter = read_adapter_card(part)
            card = PretrainedCard(
                **({} if adapter is None else dict(adapter)),
                name=chosen,
                source=source,
                revision=revision,
                added_at=datetime.now(UTC).isoformat(timespec="seconds"),
                facts=read_facts(part),
                files={file.name: _installed(file) for file in _own_files(part)},
            )
            if (part / CHECKPOINT).is_file():
                self._take_checkpoint(part, chosen)
            else:
                write_card(part, card)
                part.rename(self.folder / chosen)
        return card

    def list(self) -> list[PretrainedCard]:
        """Lists the cards of all captioners here, by name. Raises FilesDiffer where a card is unreadable."""
        if not self.folder.is_dir():
            return []
        folders = sorted(
            path for path in self.folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()
        )
        return [self.card(path.name) for path in folders]

    def card(self, name: str) -> PretrainedCard:
        """Raises NotInstalled, FilesDiffer."""
        file = self.path(name) / CARD
        try:
            return PretrainedCard.model_validate_json(file.read_bytes()).model_copy(update={"name": name})
        except (OSError, ValidationError) as error:
            raise errors.FilesDiffer(f"The card of {name} cannot be read.") from error

    def path(self, name: str) -> Path:
        """Returns the folder of an installed captioner. Raises NotInstalled."""
        if not NAME.fullmatch(name) or not (self.folder / name).is_dir():
            raise errors.NotInstalled(f"No captioner called {name} is installed.")
        return self.folder / name

    def find_base(self, adapter: AdapterCard) -> Path:
        """Returns the folder of an adapter's base. Raises BaseMissing, BaseDiffers."""
        base = adapter.base
        try:
            here = self.card(base.name).weights_sha256
        except errors.NotInstalled as error:
            raise errors.BaseMissing(f"{base.name} ({base.origin}), which it adapts, is not here.") from error
        if here != base.weights_sha256:
            digests = f"{base.weights_sha256[:12]}…, and {here[:12]}… here"
            raise errors.BaseDiffers(
                f"{base.name} ({base.origin}), which it adapts, had the weights {digests}."
            )
        return self.path(base.name)

    def remove(self, name: str) -> None:
        """Deletes a captioner, or what is left of one that did not come whole. Raises NotInstalled."""
        part = self.folder / f".{name}.part"
        if NAME.fullmatch(name) and part.is_dir() and not (self.folder / name).is_dir():
            shutil.rmtree(part)
            return
        gone = self.path(name).rename(part)  # at once: no reader loads half of it
        shutil.rmtree(gone)

    def verify(self, name: str) -> PretrainedCard:
        """Checks every byte against the card. Raises NotInstalled, FilesDiffer."""
        folder, card = self.path(name), self.card(name)
        for file, recorded in card.files.items():
            path = folder / file
            if not path.is_file():
                raise errors.FilesDiffer(f"{name} lacks its {file}.")
            if path.stat().st_size != recorded.bytes or sha256_of(path) != recorded.sha256:
                raise errors.FilesDiffer(f"{file} of {name} is not the file that was added.")
        return card

    def _take_checkpoint(self, part: Path, name: str) -> None:
        """Moves one of Reelword's own, and what is written of it, to the others."""
        for file, ending in (("README.md", ".md"), (CHECKPOINT, ".safetensors")):
            if (part / file).is_file():
                with atomic_write(self.checkpoints / f"{name}{ending}") as unfinished:
                    shutil.copyfile(part / file, unfinished)
        shutil.rmtree(part)

    def _free_name(self, name: str) -> str:
        if not NAME.fullmatch(name):
            raise errors.NameRefused(f"{name!r} cannot be a captioner's name.")
        if name in self.reserved or (self.folder / name).exists():
            raise errors.NameTaken(f"There is a captioner called {name} already.")
        return name


def read_adapter_card(folder: Path) -> AdapterCard | None:
    """Reads an adapter's card; None where a folder holds none. Raises PretrainedDamaged: it has no card."""
    if not (folder / CONFIG).is_file():
        return None
    try:
        return AdapterCard.model_validate_json((folder / CARD).read_bytes())
    except (OSError, ValidationError) as error:
        raise errors.PretrainedDamaged(
            f"{folder} holds an adapter, and no {CARD} that names its base."
        ) from error


def hub_id(text: str) -> tuple[str, str | None] | None:
    """Splits ``owner/name@revision`` into (id, revision), or None where the text is no id of a hub."""
    match = HUB_ID.fullmatch(text)
    return None if match is None else (match["id"], match["revision"])


def default_name(source: str) -> str:
    """Returns the last part of an id or a path, in lower case and without a revision."""
    hub = hub_id(source)
    last = source.rstrip("/").rpartition("/")[2] if hub is None else hub[0].rpartition("/")[2]
    return Path(source).resolve().name.lower() if last in ("", ".", "..") else last.lower()


@contextmanager
def _partial_folder(part: Path) -> Iterator[None]:
    """Makes the folder, and leaves it behind only where a later call can go on from what is in it."""
    part.mkdir(exist_ok=True)
    try:
        yield
    except (errors.HubUnreachable, errors.FilesDiffer, errors.DiskTooSmall, KeyboardInterrupt):
        raise
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _bring(source: str, part: Path, *, offline: bool, endpoint: str | None) -> str | None:
    """Fills the folder; returns the commit, None where the source is a folder. Raises PretrainedError.

    The hub's library is imported here alone: a list of captioners needs none of it.
    """
    from models.pretrained.hub import copy_folder, download

    if Path(source).is_dir():
        copy_folder(Path(source), part)
        return None
    if offline:
        raise errors.DownloadsForbidden(f"REELWORD_OFFLINE is set, so {source} is not downloaded.")
    repository, revision = hub_id(source) or (source, None)
    return download(repository, revision, part, endpoint=endpoint)


def _own_files(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name != CARD)


def _installed(file: Path) -> InstalledFile:
    return InstalledFile(bytes=file.stat().st_size, sha256=sha256_of(file))


def write_card(folder: Path, card: PretrainedCard) -> None:
    """Writes a captioner's card into its folder, whole or not at all."""
    with atomic_write(folder / CARD) as unfinished:
        unfinished.write_text(json.dumps(card.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
