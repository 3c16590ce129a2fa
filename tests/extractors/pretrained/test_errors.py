"""Every leaf of the tree can be reached, has a stable code, and says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from app.api.refusals import RequestError
from app.errors import JobError
from extractors.errors import leaves
from extractors.media.errors import MediaError
from extractors.pretrained import errors
from extractors.pretrained.download import Downloader, RetryPolicy, fetch_weights
from extractors.pretrained.errors import WeightsError
from extractors.pretrained.load import check_loads
from extractors.pretrained.manifest import find_entry
from extractors.pretrained.weights_folder import WeightsFolder
from tests.extractors.manifests import small_checkpoint, write_manifest
from tests.file_server import FileServer, serving

ROOT = Path(__file__).resolve().parents[3]
MANUAL = ROOT / "docs" / "weights.md"
CLOSED = "http://127.0.0.1:9/small.pth"


def bring(data: Path, url: str = CLOSED, *, offline: bool = False, sha256: str | None = None) -> None:
    manifest = write_manifest(data / "manifest.toml", net={"source": "url", "url": url, "sha256": sha256})
    folder = WeightsFolder(data / "data", manifest)
    known = find_entry("net", manifest)
    downloader = Downloader(RetryPolicy(tries=1))
    fetch_weights(known, folder, downloader, lambda part: check_loads(known, part), offline=offline)


def bad_manifest(data: Path) -> None:
    (data / "manifest.toml").write_text('[net]\nsource = "url"\nsha256 = "short"\n')
    WeightsFolder(data, data / "manifest.toml").find("net")


def unknown(data: Path) -> None:
    WeightsFolder(data).find("nothing")


def missing(data: Path) -> None:
    WeightsFolder(data).find("resnet50")


def damaged(data: Path) -> None:
    file = WeightsFolder(data).place(find_entry("resnet50", WeightsFolder(data).manifest))
    small_checkpoint(file)
    WeightsFolder(data).find("resnet50")


def wrong(data: Path) -> None:
    manifest = write_manifest(data / "manifest.toml", net={"source": "url", "url": CLOSED})
    torch.save({"fc.weight": torch.zeros(2, 3)}, data / "other.pth")
    known = find_entry("net", manifest)
    WeightsFolder(data / "data", manifest).add(
        data / "other.pth", known, lambda file: check_loads(known, file)
    )


def not_for_download(data: Path) -> None:
    folder = WeightsFolder(data)
    known = find_entry("raft_sintel", folder.manifest)
    fetch_weights(known, folder, Downloader(), lambda part: None, offline=False)


def offline(data: Path) -> None:
    bring(data, offline=True)


def unreachable(data: Path) -> None:
    bring(data)


def refused(data: Path) -> None:
    with serving(FileServer(b"")) as server:
        bring(data, server.url.replace("/file", "/gone"))


def damaged_on_the_way(data: Path) -> None:
    with serving(FileServer(b"another file")) as server:
        bring(data, server.url, sha256="0" * 64)


def no_room(data: Path) -> None:
    (data / "data").write_text("in the way")
    bring(data)


REACHED: dict[type[WeightsError], Callable[[Path], None]] = {
    errors.ManifestDamaged: bad_manifest,
    errors.UnknownWeights: unknown,
    errors.WeightsMissing: missing,
    errors.WeightsDamaged: damaged,
    errors.WrongCheckpoint: wrong,
    errors.NotForDownload: not_for_download,
    errors.Offline: offline,
    errors.ServerUnreachable: unreachable,
    errors.DownloadRefused: refused,
    errors.DownloadDamaged: damaged_on_the_way,
    errors.NoRoom: no_room,
}


@pytest.mark.parametrize("leaf", list(leaves(errors.WeightsError)), ids=lambda leaf: leaf.code)
def test_each_leaf_is_reached(leaf: type[WeightsError], tmp_path: Path) -> None:
    with pytest.raises(leaf) as raised:
        REACHED[leaf](tmp_path)
    assert type(raised.value) is leaf
    assert re.fullmatch(r"[^\n]+\.", str(raised.value))
    assert re.fullmatch(r"[A-Z][^\n]+\.", leaf.hint)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+) +([a-z_]+) {2,}", errors.__doc__ or "")
    assert drawn == [(leaf.__name__, leaf.code) for leaf in leaves(errors.WeightsError)]


def test_the_manual_lists_every_code_with_its_remedy() -> None:
    manual = MANUAL.read_text()
    for leaf in leaves(errors.WeightsError):
        assert f"| `{leaf.code}` |" in manual
        assert leaf.hint in manual


def test_codes_are_told_apart_from_all_others() -> None:
    def codes(kind: type[Exception]) -> list[str]:
        below = [code for child in kind.__subclasses__() for code in codes(child)]
        return below or [vars(kind)["code"]]

    everywhere = [code for tree in (WeightsError, MediaError, JobError, RequestError) for code in codes(tree)]
    assert len(set(everywhere)) == len(everywhere)
