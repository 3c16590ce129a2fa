"""Passes searches from the API, which knows no embedding, to a worker, and its answers back.

A search is an entry of a list; the worker that takes it pushes the answer to a list of its own, for which the
API waits. Both vanish by themselves: a search that nobody waits for any more is not answered.
"""

import time
import uuid

import redis
from pydantic import BaseModel, Field

from app.jobs.job import Keys

LISTEN_SECONDS = 1  #: of one call of Redis; below what the API lets Redis take
KEPT_SECONDS = 60  #: an answer that nobody has read


class Search(BaseModel, frozen=True):
    """Is what is looked for in jobs."""

    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    words: str
    count: int  #: moments at most
    owner: str | None = None  #: whose jobs alone; None for all
    jobs: list[str] | None = None  #: that alone are searched; None for all
    until: float  #: seconds since 1970; then nobody waits for it
    root: str = ""  #: path that addresses in its answer begin with


class Searches:
    """Asks and answers. Raises QueueUnavailable."""

    def __init__(self, server: redis.Redis, keys: Keys) -> None:
        self._server, self._keys = server, keys

    def ask(self, search: Search) -> str | None:
        """Waits for a worker's answer, as long as the search is good; None where none has come."""
        entry, answers = search.model_dump_json(), self._keys.search_answer(search.id)
        self._server.rpush(self._keys.searches, entry)
        while time.time() < search.until:
            answer = self._server.blpop([answers], LISTEN_SECONDS)
            if answer is not None:
                return str(answer[1])
        self._server.lrem(self._keys.searches, 1, entry)
        return None

    def take(self) -> Search | None:
        """Takes the search that has waited longest, if there is one for which an answer is waited."""
        while True:
            entry = self._server.lpop(self._keys.searches)
            if entry is None:
                return None
            search = Search.model_validate_json(str(entry))
            if search.until > time.time():
                return search

    def answer(self, search: Search, text: str) -> None:
        """Sends the answer, JSON that goes to the client as it is."""
        key = self._keys.search_answer(search.id)
        with self._server.pipeline(transaction=True) as pipe:
            pipe.rpush(key, text)
            pipe.expire(key, KEPT_SECONDS)
            pipe.execute()
