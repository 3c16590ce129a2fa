"""Who waits for whom in a worker's hands: batches, films, frames that take room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from app.jobs.job import Job, Submission
from app.jobs.job_store import Claim
from app.worker.attempt import Attempt, JobClock
from app.worker.jobs_in_hand import COMPANION_SECONDS, JobsInHand
from tests.app.workers import eventually

PATIENCE = 5.0


def attempt(name: str, *, is_alone: bool = False, owner: str | None = None) -> Attempt:
    record = {
        "token": "1", "id": name, "state": "running", "priority": "normal", "options": "{}",
        "upload": f"uploads/{name}", "filename": "", "created_at": "0", "progress": "0", "attempt": "1",
        "entry": "1-1", "submission": Submission(owner=owner).model_dump_json(),
    }  # fmt: skip
    job = Job.from_record(name, record)
    run = Attempt(Claim(job, "1", "me"))
    run.is_alone = is_alone
    return run


@pytest.fixture
def ended() -> list[Attempt]:
    return []


@pytest.fixture
def hand(ended: list[Attempt]) -> Iterator[JobsInHand]:
    held = JobsInHand(1000, ended.append)
    yield held
    held.close()


def put(hand: JobsInHand, *names: str) -> list[Attempt]:
    """Attempts that are ready to be captioned."""
    runs = [attempt(name) for name in names]
    for run in runs:
        hand.put(run, "caption")
    return runs


def test_whatever_is_ready_goes_together_up_to_a_batch(hand: JobsInHand) -> None:
    runs = put(hand, *"abcdef")
    assert hand.take_batch(4, PATIENCE) == runs[:4]
    assert hand.take_batch(4, PATIENCE) == runs[4:]
    assert hand.take_batch(4, 0.01) == []


def test_each_owner_has_its_turn(hand: JobsInHand) -> None:
    ada, bob = [attempt(name, owner="ada") for name in "abc"], attempt("d", owner="bob")
    for place in ("read", "caption"):
        for run in (*ada, bob):
            hand.put(run, place)
    assert [hand.take("read") for _ in range(4)] == [ada[0], bob, ada[1], ada[2]]
    batches = [hand.take_batch(2, PATIENCE) for _ in range(3)]
    assert batches == [[ada[0], bob], ada[1:2], ada[2:]]  # half as many, once there are two owners


def test_a_segment_is_its_owners_turn(hand: JobsInHand) -> None:
    """Another owner's clip comes next, also where that owner had the last turn of clips."""
    film, ada = attempt("film", owner="ada"), [attempt(name, owner="ada") for name in "abcd"]
    for run in ada:
        hand.put(run, "caption")
    for name in ("first", "second"):  # bob sends one after the other
        bob = attempt(name, owner="bob")
        hand.put(bob, "caption")
        assert hand.take_ready(4, film) == [bob]
    assert hand.take_ready(4, film) == ada[:2]


def test_a_lone_clip_shares_its_batch_with_others_that_are_lone(hand: JobsInHand) -> None:
    """A batch is answered as a whole; where all owners have more waiting it is filled, by half."""
    ada, eve = ([attempt(f"{owner}{number}", owner=owner) for number in range(4)] for owner in ("ada", "eve"))
    bob, kim = (attempt(name, owner=name) for name in ("bob", "kim"))
    for run in (*ada, bob, kim, *eve):
        hand.put(run, "caption")
    assert hand.take_batch(8, PATIENCE) == [ada[0], bob, kim]
    assert hand.take_batch(8, PATIENCE) == [eve[0], ada[1], eve[1], ada[2]]  # half as many, of several owners
    assert hand.take_batch(8, PATIENCE) == [eve[2], ada[3]]
    assert hand.take_batch(8, PATIENCE) == [eve[3]]
    for run in (*ada, bob):
        hand.put(run, "caption")
    assert hand.take_batch(8, PATIENCE) == [bob]
    assert hand.take_batch(8, PATIENCE) == ada


