"""Starts child processes, watches them, ends them and describes how they ended.

    ChildProcess       any command, in a process group of its own
    └── LinkedProcess  a module of ours, with a pipe and memory that both hold; it calls ``join_parent`` first

No child outlives its parent, however that ends: Linux sends it a signal when the *thread* that started it
ends (PR_SET_PDEATHSIG), so that it belongs in a lasting one. Elsewhere a linked child ends with its pipe.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
PR_SET_PDEATHSIG = 1
DISCARDED = subprocess.DEVNULL

Output: TypeAlias = int | IO[Any] | None
"""A descriptor or file that a child writes to; None is this process's own."""


class ChildProcess:
    """Runs a command until it ends, or is ended; any thread may do that.

    Ctrl-C in a terminal does not reach it: its owner ends it in order.

    Args:
        command: the program and what it is called with.
        environment: all of its variables; this process's own by default.
        folder: where it works.
        descriptors: open files that it holds too.
        output: of its standard output.
        errors: of its standard error.
        ends_by: the signal that it gets when its parent ends. None for one that calls ``join_parent``, which
            ignores Ctrl-C by itself: a process with many threads can then be copied the safe way.

    Raises:
        OSError: the command is not there, or no process can be had at the moment.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path = ROOT,
        descriptors: Sequence[int] = (),
        output: Output = None,
        errors: Output = None,
        ends_by: signal.Signals | None = signal.SIGTERM,
    ) -> None:
        self._process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=environment,
            pass_fds=tuple(descriptors),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            preexec_fn=None if ends_by is None else _binding(os.getpid(), ends_by),
            process_group=None if ends_by is None else 0,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it lives."""
        return self._process.poll()

    @property
    def is_alive(self) -> bool:
        return self.status is None

    def terminate(self) -> None:
        """Asks it to end, and does not wait."""
        self._process.terminate()

    def interrupt(self) -> None:
        """Asks it to leave what it does and go on; only for a child that takes SIGUSR1, which ends others."""
        self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """Ends it at once, whatever it does, and does not wait."""
        self._process.kill()

    def finish(self, grace: float) -> bool:
        """Waits for its end and kills it after ``grace`` seconds; False where that was needed."""
        try:
            self._process.wait(max(0.0, grace))
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
            return False
        return True

    def stop(self, grace: float) -> bool:
        """Asks it to end and sees to it that it does; False where it had to be killed."""
        self.terminate()
        return self.finish(grace)

    def explain_end(self, grace: float) -> str:
        """Describes how it ended, in a few words; it has ``grace`` seconds to end."""
        self.finish(grace)
        return describe_status(self._process.returncode)


class LinkedProcess(ChildProcess):
    """Runs ``python -m MODULE`` with a pipe to it and memory that both hold; it is killed with its parent.

    link: this end of the pipe. shared: a descriptor of the memory, of no size yet.

    Args:
        module: what ``python -m`` runs; it calls ``join_parent`` before anything else.
        arguments: what is left of its command line by ``join_parent``.
        environment, folder, output, errors: as of ``ChildProcess``.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path = ROOT,
        output: Output = None,
        errors: Output = None,
    ) -> None:
        self.link, far_end = Pipe()
        self.shared = open_shared_memory()
        descriptors = (far_end.fileno(), self.shared)
        try:
            super().__init__(
                [sys.executable, "-m", module, *map(str, (os.getpid(), *descriptors)), *arguments],
                environment=environment,
                folder=folder,
                descriptors=descriptors,
                output=output,
                errors=errors,
                ends_by=None,
            )
        except BaseException:
            self._let_go()
            raise
        finally:
            far_end.close()

    def close(self) -> None:
        """Ends it at once, waits for that, and lets go of the pipe and the memory."""
        self.kill()
        self._process.wait()
        self._let_go()

    def _let_go(self) -> None:
        self.link.close()
        os.close(self.shared)


@dataclass(frozen=True)
class ParentLink:
    """Holds what a ``LinkedProcess`` has of its parent."""

    link: Connection
    shared: int
    arguments: Sequence[str]  #: the rest of its command line


def join_parent() -> ParentLink:
    """Binds this process's life to its parent's, takes Ctrl-C for the parent's affair, and finds the pipe."""
    parent, link, shared = map(int, sys.argv[1:4])
    _binding(parent, signal.SIGKILL)()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return ParentLink(Connection(link), shared, sys.argv[4:])


def open_shared_memory() -> int:
    """Returns a descriptor of memory without a name, which is freed with its last holder."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("frames")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def describe_status(status: int) -> str:
    """Describes an exit code, or the signal whose number it is the negative of."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {-status}, {signal.Signals(-status).name}"
    except ValueError:  # one that Python has no name for
        return f"signal {-status}"


def _binding(parent: int, by: signal.Signals) -> Callable[[], None]:
    """Makes a function that has the kernel send the process it is called in ``by`` when ``parent`` ends.

    The function loads and locks nothing, so that it may be called between fork and exec; exec keeps it set.
    """
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, by, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel was asked
            os._exit(1)

    return bind
