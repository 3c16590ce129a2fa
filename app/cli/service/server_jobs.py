"""Reads and changes the jobs of a service by its API: what ``reelword jobs`` does elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from app.cli.server import Server
from app.errors import UsageError

Summary = dict[str, Any]
OVER = ("succeeded", "failed", "canceled")


class ServerJobs:
    """Does by HTTP what JobRecords does by Redis; all methods raise ServiceUnreachable and ServiceRefused.

    Args:
        server: the service that is asked.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def summaries(self, states: Sequence[str], captioner: str | None, batch: str | None) -> Iterator[Summary]:
        """Yields what jobs are, newest first, a page at a time.

        Args:
            states: those that are listed; all where there is none.
            captioner: who writes, or wrote; None for any.
            batch: that they belong to; None for any.
        """
        filters = {"state": ",".join(states), "captioner": captioner, "batch": batch}
        params = {name: value for name, value in filters.items() if value}
        while True:
            page = self._server.get("/jobs", params=params).json()
            yield from page["jobs"]
            if page["next"] is None:
                return
            params["cursor"] = page["next"]

    def show(self, name: str) -> Summary:
        """Returns the job's document; its record is not for visitors."""
        document: Summary = self._server.get(f"/jobs/{name}").json()
        return {**document, "record": {}}

    def requeue(self, name: str) -> None:
        """Refuses: the API puts no job back. Raises UsageError."""
        raise UsageError(
            f"{name} stays: jobs are requeued where the service's Redis is. Run this there, with --local."
        )

    def cancel(self, name: str) -> str:
        """Cancels a job; returns what came of it, as a sentence goes on after its name."""
        state = self._server.get(f"/jobs/{name}").json()["state"]
        if state in OVER:
            return f"is over already: it has {state}."
        return "is canceled." if self._server.delete(f"/jobs/{name}")["state"] in OVER else "is told to stop."

    def purge(
        self, names: Sequence[str], states: Sequence[str], age: float, *, is_dry: bool
    ) -> Iterator[Summary]:
        """Deletes results and uploads of jobs that are over, and yields them; their sizes are not known.

        Args:
            names: of jobs; all jobs where there is none.
            states: those that are purged; all where there is none.
            age: seconds since they ended, at least.
            is_dry: deletes nothing.
        """
        for job in map(self.show, names) if names else list(self.summaries(states, None, None)):
            if job["state"] not in OVER or (states and job["state"] not in states):
                continue
            ended = datetime.fromisoformat(job["ended_at"] or job["created_at"]).timestamp()
            if time.time() - ended >= age:
                if not is_dry:
                    self._server.delete(f"/jobs/{job['id']}")
                yield {"id": job["id"], "state": job["state"], "bytes": None, "purged": not is_dry}
