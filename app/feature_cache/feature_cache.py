"""Keeps features in a folder, each video's by the digest of its bytes, within a number of bytes.

    features/<sha256 of the video>-<what else decides>.features

Many processes use one folder and need not agree: an entry appears whole by a rename, a process that has it
open reads it to its end though it is removed, and what cannot be read is as good as absent. A file's time is
that of its last use, set here, since file systems are mounted without it. Nothing that goes wrong here may
cost a job anything but the time to decode. An entry is

    mark | sha256 of the rest | length of the head, 8 bytes | head, JSON | frames | streams

The head has the facts, and how long each of the others is.
"""

import hashlib
import io
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import structlog
from pydantic import ValidationError

from app.documents.job import Answer
from app.jobs.blobs import Blobs
from app.settings import Settings

SHA256 = re.compile(r"[0-9a-f]{64}")
SUFFIX = ".features"
LARGEST_SHARE = 4  #: an entry takes this part of all the room at most
MARK = b"reelword features 1\n"
DIGEST_BYTES, LENGTH_BYTES = 32, 8
log = structlog.get_logger(__name__)


class EntryDamaged(Exception):
    """Is raised for bytes that are no entry of the cache, or not all of one."""


@dataclass(frozen=True)
class KeptFeatures:
    """Holds what a caption is written from without opening the video."""

    facts: Answer  #: ``media``, ``sampled`` and ``warnings`` of the job's answer
    frames: tuple[bytes, ...]  #: JPEG files of those that the captioner saw, as a result keeps them
    streams: bytes  #: the features, packed (extractors/video_features/packed_streams.py)

    @property
    def duration(self) -> float:
        """Returns the seconds of the video."""
        return (self.facts.media.duration if self.facts.media else None) or 0.0

    def pack(self) -> bytes:
        """Makes one entry of it."""
        facts = self.facts.model_dump(mode="json", include={"media", "sampled", "warnings"})
        parts = [*self.frames, self.streams]
        head = json.dumps({"facts": facts, "sizes": [len(part) for part in parts]}).encode()
        rest = b"".join([len(head).to_bytes(LENGTH_BYTES, "big"), head, *parts])
        return MARK + hashlib.sha256(rest).digest() + rest

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Reads an entry. Raises EntryDamaged for what ``pack`` did not write."""
        start = len(MARK) + DIGEST_BYTES
        digest = hashlib.sha256(memoryview(data)[start:]).digest()
        if data[:start] != MARK + digest:
            raise EntryDamaged("The bytes are not those that were written.")
        rest = io.BytesIO(data)
        rest.seek(start)
        try:
            head = json.loads(rest.read(int.from_bytes(rest.read(LENGTH_BYTES), "big")))
            *frames, streams = (rest.read(size) for size in head["sizes"])
            return cls(Answer.model_validate(head["facts"]), tuple(frames), streams)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise EntryDamaged("The head means nothing to this version.") from error


class FeatureCache:
    """Finds, keeps and forgets entries. Safe to share between threads and processes.

    Files that are being written lie in the staging folder of ``blobs``: there the sweeper finds leftovers.
    """

    def __init__(self, settings: Settings, blobs: Blobs) -> None:
        self._folder, self._blobs = settings.data / "features", blobs
        self._budget, self._min_free = settings.feature_cache_bytes, settings.min_free_bytes
        self._seconds = settings.result_ttl

    @property
    def is_on(self) -> bool:
        return self._budget > 0

    def find(self, sha256: str, basis: str) -> KeptFeatures | None:
        """Finds what is kept of a video, which counts as a use; ``basis`` names what else decides it."""
        if not (self.is_on and SHA256.fullmatch(sha256)):
            return None
        file = self._file(sha256, basis)
        try:
            features = KeptFeatures.unpack(file.read_bytes())
            os.utime(file)
        except FileNotFoundError:
            return None
        except (EntryDamaged, OSError) as error:
            log.warning("kept features are damaged and removed", file=file.name, why=str(error))
            _remove(file)
            return None
        return features

    def keep(self, sha256: str, basis: str, features: KeptFeatures) -> bool:
        """Keeps a video's features, and removes others that were not used for longest where there is no room.

        Args:
            sha256: of the video's bytes.
            basis: names all else that decides what the features are.

        Returns:
            Whether they are kept; they are not where the disk is full or they alone take too much room.
        """
        if not (self.is_on and SHA256.fullmatch(sha256)):
            return False
        try:
            return self._write(self._file(sha256, basis), features.pack())
        except OSError as error:
            log.warning("features are not kept", why=str(error))
            return False

    def has(self, sha256: str) -> bool:
        """Returns whether anything is kept of a video."""
        return self.is_on and next(self._of(sha256), None) is not None

    def forget(self, sha256: str) -> None:
        """Removes all that is kept of a video."""
        for file in list(self._of(sha256)):
            _remove(file)

    def trim(self) -> None:
        """Removes what was not used for as long as a result is kept, then what goes beyond the room."""
        used = sorted(self._uses())
        total = sum(size for _, size, _ in used)
        for moment, size, file in used:
            if total <= self._budget and time.time() - moment < self._seconds:
                return
            _remove(file)
            total -= size

    def _write(self, file: Path, data: bytes) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        is_large = len(data) * LARGEST_SHARE > self._budget
        if is_large or shutil.disk_usage(self._folder).free - len(data) < self._min_free:
            return False
        with self._blobs.staged() as unfinished:
            unfinished.write_bytes(data)
            os.replace(unfinished, file)
        self.trim()
        return True

    def _file(self, sha256: str, basis: str) -> Path:
        return self._folder / f"{sha256}-{hashlib.sha256(basis.encode()).hexdigest()[:32]}{SUFFIX}"

    def _of(self, sha256: str) -> Iterator[Path]:
        return self._folder.glob(f"{sha256}-*{SUFFIX}") if SHA256.fullmatch(sha256) else iter(())

    def _uses(self) -> Iterator[tuple[float, int, Path]]:
        """Yields when each entry was last used, how many bytes it has, and its file."""
        try:
            entries = list(os.scandir(self._folder))
        except FileNotFoundError:
            return
        for entry in entries:
            try:
                facts = entry.stat()
            except FileNotFoundError:  # removed by another process
                continue
            if entry.name.endswith(SUFFIX):
                yield facts.st_mtime, facts.st_size, Path(entry.path)


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        log.warning("kept features cannot be removed", file=file.name, why=str(error))
