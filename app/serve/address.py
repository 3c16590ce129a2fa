"""Says to other processes of this machine where the service of a data folder is asked: ``serve`` writes it.

A lock that the kernel drops with its process tells a service that runs from one that was killed.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "address"


@contextmanager
def announce_address(data: Path, url: str) -> Iterator[None]:
    """Writes the API's address on this machine into the data folder for as long as the block runs."""
    data.mkdir(parents=True, exist_ok=True)
    path = data / NAME
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(url)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def read_address(data: Path) -> str | None:
    """Returns the address of the service that runs on a data folder, None where none does."""
    try:
        with (data / NAME).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # its process lives and holds it
        return (data / NAME).read_text() or None
    except OSError:
        return None
    return None
