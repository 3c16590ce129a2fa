"""Exports are what the tools that they are for read, with every text, time and place in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from pycocotools.coco import COCO

from app.api.routes.captions import Kind
from app.cli.videos.video_options import FORMS, CaptionOutput
from app.documents.exports import FORMATS, to_chapters, to_coco, to_fiftyone, to_label_studio
from app.documents.job import Media
from app.documents.segments import FilmDocument
from models.caption import AttentionDocument, Evidence
from reelword.calls import CaptionsKind
from tests.app.documents.test_subtitles import TEXTS, film, one_line

BOX = [0.25, 0.5, 0.75, 1.0]
SPAN = ("timelinelabels", "span")


@pytest.fixture
def dogs() -> FilmDocument:
    """Two segments and one without a caption, of a film whose picture begins late; the first has moments."""
    media = Media(first_picture=1.0, width=640, height=360, fps_average=10.0, frames=75, duration=7.5)
    three = film("a dog runs", " \n", "a cat").model_copy(update={"media": media})
    temporal = [None, [0.1, 0.9], [0.8, 0.2]]
    evidence = Evidence(temporal=temporal, spread=[False] * 3, moments=[None, 1, 0], boxes=[None, BOX, None])
    attention = AttentionDocument(
        words=["a", "dog", "runs"], content=[False, True, True], times=[[0.0, 1.0], [1.0, 2.5]],
        temporal=[[0.5, 0.5]] * 3, evidence=evidence,
    )  # fmt: skip
    return three.with_words([attention, None, None])


def test_words_have_moments_where_they_name_something(dogs: FilmDocument) -> None:
    first, *others = dogs.on_players_clock().segments
    assert first.words is not None
    assert [each.model_dump() for each in first.words] == [
        {"word": "a", "start": None, "end": None, "box": None},
        {"word": "dog", "start": 2.0, "end": 3.5, "box": BOX},
        {"word": "runs", "start": 1.0, "end": 2.0, "box": None},
    ]
    assert [each.words for each in others] == [None, None]


def test_pycocotools_reads_captions_and_scores_others_by_them(dogs: FilmDocument, tmp_path: Path) -> None:
    file = tmp_path / "film.coco.json"
    file.write_text(to_coco(dogs), encoding="utf-8")
    coco = COCO(str(file))
    images = coco.loadImgs(coco.getImgIds())
    assert [each["file_name"] for each in images] == ["film.mp4#t=1.000,3.500", "film.mp4#t=6.000,8.500"]
    assert {(each["width"], each["height"]) for each in images} == {(640, 360)}
    (dog,) = coco.loadAnns(coco.getAnnIds(imgIds=[1]))
    assert (dog["caption"], [each["word"] for each in dog["words"]]) == ("a dog runs", ["a", "dog", "runs"])
    results = coco.loadRes([{"image_id": each["id"], "caption": "a bird"} for each in images])
    assert [each["caption"] for each in results.loadAnns(results.getAnnIds())] == ["a bird"] * 2


def test_fiftyone_finds_the_film_by_its_stem_and_each_detection_by_its_seconds(dogs: FilmDocument) -> None:
    """Its importer takes ``labels[stem]``, and of each ``label`` and ``timestamps``."""
    document = json.loads(to_fiftyone(dogs))
    assert "classes" not in document  # else labels would be numbers of classes
    detections = document["labels"]["film"]
    assert [(each["label"], each["timestamps"]) for each in detections] == [
        ("a dog runs", [1.0, 3.5]), ("dog", [2.0, 3.5]), ("runs", [1.0, 2.0]), ("a cat", [6.0, 8.5]),
    ]  # fmt: skip


def regions(document: FilmDocument) -> list[dict[str, Any]]:
    (task,) = json.loads(to_label_studio(document))
    assert task["data"] == {"video": "film.mp4", "fps": 10.0}
    result: list[dict[str, Any]] = task["predictions"][0]["result"]
    return result


def test_label_studio_gets_spans_boxes_and_their_texts(dogs: FilmDocument) -> None:
    by_name: dict[str, dict[str, Any]] = {}
    for region in regions(dogs):
        by_name.setdefault(region["id"], {})[region["type"]] = region["value"]
    assert [each["textarea"]["text"] for each in by_name.values()] == [
        ["a dog runs"], ["dog"], ["runs"], ["a cat"],
    ]  # fmt: skip
    whole, dog, runs, _ = by_name.values()
    assert whole["timelinelabels"] == {"ranges": [{"start": 11, "end": 35}], "timelinelabels": ["segment"]}
    assert runs["timelinelabels"] == {"ranges": [{"start": 11, "end": 20}], "timelinelabels": ["word"]}
    shown, gone = dog["videorectangle"]["sequence"]
    assert shown == {
        "x": 25.0, "y": 50.0, "width": 50.0, "height": 50.0, "rotation": 0,
        "frame": 21, "time": 2.0, "enabled": True,
    }  # fmt: skip
    assert (gone["frame"], gone["enabled"]) == (36, False)
    assert dog["videorectangle"]["framesCount"] == 75


def test_label_studio_takes_each_region_by_the_interface_of_the_manual(
    dogs: FilmDocument, root: Path
) -> None:
    interfaces = pytest.importorskip(
        "label_studio_sdk.label_interface", reason="label-studio-sdk is not installed"
    )
    manual = (root / "docs" / "long-video.md").read_text()
    (layout,) = re.findall(r"```xml\n(<View>.*?)```", manual, re.DOTALL)
    interface = interfaces.LabelInterface(layout)
    prediction = {"result": regions(dogs)}
    assert interface.validate_prediction(prediction, return_errors=True) == []


def test_the_manuals_interface_has_every_control_and_label(dogs: FilmDocument, root: Path) -> None:
    manual = (root / "docs" / "long-video.md").read_text()
    (layout,) = re.findall(r"```xml\n(<View>.*?)```", manual, re.DOTALL)
    view = ElementTree.fromstring(layout)
    controls = {each.get("name"): each.tag.lower() for each in view if each.get("toName") == "video"}
    labels = {each.get("value") for each in view.iter("Label")}
    for region in regions(dogs):
        assert controls[region["from_name"]] == region["type"]
        value = region["value"]
        assert set(value.get("timelinelabels") or value.get("labels") or []) <= labels


def test_chapters_are_xml_with_every_text_and_time() -> None:
    written = to_chapters(film(*TEXTS))
    assert written.startswith("<?xml ")
    atoms = ElementTree.fromstring(written).findall("EditionEntry/ChapterAtom")
    assert [each.findtext("ChapterDisplay/ChapterString") for each in atoms] == list(map(one_line, TEXTS))
    times = [(each.findtext("ChapterTimeStart"), each.findtext("ChapterTimeEnd")) for each in atoms]
    assert times[1] == ("00:00:02.500", "00:00:05.000")
    assert {each.findtext("ChapterDisplay/ChapterLanguage") for each in atoms} == {"eng"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_film_without_anything_is_still_a_document(name: str) -> None:
    text = FORMATS[name].write(FilmDocument(file="film.mp4", segments=[]))
    if name.endswith("json"):
        json.loads(text)


def test_http_command_line_and_client_have_the_same_formats() -> None:
    assert set(FORMS) == set(FORMATS) == set(get_args(get_args(Kind)[0])) == set(get_args(CaptionsKind))
    for name, form in FORMATS.items():
        assert CaptionOutput(form=name).has_words == form.has_words
