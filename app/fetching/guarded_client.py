"""Makes the client that asks foreign addresses: without proxies, and checked at the moment of connecting."""

from __future__ import annotations

import anyio
import anyio.to_thread
import httpx
from httpx_secure import httpx_ssrf_protection

from app import __version__
from app.fetching.addresses import AllowedHosts, IpAddress

CONNECT_SECONDS = 10.0
AGENT = f"Reelword/{__version__}"


def guarded_client(hosts: AllowedHosts, stall_seconds: float) -> httpx.AsyncClient:
    """Makes a client that connects only to hosts that are allowed, and follows no redirect by itself.

    It raises httpx_secure's SSRFProtectionError, an httpx.RequestError, where a host is refused. A server may
    send nothing for ``stall_seconds``.
    """
    client = httpx.AsyncClient(
        timeout=httpx.Timeout(stall_seconds, connect=CONNECT_SECONDS),
        headers={"User-Agent": AGENT},
        trust_env=False,  # a proxy would connect in our place, to whatever it likes
    )

    def is_allowed(host: str, address: IpAddress, _port: int) -> bool:
        return hosts.allows(host, address)

    return httpx_ssrf_protection(client, check_globally_reachable=False, custom_validator=is_allowed)


async def find_refused(url: httpx.URL, hosts: AllowedHosts) -> IpAddress | None:
    """Finds, before anything is connected to, an address of the host that is refused; None for none.

    The client alone would open a connection to learn the address, and reveal by its error whether a server
    listens there. Raises OSError where the host does not resolve, TimeoutError where it takes too long.
    """
    port = url.port or (443 if url.scheme == "https" else 80)
    with anyio.fail_after(CONNECT_SECONDS):
        return await anyio.to_thread.run_sync(hosts.refused, url.host, port, abandon_on_cancel=True)
