"""Follows a server's clock no faster than time passes, so that one that is set forward expires nothing."""

import math
import time
from dataclasses import dataclass

#: Counts seconds also while the machine sleeps, which is time that has passed.
LIVED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(eq=False)
class SteadyClock:
    """Tells the earliest that it can be on a server by what this process has seen of its clock.

    A step forward counts for nothing while this process lives, one back from when it is seen: what is kept by
    this clock stays too long, never too short. A new process takes the server's clock as it is.
    """

    ahead: float = math.inf  #: seconds that the server's clock was ahead of this machine's, at the least

    def read(self, server_seconds: float) -> float:
        """Returns seconds since 1970, given those that the server's clock has now."""
        lived = time.clock_gettime(LIVED)
        self.ahead = min(self.ahead, server_seconds - lived)
        return lived + self.ahead
