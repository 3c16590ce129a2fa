"""Answers a request that is sent again with its ``Idempotency-Key`` by the job of the first one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import anyio
import anyio.to_thread
from fastapi import Header

from app.api import problems
from app.errors import QueueUnavailable
from app.jobs.idempotency import RENEW_SECONDS, IdempotencyKeys, KeptAnswer, Reservation

if TYPE_CHECKING:  # it has what receives bodies, and not the other way round
    from app.api.dependencies import ApiDependencies

REPLAYED = {
    "Idempotency-Replayed": {
        "description": "`true` where the answer is that of an earlier request with the same key.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
IdempotencyKey = Annotated[
    str | None,
    Header(
        max_length=255,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="Any text of the client's own, e.g. a UUID. Sent again with it, the same request is "
        "answered by the first one's job, as long as that job's result is kept.",
    ),
]
Held = Reservation | KeptAnswer | None


@asynccontextmanager
async def reserved(service: ApiDependencies, key: str | None, owner: str | None) -> AsyncIterator[Held]:
    """Holds a key while a request comes in, and frees it again where nothing comes of that.

    Args:
        service: what routes need.
        key: as the client sent it, None where it sent none.
        owner: id of the key of the API that it sent.

    Yields:
        The reservation, or what the key stands for already; None without a key.

    Raises:
        IdempotencyInProgress: the first request with the key still comes in.
    """
    held: Held = None
    if key is not None:
        held = await anyio.to_thread.run_sync(reserve, service, key, owner)
    try:
        yield held
    except BaseException as error:
        # Of a job that was made and of which Redis could not tell, the key is the only trace.
        if isinstance(held, Reservation) and not isinstance(error, QueueUnavailable):
            with anyio.CancelScope(shield=True), suppress(QueueUnavailable):
                await anyio.to_thread.run_sync(_keys(service).release, held)
        raise


def reserve(service: ApiDependencies, key: str, owner: str | None) -> Reservation | KeptAnswer:
    """Reserves a key, or finds what it stands for.

    Args:
        service: what routes need.
        key: as the client sent it.
        owner: id of the key of the API that it sent.

    Raises:
        IdempotencyInProgress: another request holds it.
    """
    found = _keys(service).reserve(key, owner)
    if found is None:
        raise problems.IdempotencyInProgress
    return found


def check_same(kept: KeptAnswer, fingerprint: str) -> None:
    """Raises IdempotencyMismatch where a key's first request asked for something else."""
    if kept.fingerprint != fingerprint:
        raise problems.IdempotencyMismatch(
            "The first request with this key had another video or other fields."
        )


async def renewed(service: ApiDependencies, held: Held, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Passes a body on, and keeps the key reserved as long as it comes.

    Args:
        service: what routes need.
        held: the reservation; anything else needs no renewal.
        body: the request's bytes as they arrive.
    """
    renewed_at = anyio.current_time()
    async for piece in body:
        if isinstance(held, Reservation) and anyio.current_time() - renewed_at > RENEW_SECONDS:
            await anyio.to_thread.run_sync(_keys(service).renew, held)
            renewed_at = anyio.current_time()
        yield piece


def _keys(service: ApiDependencies) -> IdempotencyKeys:
    return IdempotencyKeys(service.jobs.server, service.jobs.keys)
