"""Feature files as other people's code writes them, each with the set they are of; the videos are gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from tests.training.laid_out import Captioned, Lay, folder, karpathy, msrvtt, msvd, vatex

#: Video → stream → rows (T, C) or (T, N, C), as they have to come back.
Written: TypeAlias = dict[str, dict[str, NDArray[np.float32]]]
CAPTIONS = (
    ("a red square", "a red square"),
    ("two squares", "a grey one"),
    ("a grey square", "the grey square and a red one"),
    ("a red one", "the red one"),
    ("two grey squares", "two red squares"),
)


def draw(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def lay_captions(root: Path, lay: Lay) -> list[str]:
    """Writes a set's annotations, and takes its media away; the videos' ids, in order."""
    root.mkdir()
    media = root / "media.mp4"
    media.touch()
    named = lay(root, [Captioned(media, captions) for captions in CAPTIONS])
    for file in root.rglob("*"):
        if file.is_symlink():
            file.unlink()
    media.unlink()
    return list(named)


def write_map(folder: Path, streams: Mapping[str, Any], **members: Any) -> None:
    document = {"streams": dict(streams), **members}
    (folder / "features.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def video_features(folder: Path, ids: Sequence[str]) -> Written:
    """v-iashin/video_features: ``<video>_rgb.npy``, ``_fps.npy`` and ``_timestamps_ms.npy`` beside it."""
    written: Written = {}
    for seed, name in enumerate(ids):
        rows = 2 + seed % 2
        streams = {"i3d_rgb": draw(seed, rows, 6), "i3d_flow": draw(seed + 50, rows, 6)}
        ends = (np.arange(rows) * 64 + 64) / 25 * 1000
        (folder / "i3d").mkdir(exist_ok=True)
        np.save(folder / "i3d" / f"{name}_rgb.npy", streams["i3d_rgb"])
        np.save(folder / "i3d" / f"{name}_flow.npy", streams["i3d_flow"])
        np.save(folder / "i3d" / f"{name}_timestamps_ms.npy", ends)
        np.save(folder / "i3d" / f"{name}_fps.npy", np.array(25.0))
        written[name] = streams
    common = {
        "width": 6,
        "kind": "motion",
        "timestamps": "i3d/{name}_timestamps_ms.npy",
        "frame_rate": "i3d/{name}_fps.npy",
        "window": 64,
    }
    files = {f"i3d_{key}": {"file": f"i3d/{{name}}_{key}.npy", **common} for key in ("rgb", "flow")}
    write_map(folder, files, duration="name")
    return written


def vatex_i3d(folder: Path, ids: Sequence[str]) -> Written:
    """VATEX' own: ``<videoID>.npy``, (1, T, 1024) of I3D; here a row every 32 frames at 25 a second."""
    written: Written = {}
    for seed, name in enumerate(ids):
        written[name] = {"i3d": draw(seed, 3 + seed % 2, 1024)}
        np.save(folder / f"{name}.npy", written[name]["i3d"][None])
    stream = {"file": "{id}.npy", "width": 1024, "kind": "motion", "stride": 32, "frame_rate": 25}
    write_map(folder, {"i3d": stream}, duration="name")
    return written


def hobincar(folder: Path, ids: Sequence[str]) -> Written:
    """hobincar/SGN: ``<network>_<split>.hdf5``, in it a data set a video, frames spread over it."""
    written: Written = {name: {} for name in ids}
    splits = dict(zip(ids, ["train"] * (len(ids) - 2) + ["val", "test"], strict=True))
    for place, (network, width) in enumerate({"ResNet101": 8, "3DResNext101": 7}.items()):
        for split in ("train", "val", "test"):
            with h5py.File(folder / f"{network}_{split}.hdf5", "w") as file:
                for seed, name in enumerate(ids):
                    if splits[name] == split:
                        written[name][network] = draw(seed + 100 * place, 4, width)
                        file.create_dataset(name, data=written[name][network])
    streams = {
        network: {
            "file": f"{network}_{{split}}.hdf5",
            "key": "{id}",
            "width": width,
            "spread": True,
            "kind": kind,
        }
        for network, width, kind in (("ResNet101", 8, "picture"), ("3DResNext101", 7, "motion"))
    }
    write_map(folder, streams)
    return written


