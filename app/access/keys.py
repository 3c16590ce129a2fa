"""Makes API keys and keeps them in Redis, without the secret that proves them.

    rw_<id>_<secret>     id: 12 hexadecimal digits, public     secret: 256 random bits

Redis has a hash of keys by their ids, and an entry that lapses for each page that is signed in.
Both hold SHA-256 digests, with which no request can be made; what signs a key's webhooks is kept as it is.
A slow hash is for passwords, which can be guessed; 256 random bits cannot.
"""

import hashlib
import re
import secrets
import time
from typing import Any, Literal

import limits
import redis
import structlog
from pydantic import BaseModel, Field, ValidationError, field_validator

from app.jobs.job import JobLimits, Keys
from app.setting_types import Secret

Scope = Literal["read", "write", "admin"]

TOKEN = re.compile(r"rw_([0-9a-f]{12})_([0-9a-f]{64})")
MOST_SESSIONS = 20  #: of one key; the first that was signed in on ends with the next
SESSION_SECONDS = 7 * 86400  #: after which a page has to be signed in on again

log = structlog.get_logger(__name__)


class ApiKey(BaseModel, frozen=True, extra="ignore"):
    """Holds what is known of a key: whom it is for, what it may do, how much."""

    id: str
    name: str = Field(min_length=1, max_length=100, description="Whom it is for, in lists and in logs.")
    sha256: str = Field(description="Of its secret.")
    scopes: tuple[Scope, ...] = ("read", "write")
    created_at: float
    expires_at: float | None = Field(None, description="Seconds since 1970.")
    rate: str | None = Field(None, description="Writing requests, as 60/minute.")
    read_rate: str | None = Field(None, description="Reading requests, as 1000/minute.")
    concurrent: int | None = Field(None, gt=0, description="Jobs that are not over yet.")
    max_upload_bytes: int | None = Field(None, gt=0)
    max_seconds: float | None = Field(None, gt=0, description="How long a video may last.")
    max_pixels: int | None = Field(None, gt=0, description="Of one frame.")
    webhook_secret: Secret | None = Field(None, repr=False, description="Signs its jobs' webhooks alone.")
    high: bool = Field(True, description="Jobs may be sent with priority=high; keys of before could.")

    @field_validator("rate", "read_rate")
    @classmethod
    def _is_a_rate(cls, rate: str | None) -> str | None:
        if rate is not None:
            try:
                limits.parse(rate)
            except ValueError as error:
                raise ValueError("give a rate as 60/minute or 1000/hour") from error
        return rate

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def rate_of(self, *, is_writing: bool) -> str | None:
        return self.rate if is_writing else self.read_rate

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    @property
    def job_limits(self) -> JobLimits | None:
        """Collects what its jobs carry to where it is enforced; None where nothing is limited."""
        limits = JobLimits(
            seconds=self.max_seconds,
            pixels=self.max_pixels,
            concurrent=self.concurrent,
            upload_bytes=self.max_upload_bytes,
        )
        return None if limits == JobLimits() else limits

    def is_proved_by(self, secret: str) -> bool:
        return secrets.compare_digest(self.sha256, digest_of(secret))


def make_key(name: str, **terms: object) -> tuple[ApiKey, str]:
    """Makes a key for ``name``, and the token that it is used by, which cannot be made again.

    ``terms`` are other members of ApiKey. Raises ValidationError for one that is not accepted.
    """
    key_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    identity = {"id": key_id, "name": name, "sha256": digest_of(secret), "created_at": time.time()}
    return ApiKey.model_validate({**identity, **terms}), f"rw_{key_id}_{secret}"


def read_token(token: str) -> tuple[str, str] | None:
    """Splits a token into id and secret; None where it is none."""
    match = TOKEN.fullmatch(token.strip())
    return None if match is None else (match[1], match[2])


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class KeyStore:
    """Reads and writes keys and sessions. Its methods block, and raise QueueUnavailable."""

    def __init__(self, server: redis.Redis, names: Keys) -> None:
        self._server, self._names = server, names

    def add(self, key: ApiKey) -> None:
        self._server.hset(self._names.api_keys, key.id, key.model_dump_json(exclude_none=True))

    def all(self) -> dict[str, ApiKey]:
        """Reads every key, by its id, oldest first. One that cannot be read opens nothing, and is logged."""
        records: Any = self._server.hgetall(self._names.api_keys)
        keys = {}
        for key_id, record in records.items():
            try:
                keys[key_id] = ApiKey.model_validate_json(record)
            except ValidationError as error:
                log.error("an API key cannot be read", key=key_id, error=str(error))
        return dict(sorted(keys.items(), key=lambda item: item[1].created_at))

    def revoke(self, key_id: str) -> None:
        self._server.hdel(self._names.api_keys, key_id)

    def open_session(self, key: ApiKey) -> tuple[str, int]:
        """Signs a page in; returns what its cookie holds, and for how many seconds."""
        secret, seconds = secrets.token_hex(32), SESSION_SECONDS
        if key.expires_at is not None:
            seconds = max(1, min(seconds, int(key.expires_at - time.time())))
        session, opened = self._names.session(digest_of(secret)), self._names.sessions_of(key.id)
        self._server.set(session, key.id, ex=seconds)
        self._server.lpush(opened, session)
        self._server.expire(opened, SESSION_SECONDS)
        while int(self._server.llen(opened)) > MOST_SESSIONS:
            self._server.delete(str(self._server.rpop(opened)))
        return secret, seconds

    def key_of_session(self, secret: str) -> str | None:
        """Finds the id of the key that a page was signed in by."""
        key_id: Any = self._server.get(self._names.session(digest_of(secret)))
        return None if key_id is None else str(key_id)

    def close_session(self, secret: str) -> None:
        self._server.delete(self._names.session(digest_of(secret)))
