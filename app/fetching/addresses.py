"""Decides which addresses may be asked: http and https, and no host of the operator's own network.

Names are checked by what they resolve to, and what was checked is connected to
(app/fetching/guarded_client.py): a name may resolve to something else by then.
"""

import socket
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

import httpx

from app.setting_types import is_network

IpAddress: TypeAlias = IPv4Address | IPv6Address

SCHEMES = ("http", "https")
LONGEST = 2048  #: characters of an address
NAT64 = IPv6Network("64:ff9b::/96")  #: carries an IPv4 address in its last 32 bits
GLOBAL_IPV6 = IPv6Network("2000::/3")  #: all that is given out; what else routes is a network's own affair
#: Not public, whatever the standard library of this Python has: Azure's agent, protocol assignments (Oracle's
#: metadata among them), translation prefixes of a network's own, and documentation.
INSIDE = [ip_network(each) for each in ("168.63.129.16", "192.0.0.0/24", "64:ff9b:1::/48", "3fff::/20")]


def read_web_address(text: str) -> httpx.URL:
    """Reads an http or https address. Raises ValueError with a sentence on what is wrong with it."""
    if len(text) > LONGEST:
        raise ValueError(f"an address has at most {LONGEST} characters")
    if not text.isprintable() or " " in text:
        raise ValueError("an address has no spaces or control characters")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"it is no address ({error})") from error
    if url.scheme not in SCHEMES or not url.host:
        raise ValueError("an address begins with http:// or https:// and a host")
    if url.userinfo:
        raise ValueError("an address names no user and no password")
    if url.port is not None and not 0 < url.port < 65536:
        raise ValueError("a port is a number from 1 to 65535")
    return url


def is_public(address: IpAddress) -> bool:
    """Returns whether an address is public, and those that it carries within are."""
    if isinstance(address, IPv6Address):
        carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in NAT64:
            carried.append(IPv4Address(address.packed[-4:]))
        if address.is_site_local or not all(is_public(each) for each in carried if each is not None):
            return False
        if address.ipv4_mapped is None and address not in NAT64 and address not in GLOBAL_IPV6:
            return False
        if address.ipv4_mapped is not None:
            return True
    is_inside = any(address in network for network in INSIDE)
    return address.is_global and not address.is_multicast and not is_inside


class AllowedHosts:
    """Decides which hosts may be connected to: public ones, and those (names, networks) that are named."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._networks = [ip_network(name, strict=False) for name in names if is_network(name)]
        self._names = {_plain(name) for name in names if not is_network(name)}

    def allows(self, host: str, address: IpAddress) -> bool:
        """Returns whether a host may be connected to at an address that it resolves to."""
        is_named = _plain(host) in self._names or any(address in network for network in self._networks)
        return is_named or is_public(address)

    def refuses_literally(self, url: str) -> bool:
        """Returns whether the host of an address is a number that may not be asked; no name is resolved."""
        host = httpx.URL(url).host
        try:
            return not self.allows(host, ip_address(host))
        except ValueError:
            return _plain(host) == "localhost" and not self.allows(host, ip_address("127.0.0.1"))

    def resolve(self, host: str, port: int) -> Sequence[IpAddress]:
        """Lists the addresses of a host, numbers in any spelling included.

        Raises OSError where it does not resolve, or one of its addresses is not allowed.
        """
        addresses = resolve(host, port)
        if refused := next((each for each in addresses if not self.allows(host, each)), None):
            raise PermissionError(f"{host} resolves to {refused}")
        return addresses


def resolve(host: str, port: int) -> Sequence[IpAddress]:
    """Lists the addresses of a host. Raises OSError."""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that no name can have
        raise OSError(f"{host} is no name of a host") from error
    return [ip_address(str(place[0])) for *_, place in places]


def _plain(host: str) -> str:
    return host.lower().rstrip(".")
