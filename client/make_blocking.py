"""Makes the blocking half of the client of the awaited one: ``python client/make_blocking.py [FOLDER]``.

``async_client.py`` becomes ``client.py`` and ``async_job.py`` ``job.py``, by unasync and ruff; FOLDER takes
them, by default the package's own. A test compares what is there with what would be made.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import unasync

PACKAGE = Path(__file__).parent / "reelword"
NAMES = {
    "AsyncClient": "Client",
    "AsyncJob": "Job",
    "async_client": "client",
    "async_job": "job",
    "AsyncRetrying": "Retrying",
    "AsyncBaseTransport": "BaseTransport",
    "aclose": "close",
    "aconnect_sse": "connect_sse",
    "aiter_lines": "iter_lines",
    "aiter_sse": "iter_sse",
    "aread": "read",
    "asyncio": "time",
}
NOTE = '"""Made of {} by make_blocking.py; do not edit."""\n'


def make_blocking(into: Path) -> None:
    """Writes both files into a folder."""
    rule = unasync.Rule("/awaited/", "/blocking/", additional_replacements=NAMES)
    with TemporaryDirectory() as folder:
        awaited, blocking = Path(folder, "awaited"), Path(folder, "blocking")
        awaited.mkdir()
        for name in ("async_client.py", "async_job.py"):
            text = (PACKAGE / name).read_text(encoding="utf-8")
            _, _, code = text[3:].partition('"""\n')
            (awaited / name).write_text(NOTE.format(name) + code, encoding="utf-8")
        unasync.unasync_files([str(each) for each in awaited.iterdir()], [rule])
        for file in blocking.iterdir():
            made = into / file.name.removeprefix("async_")
            made.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
            _tidy(made)


def _tidy(file: Path) -> None:
    """Sorts imports and joins lines as in the rest of the repository."""
    settings = ["--quiet", "--config", str(PACKAGE.parents[1] / "pyproject.toml")]
    for command in (["check", "--fix", "--select", "I,C4,RUF,UP028", "--unsafe-fixes"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *settings, str(file)], check=False)


if __name__ == "__main__":
    make_blocking(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
