"""The part of a download that has come, and what tells whether more of the same file can be asked for."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx


@dataclass(frozen=True)
class PartialFile:
    """path: the bytes so far, FILE.part. url: where they are from."""

    path: Path
    url: str

    @classmethod
    def beside(cls, file: Path, url: str) -> PartialFile:
        return cls(file.with_name(f"{file.name}.part"), url)

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def _notes(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def range_headers(self) -> dict[str, str]:
        """What asks for the rest of the same version; nothing where it cannot be told that it is the same."""
        version = self._version()
        if not self.size or version is None:
            return {}
        return {"Range": f"bytes={self.size}-", "If-Range": version}

    def begin(self, response: httpx.Response) -> int | None:
        """Makes ready for the bytes of a response; returns how many there will be in all, if it says so."""
        ranged = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if response.status_code == 206 and ranged and int(ranged[1]) == self.size:
            return int(ranged[2]) if ranged[2] != "*" else None
        if response.status_code == 206:
            self.discard()
            raise httpx.RemoteProtocolError("the server sent another part than was asked for")
        self.discard()
        self._note(response.headers)
        if "Content-Encoding" in response.headers:
            return None  # unpacked on the way, to a length that nobody has told
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None

    def open(self) -> BinaryIO:
        """To write on at the end."""
        return self.path.open("ab")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)

    def become(self, file: Path) -> None:
        """Puts the whole file in its place; it is on the disk before its name is."""
        with self.path.open("rb+") as stream:
            os.fsync(stream.fileno())
        self.path.replace(file)
        self._notes.unlink(missing_ok=True)

    def _version(self) -> str | None:
        try:
            notes = json.loads(self._notes.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return str(notes["version"]) if notes.get("url") == self.url and notes.get("version") else None

    def _note(self, headers: httpx.Headers) -> None:
        """A strong ETag, else the date; a weak one does not promise the same bytes."""
        tag = headers.get("ETag", "")
        version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
        self._notes.write_text(json.dumps({"url": self.url, "version": version}), encoding="utf-8")
