"""Answers a request that is sent again with its ``Idempotency-Key`` by what the first one has made."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Annotated, Self, TypeVar

import anyio
import anyio.to_thread
from fastapi import Header

from app.api import problems, refusals
from app.errors import QueueUnavailable
from app.jobs.idempotency import RENEW_SECONDS, IdempotencyKeys, KeptAnswer, KeyTaken, Reservation

REPLAYED = problems.header(
    "Idempotency-Replayed",
    "`true` where the answer is that of an earlier request with the same key.",
    enum=["true"],
)
IdempotencyKey = Annotated[
    str | None,
    Header(
        max_length=255,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="Any text of the client's own, e.g. a UUID. Sent again with it, the same request is "
        "answered by the first one's job, as long as that job's result is kept.",
    ),
]
Made = TypeVar("Made")


@dataclass(eq=False)
class RepeatedRequest:
    """Holds the key of one request, which may have been sent before."""

    keys: IdempotencyKeys
    text: str | None  #: the key as the client sent it; None where it sent none
    owner: str | None  #: id of the API key that it sent
    state: Reservation | KeptAnswer | None = None  #: the reservation, or what the key stands for already

    @property
    def is_first(self) -> bool:
        """Returns whether nothing is known to have been made of an earlier request."""
        return not isinstance(self.state, KeptAnswer)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Self]:
        """Reserves the key while the request comes in, and frees it again where nothing comes of that.

        Raises IdempotencyInProgress where the first request with the key still comes in.
        """
        if self.text is not None:
            await anyio.to_thread.run_sync(self._reserve, self.text)
        try:
            yield self
        except BaseException as error:
            # Of a job that was made and of which Redis could not tell, the key is the only trace.
            if isinstance(self.state, Reservation) and not isinstance(error, QueueUnavailable):
                with anyio.CancelScope(shield=True), suppress(QueueUnavailable):
                    await anyio.to_thread.run_sync(self.keys.release, self.state)
            raise

    def _reserve(self, text: str) -> None:
        self.state = self.keys.reserve(text, self.owner)
        if self.state is None:
            raise refusals.IdempotencyInProgress

    async def renewed(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Passes the request's bytes on as they arrive, and keeps the key reserved as long as they come."""
        renewed_at = anyio.current_time()
        async for piece in body:
            is_due = anyio.current_time() - renewed_at > RENEW_SECONDS
            if isinstance(self.state, Reservation) and is_due:
                await anyio.to_thread.run_sync(self.keys.renew, self.state)
                renewed_at = anyio.current_time()
            yield piece

    def make_once(
        self,
        fingerprint: Callable[[], str],
        make: Callable[[Reservation | None], Made],
        find: Callable[[str], Made | None],
    ) -> tuple[Made, bool]:
        """Makes what is asked for, or finds what an earlier request with the key has made, and says which.

        Args:
            fingerprint: names all that the request has and brings.
            make: makes it, for which the reservation stands from then on.
            find: finds what is there by its id.

        Raises:
            IdempotencyMismatch: the earlier request was another.
            IdempotencyInProgress: another request with the key has overtaken this one.
        """
        if self.text is None or self.state is None:
            return make(None), False
        digest = fingerprint()
        if isinstance(self.state, Reservation):
            try:
                return make(replace(self.state, fingerprint=digest)), False
            except KeyTaken:
                self._reserve(self.text)
        if isinstance(self.state, KeptAnswer):
            if self.state.fingerprint != digest:
                raise refusals.IdempotencyMismatch(
                    "The first request with this key had another video or other fields."
                )
            if (earlier := find(self.state.id)) is not None:
                return earlier, True
        raise refusals.IdempotencyInProgress
