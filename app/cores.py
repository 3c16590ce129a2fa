"""Counts the cores that this process may use: those of its machine, or its container's share of them."""

import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def core_count() -> int:
    """Counts the cores that this process may use: where its time is limited to less, so many; 1 at least."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *map(int, read_cpu_shares())]))


def choose_threads(asked: int | None = None) -> int:
    """Chooses how many threads compute: as many as asked, or as OMP_NUM_THREADS says, or one a core."""
    setting = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return asked or (int(setting) if setting.isdecimal() else 0) or core_count()


def read_cpu_shares(own: Path = OWN_GROUPS, groups: Path = GROUPS) -> Iterator[float]:
    """Reads how many cores' time the control groups above this process allow, where they limit it.

    A container sees its own group as the root, or, of version 1, may be told a path that is not there.
    ``own`` has a line for each hierarchy, ``number:controllers:path`` (cgroups(7)); they are mounted in
    ``groups``.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups / "cpu" if controllers else groups
        place = root / path.lstrip("/")
        for folder in (place, *place.parents):
            if folder.is_relative_to(root):
                yield from _read_share(folder)


def _read_share(folder: Path) -> Iterator[float]:
    """Reads a group's limit, of version 2 (``cpu.max``) or 1: microseconds in each period."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    except (OSError, ValueError):
        return
    if quota != "max" and int(quota) > 0:
        yield int(quota) / int(period)
