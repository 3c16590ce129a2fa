"""Keys in a real Redis: what is kept of them, whom they let in, and how soon a process notices a change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import redis
from pydantic import ValidationError

from app.access import key_ring
from app.access.key_ring import KeyRing
from app.access.keys import ApiKey, KeyStore, make_key, read_token
from app.errors import QueueUnavailable
from app.jobs.job import JobLimits, Keys


@pytest.fixture
def store(server: redis.Redis, keys: Keys) -> KeyStore:
    return KeyStore(server, keys)


def _add(store: KeyStore, name: str = "ada", **terms: Any) -> tuple[ApiKey, str]:
    key, token = make_key(name, **terms)
    store.add(key)
    return key, token


# ---- what is kept ----


def test_redis_holds_no_secret(store: KeyStore, server: redis.Redis, keys: Keys) -> None:
    key, token = _add(store)
    secret = token.rpartition("_")[2]
    cookie, _ = store.open_session(key)
    values = [str(server.hgetall(keys.api_keys))]
    values += [str((name, server.get(name))) for name in server.keys(f"{keys.namespace}:session:*")]
    assert len(values) == 2
    assert not any(secret in text or cookie in text for text in values)
    assert store.key_of_session(cookie) == key.id


def test_no_two_keys_are_alike() -> None:
    tokens = {make_key("ada")[1] for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(token) == len("rw_") + 12 + 1 + 64 for token in tokens)


@pytest.mark.parametrize(
    "text", ["", "rw_", "rw_1_2", "rw_" + "0" * 12 + "_" + "g" * 64, "sk_" + "0" * 12 + "_" + "0" * 64]
)
def test_what_is_no_token_is_none(text: str) -> None:
    assert read_token(text) is None


def test_a_secret_proves_its_own_key_alone() -> None:
    (one, token), (other, _) = make_key("one"), make_key("other")
    secret = token.rpartition("_")[2]
    assert one.is_proved_by(secret)
    assert not other.is_proved_by(secret)
    assert not one.is_proved_by(secret[:-1] + ("0" if secret[-1] != "0" else "1"))


@pytest.mark.parametrize(
    "terms",
    [
        {"scopes": ("root",)},
        {"rate": "sixty"},
        {"read_rate": "1/fortnight"},
        {"concurrent": 0},
        {"max_pixels": -1},
        {"name": ""},
    ],
)
def test_terms_that_mean_nothing_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_key(**{"name": "ada", **terms})


def test_a_key_that_cannot_be_read_opens_nothing_and_harms_no_other(
    store: KeyStore, server: redis.Redis, keys: Keys
) -> None:
    key, _ = _add(store)
    server.hset(keys.api_keys, "damaged", "{")
    server.hset(
        keys.api_keys, "later", key.model_copy(update={"id": "later"}).model_dump_json()[:-1] + ',"new":1}'
    )
    assert set(store.all()) == {key.id, "later"}


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [(("read",), {"read"}), (("read", "write"), {"read", "write"}), (("admin",), {"read", "write", "admin"})],
)
def test_scopes(scopes: tuple[str, ...], allowed: set[str]) -> None:
    key, _ = make_key("ada", scopes=scopes)
    assert {scope for scope in ("read", "write", "admin") if key.allows(scope)} == allowed


def test_its_jobs_carry_what_a_worker_enforces() -> None:
    assert make_key("ada", rate="1/minute")[0].job_limits is None
    limited, _ = make_key("ada", max_seconds=30, max_pixels=100, concurrent=2)
    assert limited.job_limits == JobLimits(seconds=30, pixels=100, concurrent=2)


def test_a_session_ends_with_its_key_at_the_latest(store: KeyStore, server: redis.Redis, keys: Keys) -> None:
    key, _ = _add(store, expires_at=time.time() + 100)
    _, seconds = store.open_session(key)
    (name,) = server.keys(f"{keys.namespace}:session:*")
    assert 0 < server.ttl(name) <= seconds <= 100


# ---- finding them ----


class Reads:
    """A store that counts how often it is read, and may be away."""

    def __init__(self, store: KeyStore) -> None:
        self.count, self.is_away = 0, False
        self._all = store.all
        store.all = self  # type: ignore[method-assign]

    def __call__(self) -> dict[str, ApiKey]:
        self.count += 1
        if self.is_away:
            raise QueueUnavailable("Redis is away.")
        return self._all()


def test_redis_is_not_asked_for_each_request(store: KeyStore) -> None:
    key, token = _add(store)
    reads = Reads(store)

    async def ask() -> None:
        ring = KeyRing(store)
        answers = [await ring.find(token) for _ in range(20)]
        assert answers == [key] * 20
        assert reads.count == 1
        unknown = make_key("eve")[1]
        async with anyio.create_task_group() as asking:
            for _ in range(50):
                asking.start_soon(ring.find, unknown)
        assert await ring.find(unknown) is None
        assert reads.count <= 3

    anyio.run(ask)


def test_a_new_key_opens_at_once_and_a_revoked_one_soon_nothing(
    store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "FRESH_SECONDS", 0.3)

    async def ask() -> None:
        ring = KeyRing(store)
        assert await ring.count() == 0
        key, token = _add(store)
        cookie, _ = store.open_session(key)
        assert await ring.find(token) == key
        assert await ring.find_by_session(cookie) == key
        store.revoke(key.id)
        await anyio.sleep(0.35)
        assert await ring.find(token) is None
        assert await ring.find_by_session(cookie) is None

    anyio.run(ask)


def test_an_expired_key_opens_nothing(store: KeyStore) -> None:
    _, token = _add(store, expires_at=time.time() - 1)
    assert anyio.run(KeyRing(store).find, token) is None


def test_while_redis_is_away_known_keys_go_on(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key, token = _add(store)
    reads = Reads(store)
    monkeypatch.setattr(key_ring, "FRESH_SECONDS", 0.0)

    async def ask() -> None:
        ring = KeyRing(store)
        reads.is_away = True
        with pytest.raises(QueueUnavailable):
            await ring.find(token)
        reads.is_away = False
        assert await ring.find(token) == key
        reads.is_away = True
        assert await ring.find(token) == key

    anyio.run(ask)


def test_a_closed_session_opens_nothing_at_once(store: KeyStore) -> None:
    key, _ = _add(store)
    cookie, _ = store.open_session(key)

    async def ask(found: Callable[[str], Any]) -> None:
        assert await found(cookie) == key
        await ring.close_session(cookie)
        assert await found(cookie) is None

    ring = KeyRing(store)
    anyio.run(ask, ring.find_by_session)
