"""What is known of a set before it is read: its annotation files, who used it how, and where to get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from training.datasets.caption_set import CaptionSet
from training.datasets.errors import UnknownProtocol
from training.datasets.files import Wanted
from training.datasets.protocols import Protocol

Read: TypeAlias = Callable[[Path, Protocol], CaptionSet]


@dataclass(frozen=True)
class DataSet:
    """A captioned set.

    title: its full name. annotations: what has to lie in its folder. media: where videos or pictures are
    looked for, in words. obtain: how to get it, a sentence. protocols: the first is the default. read: the
    set in a folder, raises DataSetError. source: where its form was looked up.
    """

    name: str
    title: str
    annotations: tuple[Wanted, ...]
    media: str
    obtain: str
    protocols: tuple[Protocol, ...]
    read: Read
    source: str

    def protocol(self, paper: str | None = None) -> Protocol:
        """Raises UnknownProtocol."""
        if paper is None:
            return self.protocols[0]
        for protocol in self.protocols:
            if protocol.paper == paper:
                return protocol
        known = ", ".join(each.paper for each in self.protocols)
        raise UnknownProtocol(f"{paper!r} did not use {self.title}; choose one of: {known}.")

    def load(self, root: Path, paper: str | None = None) -> CaptionSet:
        """Raises the leaves of DataSetError."""
        return self.read(root, self.protocol(paper))
