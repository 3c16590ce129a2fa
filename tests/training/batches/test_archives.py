"""Both JSON forms, tar and folder, and what is said of files that are neither."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.vocabulary import split_words
from tests.training.tiny_corpus import draw, png, write_corpus, write_tar
from training.batches.archives import CorpusError, read_items, read_pictures

COCO = {
    "images": [
        {"id": 7, "file_name": "a.jpg", "split": "train"},
        {"id": 8, "file_name": "b.jpg", "split": "val"},
        {"id": 9, "file_name": "c.jpg", "split": "train"},
    ],
    "annotations": [
        {"image_id": 8, "caption": "A dog."},
        {"image_id": 7, "caption": "A cat!"},
        {"image_id": 7, "caption": "Two cats"},
        {"image_id": 9, "caption": " ... "},
    ],
}
MSRVTT = {
    "videos": [
        {"id": "video1", "split": "train", "frames": [{"file_name": "1_0.jpg"}, {"file_name": "1_1.jpg"}]}
    ],
    "annotations": [{"video_id": "video1", "caption": "a man talks"}],
}


def write(path: Path, document: Any) -> Path:
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_pictures_with_captions_in_the_files_order(tmp_path: Path) -> None:
    """A picture whose only caption has no word is left out."""
    items = read_items(write(tmp_path / "coco_captions.json", COCO))
    assert [(item.id, item.files, item.captions, item.split) for item in items] == [
        ("coco/7", ("a.jpg",), ("A cat!", "Two cats"), "train"),
        ("coco/8", ("b.jpg",), ("A dog.",), "val"),
    ]


def test_one_split(tmp_path: Path) -> None:
    path = write(tmp_path / "coco_captions.json", COCO)
    assert [item.id for item in read_items(path, "val")] == ["coco/8"]
    with pytest.raises(CorpusError, match=r"'test'.*train, val"):
        read_items(path, "test")


def test_videos_list_their_frames(tmp_path: Path) -> None:
    [item] = read_items(write(tmp_path / "msrvtt_captions.json.gz", MSRVTT), "train")
    assert (item.id, item.files) == ("msrvtt/video1", ("1_0.jpg", "1_1.jpg"))


@pytest.mark.parametrize("document", [[], {"annotations": []}])
def test_another_form_is_refused_with_the_manual(tmp_path: Path, document: Any) -> None:
    with pytest.raises(CorpusError, match=r"neither.*docs/training\.md"):
        read_items(write(tmp_path / "other.json", document))


def test_tar_and_folder_give_the_same_pictures(tmp_path: Path) -> None:
    images = {f"{colour}.png": draw(colour, "circle", 1) for colour in ("red", "blue", "green")}
    files = {name: png(image) for name, image in images.items()}
    archive = write_tar(tmp_path / "pictures.tar", files)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    wanted = ["blue.png", "red.png"]
    for source in (archive, folder):
        found = dict(read_pictures(source, wanted))
        assert found.keys() == set(wanted)
        for name, pixels in found.items():
            np.testing.assert_array_equal(pixels, np.asarray(images[name]))


@pytest.mark.parametrize("form", ["tar", "folder"])
def test_a_missing_picture_is_named(tmp_path: Path, form: str) -> None:
    archive, _ = write_corpus(tmp_path / "set", 2)
    source = archive if form == "tar" else archive.parent
    with pytest.raises(CorpusError, match=r"lacks 1 pictures.*absent\.png"):
        list(read_pictures(source, ["000.png", "absent.png"] if form == "tar" else ["absent.png"]))


def test_greyscale_and_transparent_pictures_become_rgb(tmp_path: Path) -> None:
    picture = draw("red", "square", 0)
    files = {"grey.png": png(picture.convert("L")), "alpha.png": png(picture.convert("RGBA"))}
    for _, pixels in read_pictures(write_tar(tmp_path / "t.tar", files), list(files)):
        assert pixels.shape == (36, 48, 3)
        assert pixels.dtype == np.uint8


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man's dog.", ["a", "man", "'s", "dog"]),
        ("They're here, I've won", ["they", "'re", "here", "i", "'ve", "won"]),
        ("It'll rain; he'd say I'm in", ["it", "'ll", "rain", "he", "'d", "say", "i", "'m", "in"]),
        ("The dogs' bowl", ["the", "dogs", "bowl"]),
        ('"Stop" sign, 2 cars', ["stop", "sign", "2", "cars"]),
        ("a black-and-white t-shirt", ["a", "black", "and", "white", "t", "shirt"]),
        (" ... ", []),
    ],
)
def test_words(caption: str, words: list[str]) -> None:
    assert split_words(caption) == words
