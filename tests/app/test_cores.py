"""Cores are counted by the share that control groups leave, of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import cores


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(("said", "asked", "count"), [("3", None, 3), ("3,2", 5, 5), ("4,2", None, 4)])
def test_threads_are_those_that_are_asked_for_or_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, said: str, asked: int | None, count: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert cores.choose_threads(asked) == count


def test_threads_are_as_many_as_cores_where_nothing_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "all")
    monkeypatch.setattr(cores, "core_count", lambda: 7)
    assert cores.choose_threads() == 7


def shares(folder: Path, own: str) -> list[float]:
    write(folder / "own", own)
    return list(cores.read_cpu_shares(folder / "own", folder / "groups"))


def test_version_2_limits_by_each_group_above(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    write(groups / "slice/cpu.max", "400000 100000\n")
    write(groups / "slice/unit/cpu.max", "max 100000\n")
    assert shares(tmp_path, "0::/slice/unit\n") == [4.0]
    write(groups / "slice/unit/cpu.max", "150000 100000\n")
    assert shares(tmp_path, "0::/slice/unit\n") == [1.5, 4.0]


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    write(tmp_path / "groups/cpu.max", "200000 100000\n")
    assert shares(tmp_path, "0::/\n") == [2.0]


def test_version_1_may_tell_a_path_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "groups/cpu/cpu.cfs_quota_us", "100000\n")
    write(tmp_path / "groups/cpu/cpu.cfs_period_us", "100000\n")
    assert shares(tmp_path, "3:memory:/docker/x\n2:cpuacct,cpu:/docker/x\n") == [1.0]
    write(tmp_path / "groups/cpu/cpu.cfs_quota_us", "-1\n")
    assert shares(tmp_path, "2:cpu:/docker/x\n") == []


@pytest.mark.parametrize(("share", "count"), [(1.0, 1), (0.5, 1), (2.9, 2), (64.0, 8)])
def test_a_share_counts_where_it_is_less_than_there_are(
    monkeypatch: pytest.MonkeyPatch, share: float, count: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "read_cpu_shares", lambda: iter([share]))
    assert cores.core_count() == count


def test_it_counts_here() -> None:
    assert cores.core_count() >= 1
    assert list(cores.read_cpu_shares(Path("/nowhere"))) == []
