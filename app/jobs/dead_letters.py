"""Keeps what could not be read, with the reason, apart from the jobs, until an operator requeues or drops it.

A letter is a field of one Redis hash. Its name is the job's id, or the entry's where it names no job, or the
key's where a key held something of another type.
"""

import json
from typing import Any, Literal

import redis
from pydantic import BaseModel, ValidationError

LONGEST_VALUE = 2000  #: characters kept of a value that could not be read


class DeadLetter(BaseModel, frozen=True):
    """Describes what could not be read."""

    name: str
    kind: Literal["job", "entry", "key", "letter"]  #: what it is
    key: str  #: where it lies
    reason: str
    at: float = 0.0  #: seconds since 1970
    fields: dict[str, str] = {}  #: of the stream entry


class DeadLetters:
    """Reads and removes letters; app/jobs/job_store.py writes them. Raises QueueUnavailable."""

    def __init__(self, server: redis.Redis, key: str) -> None:
        self._server, self._key = server, key

    def all(self) -> list[DeadLetter]:
        """Reads the letters, oldest first."""
        return sorted((_read(name, text) for name, text in self._texts().items()), key=lambda it: it.at)

    def count(self) -> int:
        """Counts the letters."""
        is_there = self._server.type(self._key) == "hash"
        return int(self._server.hlen(self._key)) if is_there else 0

    def find(self, name: str) -> DeadLetter | None:
        """Finds the letter of that name, or None."""
        text = self._texts().get(name)
        return None if text is None else _read(name, text)

    def drop(self, letter: DeadLetter) -> None:
        """Removes a letter and what could not be read."""
        self._server.hdel(self._key, letter.name)
        if letter.kind in ("job", "key"):
            self._server.delete(letter.key)

    def value(self, letter: DeadLetter) -> Any:
        """Reads what lies at the letter's key now, as far as it can be shown; None where nothing does."""
        kind: Any = self._server.type(letter.key) if letter.kind != "entry" else "none"
        if kind == "hash":
            record: Any = self._server.hgetall(letter.key)
            return {name: str(value)[:LONGEST_VALUE] for name, value in record.items()}
        if kind == "string":
            return str(self._server.get(letter.key))[:LONGEST_VALUE]
        return None if kind == "none" else f"a {kind}"

    def _texts(self) -> dict[str, str]:
        if self._server.type(self._key) != "hash":
            return {}
        texts: Any = self._server.hgetall(self._key)
        return dict(texts)


def letter_text(letter: DeadLetter) -> str:
    """Writes a letter as it is stored under its name."""
    return letter.model_dump_json(exclude={"name"})


def _read(name: str, text: str) -> DeadLetter:
    try:
        return DeadLetter.model_validate({**json.loads(text), "name": name})
    except (ValueError, TypeError, ValidationError) as error:
        return DeadLetter(name=name, kind="letter", key=name, reason=f"the letter cannot be read: {error}")