def test_a_lone_job_does_not_wait_where_nothing_else_is_read(
    hand: JobsInHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.worker.jobs_in_hand.COMPANION_SECONDS", PATIENCE)
    runs = put(hand, "a")
    hand.put(attempt("far"), "fetch")
    began = time.monotonic()
    assert hand.take_batch(4, PATIENCE) == runs
    assert time.monotonic() - began < PATIENCE / 2


def test_a_lone_job_waits_five_milliseconds_for_one_that_is_read(hand: JobsInHand) -> None:
    hand.put(attempt("slow"), "read")
    assert hand.take("read") is not None
    took = []
    for name in "abcdefghi":
        runs, began = put(hand, name), time.monotonic()
        assert hand.take_batch(4, PATIENCE) == runs
        took.append(time.monotonic() - began)
    assert COMPANION_SECONDS == 0.005
    assert min(took) < 4 * COMPANION_SECONDS  # of nine: others use this machine too
    assert sorted(took)[len(took) // 2] > COMPANION_SECONDS / 2


def test_one_that_is_read_meanwhile_joins_it(hand: JobsInHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.jobs_in_hand.COMPANION_SECONDS", PATIENCE)
    late = attempt("late")
    hand.put(late, "read")
    assert hand.take("read") is late
    (first,) = put(hand, "first")
    threading.Timer(0.05, hand.put, (late, "caption")).start()
    began = time.monotonic()
    assert hand.take_batch(4, PATIENCE) == [first, late]
    assert time.monotonic() - began < PATIENCE / 2  # nothing else is read: nobody waits any longer


def test_one_that_is_to_be_alone_goes_first_and_by_itself(hand: JobsInHand) -> None:
    runs = put(hand, "a", "b")
    lonely = attempt("lonely", is_alone=True)
    hand.put(lonely, "caption")
    assert hand.take_batch(4, PATIENCE) == [lonely]
    assert hand.take_batch(4, PATIENCE) == runs


def test_a_film_waits_until_nothing_else_is_in_hand(hand: JobsInHand, ended: list[Attempt]) -> None:
    film, reading = attempt("film"), attempt("reading")
    hand.put(film, "film")
    hand.put(reading, "read")
    assert hand.take_batch(4, 0.01) == []
    assert hand.take("read") is reading
    assert hand.take_batch(4, 0.01) == []
    hand.drop(reading)
    assert hand.take_batch(4, PATIENCE) == [film]
    assert ended == [reading]


def test_a_film_waits_for_no_endless_row_of_clips(hand: JobsInHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.jobs_in_hand.FILM_SECONDS", 0.05)
    film = attempt("film")
    hand.put(film, "film")
    clips = put(hand, *"ab")
    time.sleep(0.1)
    assert hand.take_batch(4, PATIENCE) == [film]
    assert hand.take_ready(4, film) == clips  # between its segments
    assert hand.take_ready(4, film) == []


def test_an_error_of_a_thread_is_the_engine_thread_s(hand: JobsInHand) -> None:
    hand.fail(OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        hand.take_batch(4, PATIENCE)
    assert hand.take_batch(4, 0.01) == []


def test_closing_ends_all_waiting(hand: JobsInHand) -> None:
    found: list[Attempt | None] = []
    waiting = threading.Thread(target=lambda: found.append(hand.take("read")))
    waiting.start()
    hand.close()
    waiting.join(PATIENCE)
    assert found == [None]


def in_background(task: Callable[[], None]) -> threading.Event:
    """Set once the task is done."""
    done = threading.Event()

    def run() -> None:
        task()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done


def test_frames_are_bounded_but_for_the_oldest_job_s(hand: JobsInHand) -> None:
    oldest, second, third = (attempt(name) for name in "abc")
    hand.admit(oldest, 600)
    hand.admit(second, 300)
    hand.admit(oldest, 5000)  # one job is always read
    waits = in_background(lambda: hand.admit(third, 200))
    assert not waits.wait(0.3)
    assert third.clock.seconds == 0.0
    hand.drop(oldest)
    assert waits.wait(PATIENCE)
    assert second.clock.seconds == 0.0


def test_a_decoder_that_pauses_for_room_notices_that_its_job_is_stopped(hand: JobsInHand) -> None:
    hand.admit(attempt("large"), 1000)
    paused = attempt("paused")
    waits = in_background(lambda: hand.admit(paused, 1))
    assert not waits.wait(0.3)
    paused.stopped = "canceled"
    eventually(waits.is_set)


def test_pausing_takes_nothing_of_a_job_s_time(hand: JobsInHand) -> None:
    large, paused = attempt("large"), attempt("paused")
    hand.admit(large, 1000)
    paused.clock.resume()
    waits = in_background(lambda: hand.admit(paused, 1))
    eventually(lambda: runs_by(paused.clock) == 0.0)
    assert not waits.is_set()
    hand.forget_frames(large)
    assert waits.wait(PATIENCE)
    assert runs_by(paused.clock) >= 0.05


def runs_by(clock: JobClock) -> float:
    """What it counts in a twentieth of a second."""
    before = clock.seconds
    time.sleep(0.05)
    return clock.seconds - before
