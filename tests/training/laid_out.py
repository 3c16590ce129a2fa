"""Captioned clips laid out as each set's authors publish theirs, under names that their annotations use."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Captioned:
    """A file and what is said of it."""

    file: Path
    captions: tuple[str, ...]


Lay: TypeAlias = Callable[[Path, Sequence[Captioned]], Mapping[str, Captioned]]


def write_json(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def link(clip: Captioned, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(clip.file)


def youtube(place: int) -> str:
    """A clip's name as MSVD writes them: an id of eleven signs, which may begin with a dash."""
    return f"-vid{place:07d}_{3 * place}_{3 * place + 9}"


def msvd(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    named = {youtube(place): clip for place, clip in enumerate(clips)}
    lines = ["# MSVD", ""]
    for name, clip in named.items():
        link(clip, root / "YouTubeClips" / f"{name}{clip.file.suffix}")
        lines += [f"{name} {caption}" for caption in clip.captions]
    (root / "AllVideoDescriptions.txt").write_text("\n".join(lines), encoding="utf-8")
    return named


def msvd_csv(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    """The corpus' table: other languages in it, and clips that nobody has the video of."""
    named = {youtube(place): clip for place, clip in enumerate(clips)}
    head = ["VideoID", "Start", "End", "WorkerID", "Source", "AnnotationTime", "Language", "Description"]
    rows = [["gone0000000", 1, 5, 1, "clean", 9, "English", "a film that is gone"]]
    for name, clip in named.items():
        link(clip, root / "YouTubeClips" / f"{name}{clip.file.suffix}")
        video, start, end = name.rsplit("_", 2)
        rows += [[video, start, end, 1, "clean", 9, "English", caption] for caption in clip.captions]
        rows.append([video, start, end, 1, "clean", 9, "German", "ein Film"])
    with (root / "MSR Video Description Corpus.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([head, *rows])
    (root / "youtube_mapping.txt").write_text(
        "\n".join(f"{name} vid{place + 1}" for place, name in enumerate(named)), encoding="utf-8"
    )
    return named


def msrvtt(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    """All but two clips for training, one for validation, one for the test, which has a file of its own."""
    named = {f"video{place}": clip for place, clip in enumerate(clips)}
    documents: dict[str, Any] = {}
    for place, (name, clip) in enumerate(named.items()):
        is_test, left = place == len(clips) - 1, len(clips) - place
        split = "test" if is_test else "validate" if left == 2 else "train"
        link(clip, root / ("TestVideo" if is_test else "TrainValVideo") / f"{name}{clip.file.suffix}")
        document = documents.setdefault("test" if is_test else "train_val", {"videos": [], "sentences": []})
        times = {"start time": 137.72, "end time": 149.44}
        document["videos"].append(
            {"video_id": name, "split": split, "category": place % 20, "id": place, **times}
        )
        document["sentences"] += [
            {"video_id": name, "sen_id": i, "caption": caption} for i, caption in enumerate(clip.captions)
        ]
    for stem, document in documents.items():
        write_json(root / f"{stem}_videodatainfo.json", {"info": {"year": "2016"}, **document})
    return named


def vatex(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    named = {f"-id{place:08d}_{place:06d}_{place + 10:06d}": clip for place, clip in enumerate(clips)}
    entries = [
        {"videoID": name, "enCap": list(clip.captions), "chCap": ["一个男人在跳舞。"] * 5}
        for name, clip in named.items()
    ]
    for name, clip in named.items():
        link(clip, root / "videos" / f"{name}{clip.file.suffix}")
    write_json(root / "vatex_training_v1.0.json", entries[:-2])
    write_json(root / "vatex_validation_v1.0.json", entries[-2:-1])
    write_json(root / "vatex_public_test_english_v1.1.json", entries[-1:])
    return named


def mvad(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    named = {f"A_FILM_DVS{place}": clip for place, clip in enumerate(clips)}
    lines: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for place, (name, clip) in enumerate(named.items()):
        link(clip, root / "video" / "A_FILM" / f"{name}{clip.file.suffix}")
        split = {len(clips) - 2: "val", len(clips) - 1: "test"}.get(place, "train")
        lines[split] += [f"{name}.avi\t{caption}" for caption in clip.captions]
    for split, of_split in lines.items():
        (root / f"corpus_M-VAD_{split}.txt").write_text("\n".join(of_split), encoding="utf-8")
    return named


def flickr8k(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    named = {f"{place}_0a1b2c": clip for place, clip in enumerate(clips)}
    token = []
    for name, clip in named.items():
        link(clip, root / "Flicker8k_Dataset" / f"{name}.jpg")
        token += [f"{name}.jpg#{i}\t{caption}" for i, caption in enumerate(clip.captions)]
    text = root / "Flickr8k_text"
    text.mkdir()
    (text / "Flickr8k.token.txt").write_text("\n".join(token), encoding="utf-8")
    files = [f"{name}.jpg" for name in named]
    for split, listed in (("train", files[:-2]), ("dev", files[-2:-1]), ("test", files[-1:])):
        (text / f"Flickr_8k.{split}Images.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    return named


def coco(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    named: dict[str, Captioned] = {}
    for split, part in (("train", clips[:-1]), ("val", clips[-1:])):
        document: dict[str, Any] = {"images": [], "annotations": []}
        for place, clip in enumerate(part):
            name = f"COCO_{split}2014_{place:012d}"
            named[name] = clip
            link(clip, root / f"{split}2014" / f"{name}.jpg")
            document["images"].append({"id": place, "file_name": f"{name}.jpg", "height": 1, "width": 1})
            document["annotations"] += [
                {"id": i, "image_id": place, "caption": caption} for i, caption in enumerate(clip.captions)
            ]
        write_json(root / "annotations" / f"captions_{split}2014.json", document)
    return named


def karpathy(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    """COCO with Karpathy's splits."""
    named = {f"COCO_val2014_{place:012d}": clip for place, clip in enumerate(clips)}
    images = []
    for place, (name, clip) in enumerate(named.items()):
        link(clip, root / "val2014" / f"{name}.jpg")
        split = ("restval", "val", "test")[max(0, place - len(clips) + 3)]
        sentences = [{"raw": caption, "tokens": caption.split()} for caption in clip.captions]
        images.append(
            {"filename": f"{name}.jpg", "filepath": "val2014", "split": split, "sentences": sentences}
        )
    write_json(root / "dataset_coco.json", {"dataset": "coco", "images": images})
    return named


def folder(root: Path, clips: Sequence[Captioned]) -> Mapping[str, Captioned]:
    """One's own: spaces and letters of other languages in the names."""
    named = {f"meine Filme/ein Café {place}{clip.file.suffix}": clip for place, clip in enumerate(clips)}
    for name, clip in named.items():
        link(clip, root / name)
    splits = ["train"] * (len(clips) - 2) + ["val", "test"]
    entries = [
        {"file": name, "captions": list(clip.captions), "split": split}
        for (name, clip), split in zip(named.items(), splits, strict=True)
    ]
    write_json(root / "captions.json", entries)
    return named


LAYOUTS: Mapping[str, tuple[str, Lay]] = {
    "msvd": ("msvd", msvd),
    "msvd as a table": ("msvd", msvd_csv),
    "msrvtt": ("msrvtt", msrvtt),
    "vatex": ("vatex", vatex),
    "mvad": ("mvad", mvad),
    "flickr8k": ("flickr8k", flickr8k),
    "coco": ("coco", coco),
    "coco by Karpathy": ("coco", karpathy),
    "folder": ("folder", folder),
}
