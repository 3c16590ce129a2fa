"""What comes of an address: a file, or a named error, and never a request to where none may go."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from structlog.testing import capture_logs

from app.errors import (
    JobFailure,
    UrlNotAllowed,
    UrlNotFound,
    UrlRefused,
    UrlTimeout,
    UrlTooLarge,
    UrlUnreachable,
    WorkerFault,
)
from app.fetching import fetch as fetching
from app.fetching import guarded_client
from app.fetching.addresses import AllowedHosts
from app.fetching.fetch import FetchLimits, fetch
from tests.app.film_server import FilmServer, film_server

FILM = bytes(range(256)) * 400
LIMITS = FetchLimits(max_bytes=len(FILM), seconds=10, stall_seconds=1, hosts=AllowedHosts(["127.0.0.1"]))
STRICT = replace(LIMITS, hosts=AllowedHosts())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LONGEST_PAUSE", 0.01)


@pytest.fixture
def films() -> Iterator[FilmServer]:
    with film_server(FILM) as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "film"


def get(url: str, file: Path, limits: FetchLimits = LIMITS) -> int:
    async def run() -> int:
        return await fetch(url, file, limits)

    return anyio.run(run)


def test_a_film_comes_whole(films: FilmServer, file: Path) -> None:
    shares: list[float] = []

    async def run() -> int:
        return await fetch(films.url(), file, LIMITS, shares.append)

    assert anyio.run(run) == len(FILM)
    assert file.read_bytes() == FILM
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


# ---- where no request may go ----


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "2130706433", "0x7f000001", "0x7f.1", "127.1",
        "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "0",
    ],
)  # fmt: skip
def test_no_private_host_is_asked(films: FilmServer, file: Path, host: str) -> None:
    with pytest.raises(UrlNotAllowed, match="in a network"):
        get(films.url(host=host), file, STRICT)
    assert films.asked == []
    assert not file.exists()


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://127.0.0.1/a", "http://user:secret@127.0.0.1/", "gopher://127.0.0.1:6379/x"],
)
def test_other_addresses_are_refused(file: Path, url: str) -> None:
    with pytest.raises(UrlNotAllowed):
        get(url, file)


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Has each name resolve to these addresses, one a call, the last one for ever; lists the names."""
    real, names = socket.getaddrinfo, list[str]()

    def resolve(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host not in ("films.example", b"films.example"):
            return real(host, port, *rest, **options)
        names.append("films.example")
        return real(addresses[min(len(names), len(addresses)) - 1], port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return names


def test_a_name_that_resolves_inside_is_refused(
    films: FilmServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving_to(monkeypatch, "127.0.0.1")
    with pytest.raises(UrlNotAllowed, match=r"films\.example"):
        get(films.url(host="films.example"), file, STRICT)
    assert films.asked == []


def test_no_connection_goes_where_a_name_resolves_a_moment_later(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first answer is allowed; by the time of connecting it has another (DNS rebinding)."""
    resolving_to(monkeypatch, "127.0.0.2", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.setblocking(False)
        url = f"http://films.example:{inside.getsockname()[1]}/clip.mp4"
        with pytest.raises(UrlNotAllowed, match=r"films\.example"):
            get(url, file, replace(LIMITS, hosts=AllowedHosts(["127.0.0.2"])))
        with pytest.raises(BlockingIOError):
            inside.accept()


def test_the_address_that_was_checked_is_asked_by_the_host_s_name(
    films: FilmServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = resolving_to(monkeypatch, "127.0.0.1", "10.0.0.1")
    assert get(films.url(host="films.example"), file) == len(FILM)
    assert (names, films.hosts) == (["films.example"], [f"films.example:{films.port}"])


def test_of_several_addresses_the_one_that_answers_is_taken(
    films: FilmServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [ip_address("127.0.0.2"), ip_address("127.0.0.1")]
    monkeypatch.setattr(AllowedHosts, "resolve", lambda *_: both)
    assert get(films.url(host="films.example"), file) == len(FILM)


@pytest.mark.parametrize(
    "target", ["http://10.0.0.1/a", "http://[::1]/a", "file:///etc/passwd", "http://a:b@127.0.0.1/"]
)
def test_a_redirect_inside_is_refused(films: FilmServer, file: Path, target: str) -> None:
    with pytest.raises(UrlNotAllowed):
        get(films.url(f"/redirect?to={target}"), file)
    assert set(films.asked) == {f"/redirect?to={target}"}


def redirected(path: str, times: int) -> str:
    for _ in range(times):
        path = f"/redirect?to={quote(path)}"
    return path


def test_redirects_are_followed_and_end(films: FilmServer, file: Path) -> None:
    assert get(films.url(redirected("/clip.mp4", 5)), file) == len(FILM)
    assert len(films.asked) == 6
    with pytest.raises(UrlNotAllowed, match="more than 5"):
        get(films.url(redirected("/clip.mp4", 6)), file)


def test_a_proxy_of_the_environment_is_not_used(
    films: FilmServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert get(films.url(), file) == len(FILM)


# ---- limits ----


def test_a_film_that_is_too_large_is_refused_by_what_is_announced(films: FilmServer, file: Path) -> None:
    with pytest.raises(UrlTooLarge):
        get(films.url(), file, replace(LIMITS, max_bytes=len(FILM) - 1))
    assert not file.exists()


def test_a_film_of_unknown_length_ends_at_the_first_byte_too_many(films: FilmServer, file: Path) -> None:
    with pytest.raises(UrlTooLarge):
        get(films.url("/endless"), file)
    assert file.stat().st_size <= len(FILM)


def test_a_slow_film_ends_at_the_limit(films: FilmServer, file: Path) -> None:
    with pytest.raises(UrlTimeout, match=r"within 0\.5 seconds"):
        get(films.url("/slow"), file, replace(LIMITS, seconds=0.5))


def test_a_silent_server_is_given_up(films: FilmServer, file: Path) -> None:
    with pytest.raises(UrlTimeout, match="does not answer"):
        get(films.url("/silent"), file, replace(LIMITS, stall_seconds=0.3))


def test_a_full_disk_is_no_fault_of_the_address(films: FilmServer, file: Path) -> None:
    with pytest.raises(WorkerFault, match="full"):
        get(films.url(), file, replace(LIMITS, min_free=2**60))


# ---- what servers answer ----


@pytest.mark.parametrize(
    ("path", "error", "tries"),
    [
        ("/status/404", UrlNotFound, 1),
        ("/status/410", UrlNotFound, 1),
        ("/status/403", UrlRefused, 1),
        ("/status/401", UrlRefused, 1),
        ("/status/204", UrlRefused, 1),
        ("/gzip", UrlRefused, 1),
        ("/status/500", UrlUnreachable, 3),
        ("/status/429", UrlUnreachable, 3),
        ("/cut", UrlUnreachable, 3),
    ],
)
def test_what_a_server_says_is_named(
    films: FilmServer, file: Path, path: str, error: type[JobFailure], tries: int
) -> None:
    with pytest.raises(error):
        get(films.url(path), file)
    assert len(films.asked) == tries


def test_what_breaks_off_is_tried_again_from_its_start(films: FilmServer, file: Path) -> None:
    assert get(films.url("/flaky"), file) == len(FILM)
    assert file.read_bytes() == FILM
    assert films.asked == ["/flaky"] * 3


def test_a_server_that_is_not_there_is_unreachable(file: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/a.mp4?signature=secret"
        with pytest.raises(UrlUnreachable) as raised:
            get(url, file)
    assert "secret" not in str(raised.value)


def test_a_host_that_is_not_there_and_one_inside_are_told_alike(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends addresses learns no names of the operator's network; the log has what they resolve to."""

    def resolve(host: str, port: int, **_: object) -> list[Any]:
        if host == "vault.internal":
            return [(2, 1, 6, "", ("10.1.2.3", port))]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    faults = []
    with capture_logs() as lines:
        for host in ("vault.internal", "absent.internal"):
            with pytest.raises(UrlNotAllowed) as raised:
                get(f"http://{host}/a.mp4", file)
            faults.append(str(raised.value).replace(host, "HOST"))
    assert len(set(faults)) == 1
    assert "10.1.2.3" not in faults[0]
    tries = [line["host"] for line in lines]
    assert tries.count("vault.internal") == tries.count("absent.internal") == 3
    assert "vault.internal resolves to 10.1.2.3" in [line["why"] for line in lines]


def test_memory_stays_flat(file: Path) -> None:
    film = bytes(64 * 2**20)
    with film_server(film) as films:
        tracemalloc.start()
        get(films.url(), file, replace(LIMITS, max_bytes=len(film), seconds=60))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert file.stat().st_size == len(film)
    assert peak < 8 * 2**20


def test_the_client_itself_refuses(films: FilmServer) -> None:

    async def run() -> None:
        async with guarded_client.guarded_client(AllowedHosts(), 1.0) as client:
            await client.get(films.url())

    with pytest.raises(guarded_client.HostRefused):
        anyio.run(run)
    assert films.asked == []
