"""Downloads against a real server that drops, moves, changes, refuses, and lies."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from extractors.pretrained.download import Downloader, RetryPolicy
from extractors.pretrained.errors import DownloadDamaged, DownloadRefused, NoRoom, ServerUnreachable
from tests.file_server import FileServer, serving

CONTENT = random.Random(9).randbytes(3 << 20)
HALF = len(CONTENT) // 2
HASTY = RetryPolicy(tries=3, wait=0.01)


def right(part: Path) -> None:
    if part.read_bytes() != CONTENT:
        raise DownloadDamaged("What came is not the file.")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine's way out is, the server here is reached without it."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(FileServer(CONTENT)) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net" / "net.pth"


def fetch(server: FileServer, file: Path, path: str = "/file") -> None:
    url = server.url.replace("/file", path)
    Downloader(HASTY).fetch(url, file, right)


def visible(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.iterdir() if not path.name.startswith("."))


def test_a_file_comes_whole_and_says_how_far_it_is(server: FileServer, file: Path) -> None:
    told: list[tuple[int, int | None]] = []
    Downloader(HASTY, lambda done, total: told.append((done, total))).fetch(server.url, file, right)
    assert file.read_bytes() == CONTENT
    assert visible(file) == ["net.pth"]
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_broke_off_goes_on_where_it_stopped(server: FileServer, file: Path) -> None:
    server.cuts = [HALF]
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-"]
    assert server.requests[1][1]["if-range"] == '"first"'


def test_a_server_that_drops_often_is_asked_as_long_as_something_comes(
    server: FileServer, file: Path
) -> None:
    server.cuts = [1000] * 10
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert len(server.requests) == 11


def test_a_later_run_goes_on_too(server: FileServer, file: Path) -> None:
    server.cuts = [HALF, 0, 0, 0]
    with pytest.raises(ServerUnreachable, match=rf"{HALF} bytes are kept"):
        fetch(server, file)
    assert visible(file) == ["net.pth.part", "net.pth.part.json"]
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked[-1] == f"bytes={HALF}-"


def test_without_ranges_it_starts_again(server: FileServer, file: Path) -> None:
    server.ranges, server.cuts = False, [HALF]
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-"]


def test_without_a_name_for_the_version_it_starts_again(server: FileServer, file: Path) -> None:
    server.etag, server.cuts = None, [HALF]
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked == [None, None]


def test_halves_of_two_versions_are_not_put_together(server: FileServer, file: Path) -> None:
    server.content, server.cuts = bytes(len(CONTENT)), [HALF, 0, 0, 0]
    with pytest.raises(ServerUnreachable):
        fetch(server, file)
    server.content, server.etag = CONTENT, '"second"'
    fetch(server, file)
    assert file.read_bytes() == CONTENT


def test_a_part_of_another_place_is_not_gone_on_with(server: FileServer, file: Path) -> None:
    server.cuts = [HALF, 0, 0, 0]
    with pytest.raises(ServerUnreachable):
        fetch(server, file)
    fetch(server, file, "/mirror/file")
    assert server.asked[-1] is None
    assert file.read_bytes() == CONTENT


def test_another_part_than_was_asked_for_is_refused(server: FileServer, file: Path) -> None:
    server.shift, server.cuts = 7, [HALF]
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-", None]


def test_a_wrong_byte_leaves_nothing_behind(server: FileServer, file: Path) -> None:
    server.content = CONTENT[:HALF] + bytes([CONTENT[HALF] ^ 1]) + CONTENT[HALF + 1 :]
    with pytest.raises(DownloadDamaged):
        fetch(server, file)
    assert visible(file) == []
    assert len(server.requests) == 1


def test_a_part_that_was_spoilt_here_is_fetched_whole_once_more(server: FileServer, file: Path) -> None:
    server.cuts = [HALF, 0, 0, 0]
    with pytest.raises(ServerUnreachable):
        fetch(server, file)
    file.with_name("net.pth.part").write_bytes(bytes(HALF))
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert server.asked[-2:] == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("extra", [0, 5])
def test_a_part_as_long_as_the_file_or_longer(server: FileServer, file: Path, extra: int) -> None:
    server.cuts = [HALF, 0, 0, 0]
    with pytest.raises(ServerUnreachable):
        fetch(server, file)
    file.with_name("net.pth.part").write_bytes(CONTENT + bytes(extra))
    fetch(server, file)
    assert file.read_bytes() == CONTENT


def test_a_redirect_is_followed(server: FileServer, file: Path) -> None:
    fetch(server, file, "/elsewhere")
    assert file.read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/elsewhere", "/file"]


def test_redirects_without_end_are_not(server: FileServer, file: Path) -> None:
    with pytest.raises(DownloadRefused, match="leads nowhere"):
        fetch(server, file, "/round")


def test_encryption_is_not_given_up_on_the_way(file: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        plain = {"Location": "http://weights.example/net.pth"}
        return httpx.Response(302, headers=plain) if request.url.scheme == "https" else httpx.Response(200)

    with pytest.raises(DownloadRefused, match="without encryption"):
        Downloader(HASTY, transport=httpx.MockTransport(answer)).fetch(
            "https://weights.example/net.pth", file, right
        )


def test_a_file_that_is_not_there_is_not_asked_for_again(server: FileServer, file: Path) -> None:
    with pytest.raises(DownloadRefused, match="404 Not Found"):
        fetch(server, file, "/gone")
    assert len(server.requests) == 1


def test_a_busy_server_is_asked_again(server: FileServer, file: Path) -> None:
    server.refusals = [503, 429]
    fetch(server, file)
    assert file.read_bytes() == CONTENT


def test_a_server_that_stays_busy_is_given_up(server: FileServer, file: Path) -> None:
    server.refusals = [503] * 10
    with pytest.raises(ServerUnreachable, match="503 Service Unavailable"):
        fetch(server, file)
    assert len(server.requests) == HASTY.tries


def test_the_servers_own_wish_is_respected_within_reason() -> None:
    patience = RetryPolicy(wait=1, longest=30)
    assert [patience.pause(failures) for failures in (1, 2, 3, 9)] == [1, 2, 4, 30]
    assert patience.pause(1, "7") == 7
    assert patience.pause(1, "3600") == 30
    assert patience.pause(1, "Wed, 21 Oct 2026 07:28:00 GMT") == 1


def test_a_web_page_is_not_a_file(server: FileServer, file: Path) -> None:
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(DownloadRefused, match="a web page"):
        fetch(server, file)
    assert visible(file) == []


def test_what_is_packed_on_the_way_is_unpacked(server: FileServer, file: Path) -> None:
    server.packed = True
    fetch(server, file)
    assert file.read_bytes() == CONTENT
    assert server.requests[0][1]["accept-encoding"] == "identity"


def test_nobody_answers(file: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
        with pytest.raises(ServerUnreachable, match=r"/file did not come: .*refused"):
            Downloader(HASTY).fetch(url, file, right)


def test_a_proxy_is_used_where_one_is_set(
    server: FileServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
    Downloader(HASTY).fetch("http://weights.example/file", file, right)
    assert file.read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["http://weights.example/file"]


def test_a_proxy_is_not_used_for_hosts_that_need_none(
    server: FileServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    fetch(server, file)
    assert [path for path, _ in server.requests] == ["/file"]


def test_a_full_disk_is_noticed_before_anything_comes(
    server: FileServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    with pytest.raises(NoRoom, match=r"MB are needed.* has 1 MB free"):
        fetch(server, file)


def test_a_folder_that_cannot_be_made(server: FileServer, file: Path) -> None:
    file.parent.write_text("in the way")
    with pytest.raises(NoRoom, match=r"net\.pth cannot be written"):
        fetch(server, file)


PROCESS = """
import sys
from pathlib import Path
from extractors.pretrained.download import Downloader

Downloader().fetch(sys.argv[1], Path(sys.argv[2]), lambda part: None)
"""


def test_two_processes_get_the_same_file_once(server: FileServer, file: Path, root: Path) -> None:
    server.seconds = 1.0
    command = [sys.executable, "-c", PROCESS, server.url, str(file)]
    both = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert file.read_bytes() == CONTENT
    assert len(server.requests) == 1


def interrupt(part: Path) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_run_keeps_what_came(server: FileServer, file: Path) -> None:
    stop: Callable[[Path], None] = interrupt
    with pytest.raises(KeyboardInterrupt):
        Downloader(HASTY).fetch(server.url, file, stop)
    assert file.with_name("net.pth.part").read_bytes() == CONTENT
    fetch(server, file)
    assert server.asked[-1] == f"bytes={len(CONTENT)}-"
    assert file.read_bytes() == CONTENT
