"""Counts requests per key in Redis, so that several API processes share one count; the library is limits.

While Redis is away each process counts by itself: a rate is then as many times too high as there are
processes, and no request is refused because the counter is away.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import limits
import redis
import structlog
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import MovingWindowRateLimiter

from app.access.keys import ApiKey
from app.jobs.job import Keys

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RateState:
    """Holds what a key has used of its rate, this request included."""

    amount: int  #: requests that it has in ``window`` seconds
    window: int  #: in seconds
    remaining: int  #: requests that it has left
    reset: int  #: seconds until it has more
    is_within: bool  #: the request may be answered

    @property
    def headers(self) -> dict[str, str]:
        """Returns the headers of the HTTP working group's draft."""
        return {
            "RateLimit-Policy": f'"key";q={self.amount};w={self.window}',
            "RateLimit": f'"key";r={self.remaining};t={self.reset}',
        }


class Rates:
    """Counts requests. ``take`` blocks for as long as Redis takes."""

    def __init__(self, server: redis.Redis, names: Keys) -> None:
        pool = server.connection_pool
        # the library's client tries nothing again: a waiting request has been promised an answer
        storage = RedisStorage("redis://", connection_pool=pool, key_prefix=names.rates)
        self._shared, self._own = MovingWindowRateLimiter(storage), MovingWindowRateLimiter(MemoryStorage())

    def take(self, key: ApiKey, *, is_writing: bool) -> RateState | None:
        """Counts a request; None where the key has no rate for its kind."""
        rate = key.rate_of(is_writing=is_writing)
        if rate is None:
            return None
        item, kind = limits.parse(rate), "write" if is_writing else "read"
        try:
            return _take(self._shared, item, key.id, kind)
        except redis.RedisError as error:
            log.warning("rates are counted here alone: redis is away", reason=str(error))
            return _take(self._own, item, key.id, kind)


def _take(
    limiter: MovingWindowRateLimiter,
    item: limits.RateLimitItem,
    key_id: str,
    kind: str,
    clock: Callable[[], float] = time.time,
) -> RateState:
    is_within = limiter.hit(item, key_id, kind)
    stats = limiter.get_window_stats(item, key_id, kind)
    reset = max(1, math.ceil(stats.reset_time - clock()))
    return RateState(item.amount, item.get_expiry(), max(0, stats.remaining), reset, is_within)
