"""Keeps the embedded Redis going on a disk that fills up.

A server that flushes each command (``appendfsync always``) ends at the first one that it cannot write; one
that flushes every second refuses writes until it can again, and answers reads. So where room is short it is
told to flush every second. A ballast file beside its own is room that nothing else can take: it is given up
where the disk is full, and made again where there is room.
"""

import os
import shutil
from pathlib import Path
from typing import Literal

import redis
import structlog

from app.errors import QueueUnavailable
from app.jobs.redis_client import connect

MIB = 2**20
BALLAST_BYTES = 16 * MIB
LOW_BYTES = 48 * MIB  #: with less than this, filling the disk may take less time than noticing it
FULL_BYTES = 1 * MIB
CONFIG_SECONDS = 1.0  #: longest wait for a server that is told how to flush

Flush = Literal["always", "everysec"]

log = structlog.get_logger(__name__)


class RedisRoom:
    """Keeps room for the append-only file in ``folder``: by its ballast, and by how the server flushes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ballast = folder / "ballast"
        self.flush: Flush = "always"

    def prepare(self) -> None:
        """Makes room before a start, where there is none, and sets ``flush`` to what the server shall do."""
        free = self._free()
        self.flush = "everysec" if free < LOW_BYTES else "always"
        self._keep_ballast(free)

    def tend(self, socket: Path) -> None:
        """Adapts flushing and ballast to the disk, now and then while the server runs at ``socket``."""
        free = self._free()
        self._keep_ballast(free)
        if free < LOW_BYTES and self.flush == "always":
            self._tell(socket, "everysec", free)
        elif free > 2 * LOW_BYTES and self.flush == "everysec":
            self._tell(socket, "always", free)

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _keep_ballast(self, free: int) -> None:
        if free < FULL_BYTES and self.ballast.exists():
            self.ballast.unlink(missing_ok=True)
            log.warning("disk is full: redis gets its ballast", bytes=BALLAST_BYTES)
        elif free > 2 * LOW_BYTES + BALLAST_BYTES and not self.ballast.exists():
            self._make_ballast()

    def _make_ballast(self) -> None:
        """Writes a file of blocks, not a sparse one, which would keep no room."""
        try:
            with self.ballast.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)
                else:
                    file.write(bytes(BALLAST_BYTES))
        except OSError as error:
            self.ballast.unlink(missing_ok=True)
            log.warning("no ballast for redis", reason=str(error))

    def _tell(self, socket: Path, flush: Flush, free: int) -> None:
        try:
            with connect(f"unix://{socket}", 0.0, CONFIG_SECONDS) as client:
                client.config_set("appendfsync", flush)
        except (QueueUnavailable, redis.RedisError) as error:  # frozen or ending: told again at the next look
            log.warning("redis was not told how to flush", flush=flush, reason=str(error))
            return
        self.flush = flush
        log.warning("redis flushes otherwise", flush=flush, free_bytes=free)