def ruotianluo(folder: Path, ids: Sequence[str]) -> Written:
    """ruotianluo/self-critical.pytorch: one HDF5 a stream, its keys COCO's numbers; (C,) and (N, C)."""
    written: Written = {}
    with h5py.File(folder / "fc.h5", "w") as fc, h5py.File(folder / "att.h5", "w") as att:
        for seed, name in enumerate(ids):
            pooled, boxes = draw(seed, 8), draw(seed + 50, 2 + seed % 2, 8)
            key = str(int(name.rpartition("_")[2]))
            fc.create_dataset(key, data=pooled)
            att.create_dataset(key, data=boxes)
            written[name] = {"fc": pooled[None], "att": boxes[None]}
    streams = {
        "fc": {"file": "fc.h5", "key": "{number}", "width": 8, "network": "resnet101"},
        "att": {"file": "att.h5", "key": "{number}", "width": 8, "regions": "boxes", "count": 36},
    }
    write_map(folder, streams)
    return written


def packed(folder: Path, ids: Sequence[str]) -> Written:
    """``.npz`` with a grid (T, H, W, C) in half precision, under names of their own; the map is JSON."""
    written: Written = {}
    for seed, name in enumerate(ids):
        maps = draw(seed, 3, 2, 2, 6).astype(np.float16)
        np.savez(folder / f"clip{seed}.npz", feat=maps)
        written[name] = {"maps": maps.reshape(3, 4, 6).astype(np.float32)}
    (folder / "names.json").write_text(json.dumps({name: f"clip{i}" for i, name in enumerate(ids)}))
    stream = {"file": "{name}.npz", "key": "feat", "width": 6, "regions": "grid", "count": 4, "fps": 2}
    document = {"streams": {"maps": stream}, "names": "names.json"}
    (folder / "features.json").write_text(json.dumps(document))
    return written


def plain(folder: Path, ids: Sequence[str]) -> Written:
    """A folder of ``.npy`` beside one's own folder of videos, channels first and in double precision."""
    written: Written = {}
    for seed, name in enumerate(ids):
        rows = draw(seed, 3, 6)
        np.save(folder / f"{Path(name).stem}.npy", rows.T.astype(np.float64))
        written[name] = {"clip": rows}
    write_map(folder, {"clip": {"file": "{stem}.npy", "width": 6, "axes": "CT", "fps": 0.5}})
    return written


def joined(folder: Path, ids: Sequence[str]) -> Written:
    """One array of all videos with a list of their ids, and tensors of ``torch.save``: one alone, several."""
    pooled = draw(1, len(ids), 2, 6)
    np.save(folder / "all.npy", pooled)
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in ids))
    single = {name: draw(10 + place, 2, 6).astype(np.float16) for place, name in enumerate(ids)}
    several = {name: torch.from_numpy(draw(20 + place, 2, 4)).bfloat16() for place, name in enumerate(ids)}
    for name, array in single.items():
        torch.save(torch.from_numpy(array), folder / f"{name}.pt")
    torch.save(several, folder / "several.pth")
    common = {"width": 6, "fps": 2}
    streams = {
        "pooled": {"file": "all.npy", "ids": "ids.txt", **common},
        "single": {"file": "{id}.pt", **common},
        "several": {"file": "several.pth", "key": "{id}", **common, "width": 4},
    }
    write_map(folder, streams)
    return {
        name: {
            "pooled": pooled[place],
            "single": single[name].astype(np.float32),
            "several": several[name].float().numpy(),
        }
        for place, name in enumerate(ids)
    }


@dataclass(frozen=True)
class FeatureFormat:
    """A set, what writes its features, and when its first video's rows end."""

    data_set: str
    lay: Lay
    write: Callable[[Path, Sequence[str]], Written]
    ends: tuple[float, ...]


FORMATS: Mapping[str, FeatureFormat] = {
    "video_features": FeatureFormat("msvd", msvd, video_features, (2.56, 5.12)),
    "VATEX I3D": FeatureFormat("vatex", vatex, vatex_i3d, (1.28, 2.56, 3.84)),
    "hobincar HDF5": FeatureFormat("msrvtt", msrvtt, hobincar, (2.93, 5.86, 8.79, 11.72)),
    "ruotianluo HDF5": FeatureFormat("coco", karpathy, ruotianluo, (1.0,)),
    "npz": FeatureFormat("msrvtt", msrvtt, packed, (0.5, 1.0, 1.5)),
    "torch, and one array of all": FeatureFormat("msrvtt", msrvtt, joined, (0.5, 1.0)),
    "npy of one's own": FeatureFormat("folder", folder, plain, (2.0, 4.0, 6.0)),
}
