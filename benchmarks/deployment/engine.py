"""Runs Docker's commands: with the daemon of this machine, or, where none answers, with one started by hand.

The one by hand needs root and Debian's packages: it is dockerd from Debian in a folder, in a mount namespace
of its own. Ending it takes away its bridges and its rules of the packet filter.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "iptables", "iproute2", "procps")
TABLES = ("filter", "nat", "raw")  #: of the packet filter, in which dockerd writes
DAEMON_SECONDS = 60.0
#: Makes the folder the root of what follows, with the devices and the kernel's files of this machine.
ENTER = """
set -e
mount --bind "$ROOT" "$ROOT"; cd "$ROOT"; mkdir -p "./$FOLDER" old run
mount --rbind /dev dev; mount -t proc proc proc; mount --rbind /sys sys; mount -t tmpfs tmpfs run
mount --bind "$FOLDER" "./$FOLDER"; pivot_root . old; cd /; umount -l /old
exec env -i PATH="$PATHS" HOME=/root dockerd --data-root "$FOLDER/docker" --exec-root /run/docker \\
    --pidfile /run/dockerd.pid --host unix:///run/docker.sock
"""


class CommandFailed(Exception):
    """A command ended with an error; the message has its last lines."""


@dataclass(frozen=True)
class Engine:
    """Runs commands where Docker is.

    Attributes:
        checkout: folder that commands run in.
        prefix: words before each command, which bring it to the daemon.
        variables: of the environment that commands get.
    """

    checkout: Path
    prefix: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str, stdin: bytes | None = None, log: Path | None = None) -> str:
        """Runs a command and returns what it printed.

        Args:
            command: program and arguments.
            stdin: what it reads.
            log: file that gets its output as it comes, instead of the caller.

        Raises:
            CommandFailed: it ended with an error.
        """
        words = [*self.prefix, *command]
        environment = {**os.environ, **self.variables}
        if log is not None:
            with log.open("ab") as out:
                ended = subprocess.run(
                    words, cwd=self.checkout, env=environment, input=stdin, stdout=out, stderr=out
                )
            output = log.read_text(errors="replace")
        else:
            ended = subprocess.run(
                words, cwd=self.checkout, env=environment, input=stdin, capture_output=True
            )
            output = (ended.stdout + (ended.stderr if ended.returncode else b"")).decode(errors="replace")
        if ended.returncode:
            raise CommandFailed(f"{' '.join(command)[:200]}: {output[-1500:]}")
        return output.strip()

    def docker(self, *arguments: str, stdin: bytes | None = None, log: Path | None = None) -> str:
        return self.run("docker", *arguments, stdin=stdin, log=log)

    def compose(self, *arguments: str, log: Path | None = None) -> str:
        return self.docker("compose", *arguments, log=log)

    def answers(self) -> bool:
        """Says whether a daemon is there, and docker compose."""
        try:
            self.docker("info")
            self.compose("version")
        except (CommandFailed, OSError):
            return False
        return True


class OwnDaemon:
    """Starts a Docker daemon in a folder and ends it.

    Args:
        folder: where its root (``host``) is made and its images are kept.
        niceness: of the daemon and all that it runs.
    """

    def __init__(self, folder: Path, niceness: int) -> None:
        self._folder, self._niceness = folder, niceness
        self._root, self._rules = folder / "host", folder / "rules"
        self._process: subprocess.Popen[bytes] | None = None
        self._bridges: set[str] = set()

    def start(self, variables: Mapping[str, str]) -> Engine:
        """Starts it and returns how its commands are run. Raises CommandFailed where it does not come up."""
        self._bridges = self._list_bridges()
        self._keep_rules()
        with (self._folder / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER],
                env={"ROOT": str(self._root), "FOLDER": str(self._folder), "PATHS": PATHS, "PATH": PATHS},
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                preexec_fn=lambda: os.nice(self._niceness),
            )  # fmt: skip
        engine = Engine(self._folder / "checkout", self._prefix(variables))
        until = time.monotonic() + DAEMON_SECONDS
        while not engine.answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise CommandFailed(
                    f"dockerd does not start: {(self._folder / 'dockerd.log').read_text()[-1500:]}"
                )
            time.sleep(0.5)
        return engine

    def stop(self) -> None:
        """Ends it; its bridges are deleted, and rules and forwarding are as before."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        for bridge in self._list_bridges() - self._bridges:
            self._in_root("ip", "link", "delete", bridge)
        for table in TABLES:
            self._in_root("iptables-restore", "--table", table, stdin=(self._rules / table).read_bytes())
        Path("/proc/sys/net/ipv4/ip_forward").write_text((self._rules / "forward").read_text())

    def _prefix(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        assert self._process is not None
        enter = ("nsenter", "--target", str(self._process.pid), "--mount", "--root", "--wd")
        environment = [f"{name}={value}" for name, value in variables.items()]
        place = str(self._folder / "checkout")
        return (
            *enter, "env", "-i", f"PATH={PATHS}", "HOME=/root", "TERM=dumb",
            "DOCKER_HOST=unix:///run/docker.sock", *environment, "sh", "-c", 'cd "$0" && exec "$@"', place,
        )  # fmt: skip

    def _keep_rules(self) -> None:
        self._rules.mkdir(exist_ok=True)
        for table in TABLES:
            (self._rules / table).write_bytes(self._in_root("iptables-save", "--table", table))
        shutil.copyfile("/proc/sys/net/ipv4/ip_forward", self._rules / "forward")

    def _in_root(self, *command: str, stdin: bytes | None = None) -> bytes:
        return subprocess.run(["chroot", self._root, *command], input=stdin, capture_output=True).stdout

    def _list_bridges(self) -> set[str]:
        return {link.parent.name for link in Path("/sys/class/net").glob("*/bridge")}
