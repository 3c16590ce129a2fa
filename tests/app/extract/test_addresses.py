"""Videos in stores that speak S3 and Google's protocol, on the web, and in the lists that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pytest

from app.errors import UploadMissing, UrlUnreachable
from app.extract.inputs import list_videos, local_copy, stamp_of
from app.extract.storage import _file_system
from app.fetching.addresses import AllowedHosts
from app.fetching.fetch import FetchLimits
from tests.app.extract.google_store import GoogleStore
from tests.app.extract.object_store import ObjectStore

LIMITS = FetchLimits(max_bytes=1000, seconds=20, hosts=AllowedHosts(["127.0.0.1"]))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore().serving() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        _file_system.cache_clear()
        yield running
        _file_system.cache_clear()


def test_a_bucket_is_listed_and_its_videos_are_copied(store: ObjectStore) -> None:
    store.objects = {
        "films/a b.mp4": b"one", "films/deep/er/ü?1.mkv": b"two", "films/notes.txt": b"", "other/c.mp4": b"",
    }  # fmt: skip
    assert list_videos("s3://films") == ["s3://films/a b.mp4", "s3://films/deep/er/ü?1.mkv"]
    assert list_videos("s3://films/deep/") == ["s3://films/deep/er/ü?1.mkv"]
    read = []
    for video in list_videos("s3://films"):
        with local_copy(video, LIMITS) as path:
            read.append(path.read_bytes())
    assert read == [b"one", b"two"]
    assert not path.exists()


def read_all(source: str) -> set[bytes]:
    """What can be read of a store's videos; one that cannot be named is a row with an error in bulk."""
    read = set()
    for video in list_videos(source):
        with suppress(UploadMissing), local_copy(video, LIMITS) as path:
            assert path.name == "video.mp4"
            read.add(path.read_bytes())
    return read


def test_names_that_a_hostile_store_gives_lead_nowhere(store: ObjectStore) -> None:
    """Each is copied to a folder of its own, under a name of ours."""
    names = ["-rf.mp4", "a\nb.mp4", "$(id).mp4", "%2e%2e%2fx.mp4", "b\\..\\up.mp4", "\u202e4pm.mp4"]
    store.objects = {f"films/{name}": name.encode() for name in (*names, "x" * 900 + ".mp4")}
    assert read_all("s3://films") >= {name.encode() for name in names}


@pytest.mark.parametrize("name", ["../../up.mp4", "/etc/x.mp4", "a/../../../up.mp4", "a//b.mp4"])
def test_names_that_are_paths_are_read_from_the_store_or_not_at_all(store: ObjectStore, name: str) -> None:
    store.objects = {f"films/{name}": b"one", "films/good.mp4": b"two"}
    assert read_all("s3://films") in ({b"two"}, {b"one", b"two"})


def test_an_object_is_stamped_without_being_fetched(store: ObjectStore) -> None:
    store.objects = {"films/a b.mp4": b"one", "films/c.mp4": b"four"}
    stamps = [stamp_of(video) for video in list_videos("s3://films")]
    assert [(stamp or "").split()[0] for stamp in stamps] == ["3", "4"]
    assert stamp_of("s3://films/a b.mp4") == stamps[0]
    assert stamp_of("s3://films/absent.mp4") is None
    assert stamp_of("https://example.com/a.mp4") is None
    assert not store.fetched


def test_a_bucket_of_google_s_is_listed_and_its_videos_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with GoogleStore().serving() as running:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.address)
        _file_system.cache_clear()
        running.objects = {"films/a b.mp4": b"one", "films/deep/ü#1.mkv": b"three", "films/.x.mp4": b""}
        videos = list_videos("gs://films")
        assert videos == ["gs://films/a b.mp4", "gs://films/deep/ü#1.mkv"]
        assert list_videos(videos[1]) == [videos[1]]
        assert [(stamp_of(video) or "").split()[0] for video in videos] == ["3", "5"]
        assert running.fetched == []
        read = []
        for video in videos:
            with local_copy(video, LIMITS) as path:
                read.append(path.read_bytes())
        assert read == [b"one", b"three"]
    _file_system.cache_clear()


def test_a_list_may_mix_paths_and_addresses(store: ObjectStore, tmp_path: Path) -> None:
    store.objects = {"films/a.mp4": b"one"}
    (tmp_path / "b.mp4").write_bytes(b"two")
    name = "%D1%84" * 60  # escaped, it is longer than a file's name may be
    store.objects |= {f"films/{unquote(name)}.mp4": b"one"}
    web = f"{store.address}/films/{name}.mp4"
    (tmp_path / "list.txt").write_text(f"s3://films/a.mp4\nb.mp4\n{web}\n")
    videos = list_videos(str(tmp_path / "list.txt"))
    assert videos == ["s3://films/a.mp4", str(tmp_path / "b.mp4"), web]
    read = []
    for video in videos:
        with local_copy(video, LIMITS) as path:
            read.append(path.read_bytes())
    assert read == [b"one", b"two", b"one"]


def test_what_is_not_in_the_store_is_named(store: ObjectStore) -> None:
    with pytest.raises(UploadMissing, match=r"films/gone\.mp4"), local_copy("s3://films/gone.mp4", LIMITS):
        pass
    with pytest.raises(UrlUnreachable), local_copy("http://127.0.0.1:1/gone.mp4", LIMITS):
        pass
