"""Finds a running service and asks it: what ``caption``, ``models`` and ``jobs`` do where one runs.

A service is named by --server or REELWORD_URL, or runs on the same data folder (app/serve/address.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from app.errors import CaptionerUnknown, UsageError, for_commands
from app.terminal import complain
from extractors.errors import ReelwordError

if TYPE_CHECKING:
    import httpx

    from app.settings import Settings

LONG_POLL = 30  #: seconds that the service holds a request for a change
TIMEOUT = 60.0  #: seconds without a byte
LOOK_SECONDS = 1.0  #: that a service which was found, and not named, may take to say that it is ready
PATIENCE = 300.0  #: seconds of trying again while the service has too much to do
BUSY = (429, 503)


class ServiceUnreachable(ReelwordError, code="service_unreachable"):
    """Is raised where the service does not answer."""

    hint = "Check its address and that it runs, or add --local to do without it."


class ServiceRefused(ReelwordError, code="service_refused"):
    """Is raised where the service refuses a request; the message and the hint are the service's."""

    hint = "Correct what the service names, or add --local to do without it."

    def __init__(self, response: httpx.Response) -> None:
        try:
            problem = response.json()
        except ValueError:
            problem = {}
        super().__init__(problem.get("detail") or f"The service answers with {response.status_code}.")
        self.status, self.problem = response.status_code, problem
        self.hint = for_commands(problem.get("hint", self.hint))
        if problem.get("code") == CaptionerUnknown.code:
            self.hint += " With --local it is there now."

    def document(self) -> dict[str, str]:
        """Returns what the service says of it."""
        return {**super().document(), "code": self.problem.get("code", self.code)}


@dataclass(frozen=True)
class ServerChoice:
    """Holds whether a running service is asked, and which."""

    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask the service there, with the key in REELWORD_KEY. Default: REELWORD_URL, else the one "
            "that runs on this data folder, where one does.",
        ),
    ] = None
    local: Annotated[bool, typer.Option("--local", help="Do it in this process, whatever runs.")] = False

    def find_named(self, settings: Settings) -> Server | None:
        """Returns the service that --server or REELWORD_URL names, and says so; None where none is named."""
        if self.local and self.server:
            raise UsageError("--server asks a service and --local none: leave one of them out.")
        url = self.server or (None if self.local else settings.url)
        return None if url is None else _open(url, settings)

    def find(self, settings: Settings, here_alone: Sequence[str] = ()) -> Server | None:
        """Finds the service to ask and says so on standard error; None where it is done here.

        Raises UsageError where a service is named, and so is --local or one of the options in ``here_alone``,
        which a service does not have.
        """
        if (self.server or (settings.url and not self.local)) and here_alone:
            raise UsageError(f"{here_alone[0]} is not for a running service: leave it out, or add --local.")
        named = self.find_named(settings)
        return named if named or self.local or here_alone else _find_running(settings)


def _find_running(settings: Settings) -> Server | None:
    from app.serve.address import read_address

    url = read_address(settings.data)
    if url is None:
        return None
    if Server(url, settings.key, LOOK_SECONDS).is_ready():
        return _open(url, settings)
    complain(f"The service at {url} is not ready, and is not asked.")
    return None


def _open(url: str, settings: Settings) -> Server:
    complain(f"Asking the service at {url}; --local does without it.")
    return Server(url, settings.key)


@dataclass(eq=False)
class Server:
    """Asks one service.

    All methods raise ServiceUnreachable and ServiceRefused.
    """

    url: str  #: its address
    key: str | None  #: an API key, where it asks for one
    timeout: float = TIMEOUT  #: seconds without a byte after which it does not answer

    def __post_init__(self) -> None:
        self._headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def is_ready(self) -> bool:
        """Returns whether it takes jobs and has a worker for them."""
        try:
            return bool(self.get("/readyz").json().get("status") == "ready")
        except (ReelwordError, ValueError):
            return False

    def get(self, path: str, **content: Any) -> httpx.Response:
        """Returns the answer to a GET. content: httpx' own params and headers."""
        return self._send("GET", path, **content)

    def submit(self, video: Path | str, form: Mapping[str, str]) -> str:
        """Sends a file or an address and returns its job's id; waits while the service has too much to do."""
        headers, until = {"Idempotency-Key": uuid4().hex}, time.monotonic() + PATIENCE
        while True:
            with ExitStack() as stack:
                part: Any = ("url", (None, video))
                if isinstance(video, Path):
                    part = ("video", (video.name, stack.enter_context(video.open("rb"))))
                try:
                    response = self._send("POST", "/caption", headers=headers, data=dict(form), files=[part])
                    return str(response.json()["id"])
                except ServiceRefused as refusal:
                    if refusal.status not in BUSY or time.monotonic() > until:
                        raise
            time.sleep(1)

    def wait(self, job: str) -> dict[str, Any]:
        """Returns a job's document once it is over."""
        headers: dict[str, str] = {}
        while True:
            response = self.get(f"/jobs/{job}", headers=headers)
            if response.status_code != 304:
                document: dict[str, Any] = response.json()
                if document["state"] not in ("queued", "running"):
                    return document
                headers = {"Prefer": f"wait={LONG_POLL}", "If-None-Match": response.headers["ETag"]}

    def delete(self, path: str) -> dict[str, Any]:
        """Returns the document that a DELETE leaves."""
        document: dict[str, Any] = self._send("DELETE", path).json()
        return document

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        import httpx

        is_here = httpx.URL(self.url).host in ("127.0.0.1", "::1", "localhost")  # which no proxy reaches
        client = httpx.Client(
            base_url=self.url, headers=self._headers, timeout=self.timeout, trust_env=not is_here
        )
        try:
            with client:
                response = client.request(method, path, **content)
        except httpx.TransportError as error:
            raise ServiceUnreachable(f"{self.url} does not answer: {error}.") from error
        if response.is_error:
            raise ServiceRefused(response)
        return response
