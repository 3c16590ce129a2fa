"""The floor below the free room holds for uploads side by side, announced or not, of one process or many."""

from __future__ import annotations

import concurrent.futures
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.api.receiving.upload import Room, announced_bytes
from app.api.refusals import StorageFull
from app.settings import Settings
from tests.app.live_api import live_api
from tests.app.small_disk import MIB, fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 32) as folder:
        yield folder


def free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def test_what_was_announced_is_held_and_the_rest_given_back(disk: Path) -> None:
    before = free(disk)
    with Room(disk, 0).open(disk / "a", announced=8 * MIB) as file:
        assert before - free(disk) >= 8 * MIB
        file.write(b"short")
        file.flush()
        assert before - free(disk) < MIB
    assert (disk / "a").read_bytes() == b"short"


def test_what_does_not_fit_leaves_no_file(disk: Path) -> None:
    with pytest.raises(StorageFull):
        Room(disk, 16 * MIB).open(disk / "a", announced=20 * MIB)
    assert list(disk.iterdir()) == []


def test_an_unannounced_file_stops_at_the_floor(disk: Path) -> None:
    with Room(disk, 16 * MIB).open(disk / "a") as file:
        for _ in range(4 * 14):
            file.write(bytes(MIB // 4))
            assert free(disk) >= 16 * MIB
        with pytest.raises(StorageFull):
            file.write(bytes(4 * MIB))
    assert free(disk) >= 16 * MIB


@pytest.mark.parametrize("announced", [0, 6 * MIB])
def test_threads_share_the_floor(disk: Path, announced: int) -> None:
    room = Room(disk, 8 * MIB)

    def upload(number: int) -> bool:
        try:
            with room.open(disk / str(number), announced) as file:
                for _ in range(24):
                    file.write(bytes(MIB // 4))
        except StorageFull:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        whole = sum(pool.map(upload, range(8)))
    assert free(disk) >= 8 * MIB
    assert whole == 4 if announced else whole <= 4


def test_processes_share_the_floor(disk: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from app.api.receiving.upload import Room\n"
        "from app.api.refusals import StorageFull\n"
        "disk = Path(sys.argv[1])\n"
        "try:\n"
        "    file = Room(disk, 8 * 2**20).open(disk / sys.argv[2], 6 * 2**20)\n"
        "except StorageFull:\n"
        "    print('full', flush=True)\n"
        "else:\n"
        "    print('room', flush=True); sys.stdin.read()\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(disk), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    answers = [writer.stdout.readline().strip() for writer in writers if writer.stdout]
    floor = free(disk)
    for writer in writers:
        writer.communicate("")
    assert (answers.count("room"), answers.count("full")) == (4, 2)
    assert floor >= 8 * MIB


def test_uploads_side_by_side_get_507_and_the_floor_stays(settings: Settings, disk: Path) -> None:
    floor = 8 * MIB
    limits = {"data": disk, "min_free_bytes": floor, "max_upload_bytes": 16 * MIB, "max_backlog": 100}
    with live_api(settings.model_copy(update=limits)) as api:

        def send(number: int) -> httpx.Response:
            url = f"http://127.0.0.1:{api.port}/caption"
            if number % 2:
                return httpx.post(url, files={"video": ("a.mp4", bytes(6 * MIB))}, timeout=60)
            head = b'--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'
            pieces = iter([head, *[bytes(MIB)] * 6, b"\r\n--b--\r\n"])
            kind = {"content-type": "multipart/form-data; boundary=b"}
            return httpx.post(url, content=pieces, headers=kind, timeout=60)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            statuses = [answer.status_code for answer in pool.map(send, range(8))]
        assert set(statuses) == {202, 507}
        assert free(disk) >= floor
        assert api.staged == []
        assert len(api.uploads) == statuses.count(202)
        fill(disk)
        assert send(1).status_code == 507


@pytest.mark.parametrize(
    ("length", "expected"),
    [("12", 12), ("", 0), ("-1", 0), ("many", 0), ("²", 0), ("9" * 50, 0)],
)
def test_an_announced_length(length: str, expected: int) -> None:
    assert announced_bytes({"content-length": length}) == expected


def test_no_length_announces_nothing() -> None:
    assert announced_bytes({}) == 0


def test_a_file_system_that_cannot_allocate_is_written_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def cannot(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("os.posix_fallocate", cannot)
    with Room(tmp_path, 0).open(tmp_path / "a", announced=MIB) as file:
        file.write(b"data")
    assert (tmp_path / "a").read_bytes() == b"data"
