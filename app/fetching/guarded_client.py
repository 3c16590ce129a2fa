"""Makes the client that asks foreign addresses: without proxies, and connected to what was checked.

A name is resolved once, all that it resolves to is checked, and one of those addresses is connected to: what
the name resolves to a moment later (DNS rebinding) is never looked at.
"""

from collections.abc import Sequence

import anyio
import anyio.to_thread
import httpx
import structlog

from app import __version__
from app.fetching.addresses import AllowedHosts, IpAddress

CONNECT_SECONDS = 10.0
AGENT = f"Reelword/{__version__}"
log = structlog.get_logger(__name__)


class HostRefused(httpx.RequestError):
    """Is raised alike for a host that is not there and for one that may not be connected to.

    What names resolve to in the operator's own network is none of a key's business: the log has it.
    """


class CheckedTransport(httpx.AsyncBaseTransport):
    """Sends requests to addresses that are allowed, each over a connection of its own: one that was made to a
    host's address has that host's certificate, and another host may have the same address.
    """

    def __init__(self, hosts: AllowedHosts) -> None:
        self._hosts = hosts
        self._inner = httpx.AsyncHTTPTransport(
            trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Tries the host's addresses in their order until one takes the connection. Raises HostRefused."""
        *others, last = await self._resolve(request)
        for address in others:
            try:
                return await self._inner.handle_async_request(_sent_to(address, request))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._inner.handle_async_request(_sent_to(last, request))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _resolve(self, request: httpx.Request) -> Sequence[IpAddress]:
        url, resolve = request.url, self._hosts.resolve
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                return await anyio.to_thread.run_sync(resolve, url.host, port, abandon_on_cancel=True)
        except OSError as error:  # a time-out is one of them
            log.info("host is not asked", host=url.host, why=str(error) or type(error).__name__)
            raise HostRefused(f"{url.host} is not asked", request=request) from error


def _sent_to(address: IpAddress, request: httpx.Request) -> httpx.Request:
    """Aims a request at an address; its Host, and the name that its certificate is to have, stay."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=str(address)),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


def guarded_client(hosts: AllowedHosts, stall_seconds: float) -> httpx.AsyncClient:
    """Makes a client that connects only to hosts that are allowed, and follows no redirect by itself.

    It raises HostRefused, an httpx.RequestError, for others. A server may send nothing for ``stall_seconds``.
    """
    return httpx.AsyncClient(
        timeout=httpx.Timeout(stall_seconds, connect=CONNECT_SECONDS),
        headers={"User-Agent": AGENT},
        transport=CheckedTransport(hosts),
        trust_env=False,  # a proxy would connect in our place, to whatever it likes
    )
