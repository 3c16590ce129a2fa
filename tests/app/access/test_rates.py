"""Rates by a real Redis: one count for all processes, one for each key and kind; and without Redis."""

from __future__ import annotations

import re
import time

import pytest
import redis

from app.access.keys import make_key
from app.access.rates import Rates
from app.jobs.job import Keys
from app.jobs.redis_client import connect


def test_a_rate_is_shared_by_processes_and_not_by_keys(server: redis.Redis, keys: Keys) -> None:
    one, other = (make_key(name, rate="3/minute")[0] for name in ("one", "other"))
    here, there = Rates(server, keys), Rates(server, keys)
    states = [rates.take(one, is_writing=True) for rates in (here, there, here, there)]
    assert [state is not None and state.is_within for state in states] == [True, True, True, False]
    last = states[-1]
    assert last is not None
    assert (last.amount, last.window, last.remaining) == (3, 60, 0)
    assert 50 <= last.reset <= 60
    state = there.take(other, is_writing=True)
    assert state is not None
    assert (state.is_within, state.remaining) == (True, 2)


def test_reading_and_writing_are_counted_apart(server: redis.Redis, keys: Keys) -> None:
    key, _ = make_key("ada", rate="1/minute", read_rate="2/minute")
    rates = Rates(server, keys)
    states = [rates.take(key, is_writing=writes) for writes in (True, False, False, True, False)]
    assert [state is not None and state.is_within for state in states] == [True, True, True, False, False]


def test_a_key_without_a_rate_costs_redis_nothing() -> None:
    away = connect("redis://127.0.0.1:1", patience=0.1)
    key, _ = make_key("ada", read_rate="1/minute")
    assert Rates(away, Keys()).take(key, is_writing=True) is None


def test_the_window_moves(server: redis.Redis, keys: Keys) -> None:
    key, _ = make_key("ada", rate="1/second")
    rates = Rates(server, keys)
    first, second = (rates.take(key, is_writing=True) for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.is_within, second.is_within, second.reset) == (True, False, 1)
    time.sleep(1.1)
    third = rates.take(key, is_writing=True)
    assert third is not None
    assert third.is_within


def test_without_redis_each_process_counts_by_itself() -> None:
    rates = Rates(connect("redis://127.0.0.1:1", patience=0.1), Keys())
    key, _ = make_key("ada", rate="2/minute")
    states = [rates.take(key, is_writing=True) for _ in range(3)]
    assert [state is not None and state.is_within for state in states] == [True, True, False]


def test_headers_are_those_of_the_draft(server: redis.Redis, keys: Keys) -> None:
    key, _ = make_key("ada", rate="3/minute")
    state = Rates(server, keys).take(key, is_writing=True)
    assert state is not None
    assert state.headers["RateLimit-Policy"] == '"key";q=3;w=60'
    assert re.fullmatch(r'"key";r=2;t=\d+', state.headers["RateLimit"])


@pytest.mark.parametrize("rate", ["100/minute", "1000/hour", "5 per 10 seconds"])
def test_rates_are_written_in_the_library_s_words(rate: str) -> None:
    assert make_key("ada", rate=rate)[0].rate == rate
