"""Writes segments, and the moments of their words, for annotation tools and containers: COCO captions,
FiftyOne, Label Studio and Matroska. Lists these and the subtitles by their names.

Times are those of the clock that players use. A segment without a caption is left out.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeAlias
from xml.etree import ElementTree

from webvtt.models import Timestamp

from app.documents.job import Media
from app.documents.segments import FilmDocument, PlacedWord, SegmentDocument
from app.documents.subtitles import one_line, to_csv, to_json, to_srt, to_vtt
from models.caption import Weights

USUAL_FPS = 25.0  #: frames a second that Label Studio counts by where a file names none
Region: TypeAlias = dict[str, Any]  #: of Label Studio, or a part of one


def to_coco(film: FilmDocument) -> str:
    """Writes COCO captions: each segment is an image, named as a W3C media fragment of the film."""
    media = film.media or Media()
    images, annotations = [], []
    for number, segment in enumerate(_captioned(film), 1):
        name = f"{film.file}#t={segment.start:.3f},{segment.end:.3f}"
        images.append({"id": number, "file_name": name, "width": media.width, "height": media.height})
        words = [each.model_dump() for each in segment.words or ()]
        annotations.append({"id": number, "image_id": number, "caption": segment.caption, "words": words})
    return _json({"info": {"description": film.file}, "images": images, "annotations": annotations})


def to_fiftyone(film: FilmDocument) -> str:
    """Writes the labels of a FiftyOneTemporalDetectionDataset: captions and their words, with seconds."""
    detections = [
        {"label": each.word, "timestamps": [each.start, each.end]}
        for segment in _captioned(film)
        for each in _with_words(segment)
    ]
    return _json({"labels": {PurePath(film.file).stem: detections}})


def to_label_studio(film: FilmDocument) -> str:
    """Writes a Label Studio task with the captions and words as predictions; times are frames, from 1."""
    media = film.media or Media()
    fps = media.fps_average or media.fps or USUAL_FPS
    regions = [
        region
        for number, segment in enumerate(_captioned(film))
        for place, each in enumerate(_with_words(segment))
        for region in _regions_of(each, f"{number}-{place}", media, fps)
    ]
    prediction = {"model_version": film.model and film.model.captioner, "result": regions}
    return _json([{"data": {"video": film.file, "fps": fps}, "predictions": [prediction]}])


def to_chapters(film: FilmDocument) -> str:
    """Writes chapters as mkvmerge and mkvpropedit read them, a chapter for each segment."""
    root = ElementTree.Element("Chapters")
    edition = ElementTree.SubElement(root, "EditionEntry")
    for segment in _captioned(film):
        atom = ElementTree.SubElement(edition, "ChapterAtom")
        for name, seconds in (("ChapterTimeStart", segment.start), ("ChapterTimeEnd", segment.end)):
            ElementTree.SubElement(atom, name).text = str(Timestamp.from_seconds(seconds))
        display = ElementTree.SubElement(atom, "ChapterDisplay")
        ElementTree.SubElement(display, "ChapterString").text = segment.caption
        ElementTree.SubElement(display, "ChapterLanguage").text = "eng"
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, "unicode")}\n'


@dataclass(frozen=True)
class SegmentFormat:
    """Names a way to write a film's segments."""

    write: Callable[[FilmDocument], str]
    media_type: str = "application/json"  #: as HTTP has it
    has_words: bool = True  #: whether words are written with their moments


#: By the name that a command line and a path's ending have.
FORMATS: Mapping[str, SegmentFormat] = {
    "vtt": SegmentFormat(to_vtt, "text/vtt; charset=utf-8", has_words=False),
    "srt": SegmentFormat(to_srt, "application/x-subrip; charset=utf-8", has_words=False),
    "csv": SegmentFormat(to_csv, "text/csv; charset=utf-8", has_words=False),
    "json": SegmentFormat(to_json),
    "coco.json": SegmentFormat(to_coco),
    "fiftyone.json": SegmentFormat(to_fiftyone),
    "labelstudio.json": SegmentFormat(to_label_studio),
    "chapters.xml": SegmentFormat(to_chapters, "application/xml", has_words=False),
}


def _regions_of(shown: PlacedWord, name: str, media: Media, fps: float) -> Iterator[Region]:
    """Yields Label Studio's region of a text, a span of frames or a box that is there during them."""
    start, end, label = shown.start or 0.0, shown.end or 0.0, "segment" if name.endswith("-0") else "word"
    first = 1 + round(start * fps)
    last = max(first, round(end * fps))
    region = {"id": name, "to_name": "video"}
    if shown.box is None:
        span = {"ranges": [{"start": first, "end": last}], "timelinelabels": [label]}
        yield {**region, "from_name": "span", "type": "timelinelabels", "value": span}
    else:
        keys = [_key_frame(shown.box, first, fps), {**_key_frame(shown.box, last + 1, fps), "enabled": False}]
        frames = {"framesCount": media.frames or last, "duration": media.duration or end}
        box = {**frames, "sequence": keys, "labels": [label]}
        yield {**region, "from_name": "box", "type": "videorectangle", "value": box}
    yield {**region, "from_name": "text", "type": "textarea", "value": {"text": [shown.word]}}


def _key_frame(box: Weights, frame: int, fps: float) -> Region:
    """Places a box at a frame, in percent of the picture."""
    x, y, width, height = (round(100 * each, 3) for each in (*box[:2], box[2] - box[0], box[3] - box[1]))
    place = {"x": x, "y": y, "width": width, "height": height, "rotation": 0}
    return {**place, "frame": frame, "time": round((frame - 1) / fps, 4), "enabled": True}


def _captioned(film: FilmDocument) -> Iterator[SegmentDocument]:
    """Yields the segments that have a caption, each of one line, on the clock of players."""
    for segment in film.on_players_clock().segments:
        if caption := one_line(segment.caption):
            yield segment.model_copy(update={"caption": caption})


def _with_words(segment: SegmentDocument) -> list[PlacedWord]:
    """Lists a segment's caption with its times, and those of its words that have some."""
    whole = PlacedWord(word=segment.caption, start=segment.start, end=segment.end)
    return [whole, *(each for each in segment.words or () if each.start is not None)]


def _json(document: object) -> str:
    return f"{json.dumps(document, ensure_ascii=False, indent=1)}\n"
