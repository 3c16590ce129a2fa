"""Views of a picture, and a cache that outlives being killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.pictures import picture_features
from lab.pictures.picture_batches import CachedNetwork, TrainingItem
from lab.pictures.picture_features import (
    MIRRORED,
    PAN_MIDDLE,
    SIDE,
    VIEWS,
    WHOLE,
    cut_views,
    load_features,
)
from tests.training.killed_cache import CHUNK, COUNT
from tests.training.tiny_corpus import Averages, Corners, captioned, draw, kinds, write_corpus


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_features, "CHUNK", CHUNK)


def killed(root: Path, folder: Path, call: int) -> None:
    """A process that is killed at the network's call number ``call``."""
    script = [sys.executable, "-m", "tests.training.killed_cache", str(folder), str(call)]
    done = subprocess.run(script, cwd=root, stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL


def cache_file(folder: Path) -> Path:
    [path] = (folder / "cache").iterdir()
    assert path.suffix == ".npy"
    assert "partial" not in path.name
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[TrainingItem], bytes]:
    folder = tmp_path_factory.mktemp("whole")
    items = captioned(folder, COUNT)
    return items, cache_file(folder).read_bytes()


def test_a_killed_run_goes_on_to_the_same_bytes(
    root: Path, tmp_path: Path, whole: tuple[list[TrainingItem], bytes]
) -> None:
    killed(root, tmp_path, call=2)
    assert list((tmp_path / "cache").glob("*.partial.npy"))
    network = Averages()
    captioned(tmp_path, COUNT, network)
    assert network.calls == 2  # of four chunks the first two stood
    assert cache_file(tmp_path).read_bytes() == whole[1]


class Interrupted(Averages):
    """Gives up at one call, as Ctrl-C does."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.last = last

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        if self.calls == self.last:
            raise KeyboardInterrupt
        return super().of_pictures(pictures)


def interrupted(folder: Path, call: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        captioned(folder, COUNT, Interrupted(call))


def test_stopped_before_the_first_chunk_and_again_later(
    tmp_path: Path, whole: tuple[list[TrainingItem], bytes]
) -> None:
    interrupted(tmp_path, call=0)
    interrupted(tmp_path, call=3)
    network = Averages()
    captioned(tmp_path, COUNT, network)
    assert network.calls == 1
    assert cache_file(tmp_path).read_bytes() == whole[1]


def test_a_kill_while_the_count_was_written_costs_time_only(
    tmp_path: Path, whole: tuple[list[TrainingItem], bytes]
) -> None:
    interrupted(tmp_path, call=2)
    [count] = (tmp_path / "cache").glob("*.done")
    count.write_text("")
    captioned(tmp_path, COUNT)
    assert cache_file(tmp_path).read_bytes() == whole[1]


def test_a_finished_cache_is_read_and_not_made_again(tmp_path: Path) -> None:
    captioned(tmp_path, 8)
    network = Averages()
    captioned(tmp_path, 8, network)
    assert network.calls == 0


def test_rows_are_found_by_name_whatever_the_archives_order(whole: tuple[list[TrainingItem], bytes]) -> None:
    """Features of the whole picture are those of the drawn picture itself."""
    items, _ = whole
    for item, kind in list(zip(items, kinds(COUNT), strict=True))[::5]:
        [row] = item.pictures.rows
        expected = Averages().of_pictures(cut_views(np.asarray(draw(*kind)), "any", 1))["grid"][0]
        np.testing.assert_array_equal(item.pictures.cache.streams["grid"][row, WHOLE], expected)


def test_streams_of_several_networks_are_joined_with_the_views_that_all_have(tmp_path: Path) -> None:
    few = CachedNetwork(Corners(), 2)
    cache = captioned(tmp_path, COUNT, Averages(), few)[0].pictures.cache
    assert {name: values.shape[1:] for name, values in cache.streams.items()} == {
        "grid": (VIEWS, 49, 8),
        "corners": (2, 4, 3),
        "middle": (2, 1, 3),
    }
    assert cache.views == 2
    corners = cache.streams["corners"]
    np.testing.assert_array_equal(corners[:, MIRRORED], corners[:, WHOLE][:, [1, 0, 3, 2]])
    again = Corners()
    captioned(tmp_path, COUNT, Averages(), CachedNetwork(again, 2))
    assert again.calls == 0


def test_a_network_of_two_streams_goes_on_after_a_stop(tmp_path: Path) -> None:
    class Stopped(Corners):
        def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().of_pictures(pictures)

    with pytest.raises(KeyboardInterrupt):
        captioned(tmp_path / "one", COUNT, Stopped())
    network = Corners()
    found = captioned(tmp_path / "one", COUNT, network)[0].pictures.cache
    whole = captioned(tmp_path / "other", COUNT, Corners())[0].pictures.cache
    assert network.calls == 2
    for name, values in whole.streams.items():
        np.testing.assert_array_equal(found.streams[name], values)


def test_other_names_or_views_are_another_file(tmp_path: Path) -> None:
    archive, _ = write_corpus(tmp_path, 4)
    folder, network = tmp_path / "cache", Averages()
    for names, views in ((["000.png"], 5), (["000.png", "037.png"], 5), (["000.png"], 1)):
        load_features(network, archive, names, views, folder)
    assert len(list(folder.iterdir())) == 3


def test_views_are_the_whole_its_mirror_and_windows_inside() -> None:
    gradient = np.tile(np.arange(100, dtype=np.uint8)[:, None] * 2, (80, 1, 3))
    views = cut_views(gradient, "some name", VIEWS)
    assert views.shape == (VIEWS, SIDE, SIDE, 3)
    assert (views[WHOLE][:, 0, 0] < views[WHOLE][:, -1, 0]).all()
    np.testing.assert_allclose(views[MIRRORED][:, ::-1].astype(int), views[WHOLE], atol=1)
    spread = np.ptp(views.astype(int), axis=(1, 2, 3))
    assert spread[WHOLE] == 198
    assert (abs(spread[2:] - 0.8 * 198) < 4).all()  # a window is 0.8 of the picture's width
    assert abs(views[PAN_MIDDLE].mean() - 99) < 3  # and the path's middle is the picture's


def test_views_follow_from_the_name_alone() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    np.testing.assert_array_equal(cut_views(picture, "a", VIEWS), cut_views(picture, "a", VIEWS))
    assert any((cut_views(picture, "a", VIEWS) != cut_views(picture, other, VIEWS)).any() for other in "bcd")
