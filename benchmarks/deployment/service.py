"""Speaks HTTP with the service that was deployed, by the standard library alone."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ANSWER_SECONDS = 60.0
POLL_SECONDS = 0.5
OVER = ("succeeded", "failed", "canceled", "expired")


class NotInTime(Exception):
    """What was waited for has not come."""


@dataclass(frozen=True)
class Answer:
    """Holds what the service answered."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Service:
    """Asks a service at an address.

    Attributes:
        url: its address, without a path.
        key: sent with each request, where there is one.
    """

    url: str
    key: str = ""

    def ask(self, path: str, body: bytes | None = None, content_type: str = "application/json") -> Answer:
        """Sends a request: POST where it has a body. Raises OSError where nothing answers."""
        headers = {"Content-Type": content_type} if body is not None else {}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            with urlopen(Request(self.url + path, body, headers), timeout=ANSWER_SECONDS) as response:
                return Answer(response.status, response.read())
        except HTTPError as error:
            return Answer(error.code, error.read())

    def send(self, clip: bytes) -> str:
        """Sends a clip and returns its job's id."""
        return self._accepted(self.ask("/caption", clip, "video/mp4"))

    def send_url(self, url: str) -> str:
        """Sends the address of a clip and returns its job's id."""
        return self._accepted(self.ask("/caption", json.dumps({"url": url}).encode()))

    def wait_for(self, jobs: Sequence[str], seconds: float) -> list[dict[str, Any]]:
        """Waits until all jobs are over, through times in which nothing answers.

        Args:
            jobs: their ids.
            seconds: how long they may take together.

        Raises:
            NotInTime: some go on.
        """
        until = time.monotonic() + seconds
        documents: dict[str, dict[str, Any]] = {}
        while open_jobs := [job for job in jobs if documents.get(job, {}).get("state") not in OVER]:
            if time.monotonic() > until:
                raise NotInTime(f"{len(open_jobs)} of {len(jobs)} jobs are not over after {seconds:g} s")
            for job in open_jobs:
                documents[job] = self._read(job)
            time.sleep(POLL_SECONDS)
        return [documents[job] for job in jobs]

    def wait_ready(self, seconds: float, workers: int = 1) -> float:
        """Waits until so many workers are ready, and returns how long that took. Raises NotInTime."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            try:
                answer = self.ask("/readyz")
                if answer.status == HTTPStatus.OK and answer.json()["workers"] >= workers:
                    return time.monotonic() - began
            except OSError:
                pass
            time.sleep(POLL_SECONDS)
        raise NotInTime(f"{workers} workers are not ready after {seconds:g} s")

    def _read(self, job: str) -> dict[str, Any]:
        try:
            answer = self.ask(f"/jobs/{job}")
        except OSError:
            return {}
        document: dict[str, Any] = answer.json() if answer.status == HTTPStatus.OK else {}
        return document

    def _accepted(self, answer: Answer) -> str:
        if answer.status != HTTPStatus.ACCEPTED:
            raise ValueError(f"the clip was answered with {answer.status}: {answer.body[:300]!r}")
        return str(answer.json()["id"])
