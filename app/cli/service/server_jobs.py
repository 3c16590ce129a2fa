"""Reads and changes the jobs of a service by its API: what ``reelword jobs`` does elsewhere."""

from collections.abc import Iterator, Sequence
from typing import Any

from app.cli.server import Server
from app.errors import UsageError

Summary = dict[str, Any]
OVER = ("succeeded", "failed", "canceled")


class ServerJobs:
    """Does by HTTP what JobRecords does by Redis; all methods raise ServiceUnreachable and ServiceRefused."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def summaries(
        self, states: Sequence[str], captioner: str | None = None, batch: str | None = None
    ) -> Iterator[Summary]:
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
        """Cancels a job; returns what came of it, to follow its name in a sentence."""
        state = self._server.get(f"/jobs/{name}").json()["state"]
        if state in OVER:
            return f"is over already: it has {state}."
        return "is canceled." if self._server.delete(f"/jobs/{name}")["state"] in OVER else "is told to stop."

    def purge(self, name: str) -> None:
        self._server.delete(f"/jobs/{name}")

    def size(self, name: str) -> None:
        """Returns None: the API does not tell how many bytes a job has."""
