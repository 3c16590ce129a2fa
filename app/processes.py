"""Children that die with their parent, however it dies (Linux's PR_SET_PDEATHSIG; elsewhere a no-op)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Called in a child: the kernel sends it ``by`` when the thread that started it ends.

    parent: pid of the process that should be the parent; where it is gone already, the child exits.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def dies_with_me(by: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """For ``preexec_fn`` of subprocess.Popen; the setting outlives exec."""
    parent = os.getpid()
    return lambda: die_with_parent(parent, by)
