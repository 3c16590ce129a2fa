"""How many jobs the index has in each state."""

from __future__ import annotations

from typing import Any

from app.jobs.job import STATES, State
from app.jobs.job_store import Jobs


def count_by_state(jobs: Jobs) -> dict[State, int]:
    sizes: Any = {state: jobs.server.zcard(f"{jobs.keys.index}:state:{state}") for state in STATES}
    return dict(sizes)
