"""How many jobs the index has in each state."""

from __future__ import annotations

from app.jobs.job import STATES, State
from app.jobs.job_store import Jobs


def count_by_state(jobs: Jobs) -> dict[State, int]:
    """Counts jobs; none where something else lies in the index's place."""
    with jobs.server.pipeline(transaction=True) as pipe:
        for state in STATES:
            pipe.zcard(f"{jobs.keys.index}:state:{state}")
        sizes = pipe.execute(raise_on_error=False)
    return {state: size if isinstance(size, int) else 0 for state, size in zip(STATES, sizes, strict=True)}
