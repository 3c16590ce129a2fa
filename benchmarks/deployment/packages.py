"""Serves folders of packages that this machine's pip reads beside its registry to the builds of images.

In a build those folders are not there: they are served on the bridge's address, which containers reach.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

PORT = 18002
PLACES = ("index-url", "extra-index-url", "find-links")  #: pip's settings that name folders or addresses
PLAIN = (
    "cert",
    "timeout",
    "default-timeout",
    "trusted-host",
    "proxy",
)  #: those that hold in an image too
WHEEL = re.compile(r"(?P<name>torch|torchvision)-(?P<version>[\d.]+)\+?[\w.]*-cp")


class PackageServer:
    """Serves what pip's configuration names on this machine's disk, and wheels of torch.

    Args:
        folder: gets a link to each folder that is served.
        torch: folder with a wheel of torch for processors; None where it comes from where it always does.
    """

    def __init__(self, folder: Path, torch: Path | None) -> None:
        self._folder, self._torch = folder, torch
        self._url = ""
        folder.mkdir(exist_ok=True)

    @contextmanager
    def serve(self, address: str) -> Iterator[None]:
        """Serves on an address of this machine, on a port that stays: a stand-in that was kept names it."""
        handler = partial(_QuietHandler, directory=str(self._folder))
        with ThreadingHTTPServer((address, PORT), handler) as server:
            self._url = f"http://{address}:{PORT}"
            thread = Thread(target=server.serve_forever, daemon=True)
            thread.start()
            yield
            server.shutdown()

    @property
    def torch_index(self) -> str:
        """The address of an index with torch's wheels; empty where none was given."""
        if self._torch is None:
            return ""
        for wheel in self._torch.glob("torch*.whl"):
            if matched := WHEEL.match(wheel.name):
                page = self._folder / "torch" / matched["name"]
                page.mkdir(parents=True, exist_ok=True)
                if not (page / wheel.name).exists():
                    (page / wheel.name).symlink_to(wheel.absolute())
        return f"{self._url}/torch"

    @property
    def pip_settings(self) -> list[str]:
        """Lines of a pip.conf with which a build reads what pip reads here."""
        settings = {name: value for name, value in read_pip_settings().items() if name in PLACES + PLAIN}
        lines = [f"{name} = {self._reachable(value)}" for name, value in settings.items()]
        if "trusted-host" not in settings:
            lines.append(f"trusted-host = {self._url.removeprefix('http://').partition(':')[0]}")
        return lines

    def _reachable(self, value: str) -> str:
        """Replaces folders by addresses at which they are served; an index's files lie beside its pages."""
        return " ".join(self._address_of(word) for word in value.split())

    def _address_of(self, word: str) -> str:
        path = Path(word.removeprefix("file://"))
        if not path.is_absolute() or not path.is_dir():
            return word
        served = path.parent if path.name == "simple" else path
        link = self._folder / served.name
        if not link.exists():
            link.symlink_to(served)
        return f"{self._url}/{served.name}" + ("/simple" if path.name == "simple" else "")


class _QuietHandler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Writes nothing: the builds' logs say what they fetched."""


def read_pip_settings() -> dict[str, str]:
    """Reads pip's settings, variables of the environment before files."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    ).stdout
    settings: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    return settings


def pin_torch(constraints: Path, wheels: Path) -> None:
    """Pins torch to the versions whose wheels are there, and torchvision where it is there too."""
    text = constraints.read_text()
    for wheel in wheels.glob("torch*.whl"):
        if matched := WHEEL.match(wheel.name):
            text = re.sub(
                rf"^{matched['name']}==.*$", f"{matched['name']}=={matched['version']}", text, flags=re.M
            )
    constraints.write_text(text)
