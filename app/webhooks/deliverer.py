"""Delivers webhooks while the API runs: events become deliveries, and those that are due are sent.

A delivery is tried at once, then with growing pauses for about a day. Redis holds what is due when, so that
a restart forgets nothing and several processes share the work. An attempt whose process dies between sending
and noting that is made once more, with the same id: a receiver gets it at least once, and once where nothing
dies. A job's messages come in their order: the next one is sent when the last one has come, or has failed.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

import anyio.to_thread
import structlog
from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_base, wait_exponential, wait_random

from app.access.key_ring import KeyRing
from app.documents.deliveries import AttemptDocument, DeliveryState
from app.documents.job import rfc3339
from app.errors import JobError
from app.jobs.blobs import Blobs
from app.jobs.job_store import Jobs
from app.jobs.redis_client import end_tasks
from app.webhooks.delivery_store import Begun, DeliveryStore, JobEvent
from app.webhooks.messages import Message, job_message
from app.webhooks.sender import Sender, SendResult

BLOCK_MS = 500  #: how long an end is waited for, before what is due is looked at
AT_ONCE = 16  #: requests under way in one process
AWAY_SECONDS = 1.0  #: pause while Redis is away
DRAIN_SECONDS = 5.0  #: for requests under way once the server is stopped
DAY = 86400.0
ATTEMPTS_BEFORE_THE_END = 4  #: at a message that another one of the job waits behind: about two minutes

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Schedule:
    """Decides when a delivery is tried again. The pauses make about a day: 5 s, 20 s, … 6 h."""

    attempts: int = 11  #: in all
    #: Tenacity's strategy.
    wait: wait_base = wait_exponential(multiplier=5, exp_base=4, max=6 * 3600) + wait_random(0, 2)

    def pause_after(self, attempt: int, retry_after: float | None) -> float | None:
        """Returns the seconds until the attempt after this one (counted from 1) that failed; None where there
        is none.

        Of the seconds that the receiver asks for no more than a day are granted.
        """
        if attempt >= self.attempts:
            return None
        state = RetryCallState(Retrying(), None, (), {})
        state.attempt_number = attempt
        return max(self.wait(state), min(retry_after or 0.0, DAY))


@dataclass(eq=False)
class Deliverer:
    """Delivers webhooks while it is entered, in an event loop."""

    store: DeliveryStore  #: the deliveries
    jobs: Jobs  #: the records of jobs; read in threads
    blobs: Blobs  #: where long answers lie
    sender: Sender | None  #: sends; None where no secret is set up: messages are kept until there is one
    keys: KeyRing  #: finds what signs the messages of a key
    schedule: Schedule = field(default_factory=Schedule)  #: when is tried again

    def __post_init__(self) -> None:
        self._under_way: dict[asyncio.Task[None], str] = {}  # with the owners
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""  # that was logged last, and lasts

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Takes nothing new, and lets what is under way come to its end."""
        assert self._task is not None
        await end_tasks([self._task])
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=DRAIN_SECONDS)
        await end_tasks(self._under_way)
        if self.sender is not None:
            await self.sender.close()
        await self.store.close()

    async def _run(self) -> None:
        while True:
            try:
                events = await self.store.events(BLOCK_MS)
                await asyncio.gather(*(self._make_delivery(event) for event in events))
                await self._begin_due()
                self._trouble = ""
            except Exception as error:
                self._log_once(error)
                await asyncio.sleep(AWAY_SECONDS)

    def _log_once(self, error: Exception) -> None:
        """Logs what keeps webhooks from being sent, once for as long as it lasts."""
        if str(error) == self._trouble:
            return
        self._trouble = str(error)
        if isinstance(error, (JobError, OSError)):
            log.warning("no webhooks: redis is away", reason=str(error))
        else:
            log.exception("the delivery of webhooks failed once and continues")

    async def _make_delivery(self, event: JobEvent) -> None:
        url, message = await anyio.to_thread.run_sync(self._message, event)
        if await self.store.schedule(event, url, message):
            log.info("webhook is due", job=event.job_id, type=message.type if message else "")

    def _message(self, event: JobEvent) -> tuple[str | None, Message | None]:
        """Reads the job of an event, and writes the message where its webhook is told of it."""
        url: str | None = None
        try:
            job = self.jobs.get(event.job_id) if event.number else None
            url = None if job is None else job.submission.webhook
            if job is None or url is None:
                return None, None
            return url, job_message(job, event.state, self.blobs, event.number, event.segment)
        except JobError as error:
            if error.code == "record_unreadable":
                log.error("no webhook: the job cannot be read", job=event.job_id, reason=str(error))
                return url, None
            raise

    async def _begin_due(self) -> None:
        free = AT_ONCE - len(self._under_way)
        if self.sender is None or free <= 0:
            return
        for begun in await self.store.begin(free, Counter(self._under_way.values())):
            task = asyncio.create_task(self._deliver(begun, self.sender))
            self._under_way[task] = begun.owner
            task.add_done_callback(self._under_way.pop)

    async def _deliver(self, begun: Begun, sender: Sender) -> None:
        at = rfc3339(time.time()) or ""
        try:
            key = await self.keys.by_id(begun.owner) if begun.owner else None
        except JobError:  # redis is away: it is begun anew when its lease has lapsed
            return
        secret = None if key is None else key.webhook_secret
        result = await sender.send(begun.url, begun.message_id, begun.body, secret)
        state, pause = self._what_follows(begun, result)
        attempt = AttemptDocument(
            number=begun.attempt, at=at, status=result.status, error=result.error, seconds=result.seconds
        )
        log.info("webhook tried", job=begun.job_id, attempt=begun.attempt, state=state, error=result.error)
        try:
            await self.store.settle(begun, state, pause, attempt)
        except JobError as error:  # it is sent once more when its lease has lapsed
            log.warning("a webhook's attempt could not be noted", job=begun.job_id, reason=str(error))

    def _what_follows(self, begun: Begun, result: SendResult) -> tuple[DeliveryState, float]:
        if result.is_delivered:
            return "delivered", 0.0
        pause = self.schedule.pause_after(begun.attempt, result.retry_after)
        is_over = result.is_final or (not begun.is_end and begun.attempt >= ATTEMPTS_BEFORE_THE_END)
        return ("failed", 0.0) if is_over or pause is None else ("pending", pause)
