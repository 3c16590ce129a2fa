"""Which addresses may be asked, and how many spellings a private one has."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from app.fetching import addresses
from app.fetching.addresses import AllowedHosts, is_public, read_web_address

PRIVATE = [
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200",
    "0.0.0.0", "224.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.0.192",
    "::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1", "fd00:ec2::254", "fec0::1", "ff02::1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:c0a8:101::", "64:ff9b:1::1",
    "::7f00:1", "::ffff:0:7f00:1", "5f00::1", "4000::1", "1::1", "2001:db8::1", "3fff::1",
]  # fmt: skip
PUBLIC = ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.mark.parametrize("text", PRIVATE)
def test_a_private_address_is_refused(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_allowed(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.1/",
        "http://127.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
        "http://localhost/", "http://169.254.169.254/latest/meta-data",
        "http://0/",
    ],
)  # fmt: skip
def test_no_spelling_leads_inside(url: str) -> None:
    """By what the system itself makes of the host, so that no parser of ours can be of another opinion."""
    with pytest.raises(PermissionError):
        AllowedHosts().resolve(read_web_address(url).host, 80)


def test_a_name_is_refused_where_one_of_its_addresses_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(_host: str, port: int, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", ("1.1.1.1", port)), (10, 1, 6, "", ("fd00::1", port, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(PermissionError, match="fd00::1"):
        AllowedHosts().resolve("films.example", 443)
    assert len(AllowedHosts(["films.example"]).resolve("Films.Example.", 443)) == 2


@pytest.mark.parametrize(
    ("names", "host", "address", "is_allowed"),
    [
        (["minio"], "minio", "10.0.0.5", True),
        (["minio"], "minio.evil.example", "10.0.0.5", False),
        (["10.0.0.0/8"], "anything", "10.0.0.5", True),
        (["10.0.0.0/8"], "anything", "192.168.0.1", False),
        (["127.0.0.1"], "127.0.0.1", "127.0.0.1", True),
        (["127.0.0.1"], "2130706433", "127.0.0.1", True),
        (["::1"], "::1", "::1", True),
        ([], "anything", "1.1.1.1", True),
    ],
)
def test_the_operator_may_allow_private_hosts(
    names: list[str], host: str, address: str, is_allowed: bool
) -> None:
    assert AllowedHosts(names).allows(host, ip_address(address)) is is_allowed


def test_a_name_that_no_host_can_have_does_not_resolve() -> None:
    for host in ("a" * 300, "a..b", ".."):
        with pytest.raises(OSError):  # noqa: PT011 - the resolver's words differ
            addresses.resolve(host, 80)
