"""Jobs under any order of calls: Hypothesis looks for one that loses a job, ends it twice or never ends it.

Against the real server. Only time is played: ``let_lease_lapse`` makes a silent worker's lease old at once.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from app.errors import DeadlineExceeded, EngineCrashed, WorkerLost
from app.jobs.job import GROUP, Keys
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Offer, Queue, ensure_groups
from app.jobs.redis_client import connect
from app.serve.embedded_redis import RedisServer

pytestmark = pytest.mark.slow

ATTEMPTS = 3
WORKERS = ("ann", "bob")
LOST, CRASHED = WorkerLost("Its workers fell silent."), EngineCrashed("It killed the engine.")
SERVER: list[redis.Redis] = []


@pytest.fixture(scope="module", autouse=True)
def machine_server(redis_server: RedisServer) -> Iterator[None]:
    with connect(redis_server.url, patience=5) as client:
        client.config_set("appendonly", "no")  # thousands of calls, and no power cut among them
        SERVER.append(client)
        yield
        SERVER.clear()
        client.config_set("appendonly", "yes")


@dataclass
class Told:
    """What the outside world has been told of a job."""

    ending: dict[str, str] | None = None
    ends: int = 0  # events of its end, as they stood before its result was deleted
    endings_acknowledged: int = 0
    token: int = 0
    starts: int = 0
    hand_backs: int = 0
    claims: list[Claim] = field(default_factory=list)


class JobMachine(RuleBasedStateMachine):
    offers: Bundle[Offer] = Bundle("offers")
    claims: Bundle[Claim] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.server, self.keys = SERVER[0], Keys(f"machine-{uuid.uuid4().hex[:12]}")
        self.jobs = Jobs(self.server, attempts=ATTEMPTS, lease=3600, result_ttl=3600, keys=self.keys)
        self.queues = {name: Queue(self.server, name, lease=3600, keys=self.keys) for name in WORKERS}
        self.told: dict[str, Told] = {}
        ensure_groups(self.server, self.keys)

    @precondition(lambda self: len(self.told) < 3)
    @rule(priority=st.sampled_from(["high", "normal", "low"]))
    def submit(self, priority: Any) -> None:
        job_id = f"job{len(self.told)}"
        self.jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", priority=priority)
        self.told[job_id] = Told()

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        """The client's connection broke and it tries once more."""
        job_id = data.draw(st.sampled_from(sorted(self.told)))
        before = self.record(job_id)
        self.jobs.submit(job_id, CaptionOptions(), "uploads/other")
        assert self.record(job_id) == before

    @rule(target=offers, worker=st.sampled_from(WORKERS))
    def take(self, worker: str) -> Any:
        return multiple(*self.taken(worker))

    def taken(self, worker: str) -> list[Offer]:
        self.queues[worker]._looked_at = -1.0  # recovery is looked for now and then; here, now
        return self.queues[worker].take(2, block=0)

    @precondition(lambda self: self.told)
    @rule(
        target=claims,
        worker=st.sampled_from(WORKERS),
        is_shared=st.booleans(),
        times=st.integers(1, ATTEMPTS + 1),
    )
    def recover(self, worker: str, is_shared: bool, times: int) -> Any:
        """The worker that had a job fell silent, and another takes what there is, and falls silent."""
        claims = []
        for _ in range(times):
            for job_id in self.told:
                self.lapse(job_id)
            for offer in self.taken(worker):
                claims += self.claim(offer, worker, is_shared)
        return multiple(*claims)

    @rule(target=claims, offer=offers, worker=st.sampled_from(WORKERS), is_shared=st.booleans())
    def claim_an_offer(self, offer: Offer, worker: str, is_shared: bool) -> Any:
        """Any offer, as often as it likes: old ones and those of others too."""
        return multiple(*self.claim(offer, worker, is_shared))

    def claim(self, offer: Offer, worker: str, is_shared: bool) -> list[Claim]:
        before = self.record(offer.job_id)
        taken = self.jobs.claim(
            offer.job_id, offer.entry, offer.priority, worker, cause=LOST, is_shared=is_shared
        )
        return self.claimed(taken, before, may_take_over=False)

    @rule(target=claims, held=claims)
    def claim_again(self, held: Claim) -> Any:
        """The holder's child died of the job; old holders try as well."""
        before = self.record(held.job.id)
        taken = self.jobs.claim_again(held, CRASHED)
        is_holder = before["state"] == "running" and before["token"] == held.token
        assert is_holder or not isinstance(taken, Claim)
        return multiple(*self.claimed(taken, before, may_take_over=True))

    def claimed(self, taken: Any, before: dict[str, str], *, may_take_over: bool) -> list[Claim]:
        if not isinstance(taken, Claim):
            return []
        history = self.told[taken.job.id]
        assert may_take_over or before["state"] == "queued" or before["lease"] == "0"
        assert int(taken.token) > history.token, "a token was given out twice"
        history.token = int(taken.token)
        history.starts += 1
        return [taken]

    @rule(claim=claims, progress=st.floats(0, 1))
    def beat(self, claim: Claim, progress: float) -> None:
        record = self.record(claim.job.id)
        is_good = record["state"] == "running" and record["token"] == claim.token
        expected = ("canceled" if "cancel" in record else "go") if is_good else "lost"
        assert self.jobs.beat(claim, "extract", progress) == expected

    @rule(claim=claims, how=st.sampled_from(["succeed", "fail", "stop", "hand back"]))
    def finish(self, claim: Claim, how: str) -> None:
        """By the holder, or by one who lost the job and comes late."""
        job_id = claim.job.id
        before = self.record(job_id)
        is_good = before["state"] == "running" and before["token"] == claim.token
        is_done = {
            "succeed": lambda: self.jobs.succeed(claim, {"caption": claim.token}),
            "fail": lambda: self.jobs.fail(claim, DeadlineExceeded("It took too long.")),
            "stop": lambda: self.jobs.stop(claim),
            "hand back": lambda: self.jobs.hand_back(claim),
        }[how]()
        if not is_good:
            assert self.record(job_id) == before, "a late call changed the record"
        elif how == "hand back":
            assert is_done
            self.told[job_id].hand_backs += 1
        elif "cancel" in before and how != "stop":
            assert not is_done
            assert self.record(job_id)["state"] == "canceled"
        else:
            assert is_done
            self.told[job_id].endings_acknowledged += 1

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.told)))
        state = self.record(job_id)["state"]
        expected = {"queued": "done", "running": "asked"}.get(state, "over")
        assert self.jobs.cancel(job_id) == expected

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def let_lease_lapse(self, data: st.DataObject) -> None:
        """Its worker fell silent a lease ago."""
        job_id = data.draw(st.sampled_from(sorted(self.told)))
        self.lapse(job_id)

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.told)))
        before = self.record(job_id)
        is_over = before["state"] in ("succeeded", "failed", "canceled")
        ends = self.end_events(job_id)
        assert self.jobs.expire(job_id) == is_over
        if is_over:
            self.told[job_id].ending, self.told[job_id].ends = {**self.record(job_id)}, ends
        else:
            assert self.record(job_id) == before

    @invariant()
    def an_ending_is_written_once(self) -> None:
        for job_id, history in self.told.items():
            record = self.record(job_id)
            if record["state"] in ("queued", "running"):
                assert history.ending is None, f"{job_id} came back from {history.ending}"
            elif history.ending is None:
                history.ending = record
            else:
                assert record == history.ending, f"{job_id} ended twice"
            assert history.endings_acknowledged <= 1

    @invariant()
    def nothing_is_lost_and_nothing_lingers(self) -> None:
        """A job that is not over has its entry, and nobody else has one."""
        for job_id in self.told:
            record = self.record(job_id)
            stream = self.keys.stream(record["priority"])  # type: ignore[arg-type]
            entries: Any = self.server.xrange(stream, record["entry"], record["entry"])
            assert len(entries) == (record["state"] in ("queued", "running"))
            if record["state"] == "running":
                entry = record["entry"]
                assert self.server.xpending_range(stream, GROUP, entry, entry, 1)

    @invariant()
    def an_end_is_told_once(self) -> None:
        """To those who follow the job, and to those who read all ends; and what was told last is so."""
        entries: Any = self.server.xrange(self.keys.ended)
        ended = Counter(fields["job"] for _, fields in entries)
        for job_id, history in self.told.items():
            record = self.record(job_id)
            is_over = record["state"] not in ("queued", "running")
            assert ended[job_id] == is_over
            assert (history.ends or self.end_events(job_id)) == is_over
            if record["state"] != "expired":
                newest: Any = self.server.xrevrange(self.keys.events(job_id), count=1)
                last = newest[0][1]
                shown = {"stage": "", "cancel": "0", **record}
                assert [last[name] for name in ("state", "attempt")] == [record["state"], record["attempt"]]
                assert (last["stage"], last["cancel"]) == (shown["stage"], shown["cancel"])

    def end_events(self, job_id: str) -> int:
        entries: Any = self.server.xrange(self.keys.events(job_id))
        return sum(fields["state"] not in ("queued", "running") for _, fields in entries)

    @invariant()
    def attempts_are_bounded(self) -> None:
        for job_id, history in self.told.items():
            record = self.record(job_id)
            losses = int(record.get("losses", 0))  # of workers in whose hands it only waited: not counted
            assert 0 <= int(record["attempt"]) <= ATTEMPTS
            # twice: an attempt in a batch that died goes on alone, once
            assert history.starts <= 2 * (ATTEMPTS + history.hand_backs + losses)

    def teardown(self) -> None:
        """Whatever happened: one good worker brings every job to its end."""
        worker = self.queues["ann"]
        for _ in range(3 * len(self.told) + 3):
            for job_id in self.told:
                self.lapse(job_id)
            worker._looked_at = -1.0
            for offer in worker.take(2, block=0):
                taken = self.jobs.claim(offer.job_id, offer.entry, offer.priority, "ann", cause=LOST)
                if isinstance(taken, Claim):
                    assert self.jobs.succeed(taken, {"caption": "the end"})
        for job_id in self.told:
            assert self.record(job_id)["state"] not in ("queued", "running"), f"{job_id} is stuck"
        if names := self.server.keys(f"{self.keys.namespace}:*"):
            self.server.delete(*names)

    def lapse(self, job_id: str) -> None:
        """A job that runs has an old lease; one that was offered and not begun was so a lease ago."""
        record = self.record(job_id)
        if record["state"] == "running":
            self.server.hset(self.keys.job(job_id), mapping={"lease": "0", "offered": "0"})
        elif record["state"] == "queued":
            self.server.hset(self.keys.job(job_id), "offered", "0")

    def record(self, job_id: str) -> dict[str, str]:
        record: Any = self.server.hgetall(self.keys.job(job_id))
        return dict(record)


JobMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
TestJobs = JobMachine.TestCase
