"""Kept features are found whole or not at all, by many processes, within their room."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.documents.job import Answer, Media, Note
from app.feature_cache.feature_cache import EntryDamaged, FeatureCache, KeptFeatures
from app.jobs.blobs import Blobs
from app.settings import Settings
from tests.app.small_disk import MIB, fill, small_disk
from tests.app.workers import eventually

FIRST, SECOND = "1" * 64, "2" * 64

WRITER = """
import os, sys, time
from pathlib import Path
from app.feature_cache.feature_cache import FeatureCache
from app.jobs.blobs import Blobs
from app.settings import Settings
from tests.app.feature_cache.test_feature_cache import FIRST, features

def never(*_):
    print("written", flush=True)
    time.sleep(600)

os.replace = never
settings = Settings(data=Path(sys.argv[1]), min_free_bytes=0)
FeatureCache(settings, Blobs(settings.blob_url, settings.staging)).keep(FIRST, "a", features())
"""


def features(streams: bytes = b"streams") -> KeptFeatures:
    facts = Answer(
        media=Media(container="mp4", duration=1 / 3, fps=30000 / 1001),
        sampled=[0.1, 0.7],
        warnings=[Note(code="no_audio", message="The file has no sound.")],
    )
    return KeptFeatures(facts, (b"\xff\xd8one", b"", b"\xff\xd8three"), streams)


def make_cache(folder: Path, **changed: object) -> FeatureCache:
    settings = Settings(data=folder, min_free_bytes=0).model_copy(update=changed)
    return FeatureCache(settings, Blobs(settings.blob_url, settings.staging))


@pytest.fixture
def cache(tmp_path: Path) -> FeatureCache:
    return make_cache(tmp_path)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "features").iterdir())


def set_age(file: Path, seconds: float) -> None:
    moment = file.stat().st_mtime - seconds
    os.utime(file, (moment, moment))


# ---- finding ----


def test_what_is_kept_is_found_as_it_was(cache: FeatureCache) -> None:
    assert cache.find(FIRST, "a") is None
    assert cache.keep(FIRST, "a", features())
    assert cache.find(FIRST, "a") == features()
    assert cache.has(FIRST)


@pytest.mark.parametrize(("video", "basis"), [(SECOND, "a"), (FIRST, "b")])
def test_another_video_or_basis_is_not_found(cache: FeatureCache, video: str, basis: str) -> None:
    cache.keep(FIRST, "a", features())
    assert cache.find(video, basis) is None


def test_what_is_forgotten_is_gone_with_every_basis(cache: FeatureCache) -> None:
    for video, basis in ((FIRST, "a"), (FIRST, "b"), (SECOND, "a")):
        cache.keep(video, basis, features())
    cache.forget(FIRST)
    assert [cache.has(FIRST), cache.has(SECOND)] == [False, True]


@pytest.mark.parametrize("sha256", ["", "../../etc/passwd", "A" * 64, "1" * 63])
def test_what_is_no_digest_is_neither_kept_nor_found(
    cache: FeatureCache, tmp_path: Path, sha256: str
) -> None:
    assert not cache.keep(sha256, "a", features())
    assert cache.find(sha256, "a") is None
    assert not cache.has(sha256)
    cache.forget(sha256)
    assert not (tmp_path / "features").exists()


def test_a_cache_without_room_is_off(tmp_path: Path) -> None:
    make_cache(tmp_path).keep(FIRST, "a", features())
    off = make_cache(tmp_path, feature_cache_bytes=0)
    assert off.find(FIRST, "a") is None
    assert not off.keep(SECOND, "a", features())
    assert not off.has(FIRST)
    off.trim()
    assert files(tmp_path) == []


# ---- damage ----


@pytest.mark.parametrize("place", [0, 25, 55, 70, -1])
def test_a_changed_byte_is_a_miss_and_the_entry_goes(cache: FeatureCache, tmp_path: Path, place: int) -> None:
    cache.keep(FIRST, "a", features())
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    assert cache.find(FIRST, "a") is None
    assert files(tmp_path) == []
    assert cache.keep(FIRST, "a", features())
    assert cache.find(FIRST, "a") == features()


@pytest.mark.parametrize("size", [0, 10, 60, 200])
def test_a_cut_entry_is_a_miss(cache: FeatureCache, tmp_path: Path, size: int) -> None:
    cache.keep(FIRST, "a", features())
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:size])
    assert cache.find(FIRST, "a") is None
    assert files(tmp_path) == []


def test_a_head_of_another_version_is_damage() -> None:
    rest = (2).to_bytes(8, "big") + b"{}"
    with pytest.raises(EntryDamaged, match="nothing to this version"):
        KeptFeatures.unpack(b"reelword features 1\n" + hashlib.sha256(rest).digest() + rest)


# ---- room ----


def test_what_was_not_used_for_longest_gives_way(tmp_path: Path) -> None:
    size = len(features(bytes(1000)).pack())
    cache = make_cache(tmp_path, feature_cache_bytes=4 * size)
    for number in range(4):
        cache.keep(f"{number}" * 64, "a", features(bytes(1000)))
        set_age(next((tmp_path / "features").glob(f"{number}*")), 100 - number)
    assert cache.find("0" * 64, "a") is not None  # used again
    cache.keep("9" * 64, "a", features(bytes(1000)))
    assert [cache.has(f"{number}" * 64) for number in (0, 1, 2, 3, 9)] == [True, False, True, True, True]


def test_an_entry_that_takes_most_of_the_room_is_not_kept(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, feature_cache_bytes=4000)
    cache.keep(FIRST, "a", features())
    assert not cache.keep(SECOND, "a", features(bytes(2000)))
    assert [cache.has(FIRST), cache.has(SECOND)] == [True, False]


def test_what_is_not_used_as_long_as_a_result_is_kept_goes(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, result_ttl=60.0)
    for video, age in ((FIRST, 61), (SECOND, 30)):
        cache.keep(video, "a", features())
        set_age(next((tmp_path / "features").glob(f"{video}*")), age)
    cache.trim()
    assert [cache.has(FIRST), cache.has(SECOND)] == [False, True]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16) as folder:
        yield folder


def test_the_floor_of_the_disk_is_left_alone(disk: Path) -> None:
    cache = make_cache(disk, min_free_bytes=8 * MIB)
    assert cache.keep(FIRST, "a", features(bytes(4 * MIB)))
    assert not cache.keep(SECOND, "a", features(bytes(6 * MIB)))
    assert [cache.has(FIRST), cache.has(SECOND)] == [True, False]


def test_a_full_disk_fails_nothing_and_leaves_nothing(disk: Path) -> None:
    cache = make_cache(disk)
    cache.keep(FIRST, "a", features())
    fill(disk)
    assert not cache.keep(SECOND, "a", features(bytes(MIB)))
    assert cache.find(FIRST, "a") == features()
    assert list((disk / "staging").iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_errors_of_the_disk_are_logged_and_no_more(
    cache: FeatureCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("app.feature_cache.feature_cache.os.replace", fail)
    assert not cache.keep(FIRST, "a", features())
    assert files(tmp_path) == []
    assert list((tmp_path / "staging").iterdir()) == []


# ---- many at once ----


def test_a_writer_that_is_killed_leaves_no_entry(cache: FeatureCache, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        (half,) = (tmp_path / "staging").iterdir()
        assert half.stat().st_size > 0
        writer.send_signal(signal.SIGKILL)
    assert cache.find(FIRST, "a") is None
    blobs = Blobs(str(tmp_path / "blobs"), tmp_path / "staging")
    eventually(lambda: blobs.sweep(0) == 1 or not half.exists())
    assert list((tmp_path / "staging").iterdir()) == []
    assert cache.keep(FIRST, "a", features())


def test_readers_beside_writers_find_all_or_nothing(tmp_path: Path) -> None:
    """Each with a cache of its own, and room for eight of twelve entries: some are removed while they are
    read.
    """
    kept = {f"{number:x}" * 64: features(bytes([number]) * 50_000) for number in range(12)}
    room = 8 * 51_000
    failures: list[object] = []
    hits = [0]

    def work(mine: int) -> None:
        cache = make_cache(tmp_path, feature_cache_bytes=room)
        for turn in range(60):
            video = f"{(mine + turn) % 12:x}" * 64
            found = cache.find(video, "a")
            hits[0] += found is not None
            if found not in (None, kept[video]):
                failures.append(found)
            cache.keep(video, "a", kept[video])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert hits[0] > 0
    cache = make_cache(tmp_path, feature_cache_bytes=room)
    cache.trim()
    assert sum(file.stat().st_size for file in files(tmp_path)) <= room
