"""Finds the port that the API listens on, and says by which address it is reached.

A module on its own: ``api`` starts also where there is no ``extractors/``, which the supervisor needs.
"""

from __future__ import annotations

import socket

from app.errors import PortInUse

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def free_port(host: str, port: int) -> int:
    """Checks that the port can be listened on; finds a free one for 0. Raises PortInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUse(f"Nothing can listen on {host}:{port} ({error.strerror}).") from error
        return int(probe.getsockname()[1])


def address_of(host: str, port: int) -> str:
    """Says where a browser on this machine finds what listens on ``host``."""
    reachable = ANY_ADDRESS.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
