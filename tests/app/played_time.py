"""Time that passes at once, as the scripts of the queue see it (app/jobs/lua/common.lua)."""

from __future__ import annotations

from collections.abc import Callable

import redis

from app.jobs.job import Keys
from app.jobs.redis_client import LuaScript

STEP_MS = 1000  #: after longer ones the scripts take the server for one that was frozen
TICK = (LuaScript.FOLDER / "common.lua").read_text() + "return tick(1000).ms"


def pass_time(
    server: redis.Redis, keys: Keys, seconds: float, each_second: Callable[[], object] = lambda: None
) -> None:
    """Lets seconds go by for leases and advertisements, with a call for each: who lives asks that often."""
    left = round(seconds * 1000)
    while left > 0:
        step = min(left, STEP_MS)
        server.hincrby(keys.clock, "wall", -step)  # the last time that the scripts saw lies further back
        server.eval(TICK, 2, keys.clock, keys.dead)
        each_second()
        left -= step
