"""Writes segments for players, editors and spreadsheets: WebVTT, SubRip, CSV, and the whole as JSON.

A caption is one line in all of them. WebVTT has escapes for what would be markup. SubRip has none, and
players leave out whatever stands in angle brackets or braces: there they become signs that look alike. Times
are those of the clock that players use.
"""

import csv
import html
import io
from collections.abc import Sequence

from webvtt import Caption, WebVTT
from webvtt.models import Timestamp

from app.documents.segments import FilmDocument, SegmentDocument
from models.caption import space_between

SHORTEST = 0.001  #: seconds of a cue: one that ends as it begins is not shown
LOOK_ALIKES = str.maketrans({"<": "‹", ">": "›", "{": "(", "}": ")"})
CSV_COLUMNS = ("start", "end", "caption", "score")


def to_vtt(film: FilmDocument) -> str:
    """Writes WebVTT, a cue for each segment that has a caption.

    Where the film has its words, each appears when its moment begins, never before the one in front of it.
    """
    segments = film.on_players_clock().segments
    texts = [_timed(each) if each.words else _escaped(one_line(each.caption)) for each in segments]
    return WebVTT(captions=_cues(segments, texts)).content


def to_srt(film: FilmDocument) -> str:
    """Writes SubRip, a cue for each segment that has a caption."""
    text = io.StringIO()
    segments = film.on_players_clock().segments
    cues = _cues(segments, [one_line(each.caption).translate(LOOK_ALIKES) for each in segments])
    WebVTT(captions=cues).write(text, format="srt")
    return f"{text.getvalue()}\n" if cues else ""


def to_csv(film: FilmDocument) -> str:
    """Writes comma-separated values below a line of headings; seconds to the millisecond."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(CSV_COLUMNS)
    for segment in film.on_players_clock().segments:
        score = segment.captions[0].score if segment.captions else ""
        times = (f"{segment.start:.3f}", f"{segment.end:.3f}")
        lines.writerow((*times, _no_formula(one_line(segment.caption)), score))
    return text.getvalue()


def to_json(film: FilmDocument) -> str:
    """Writes the whole document."""
    return f"{film.on_players_clock().model_dump_json(indent=1)}\n"


def _cues(segments: Sequence[SegmentDocument], texts: Sequence[str]) -> list[Caption]:
    """Makes a cue of each segment that has a text."""
    return [
        Caption(
            str(Timestamp.from_seconds(segment.start)),
            str(Timestamp.from_seconds(max(segment.end, segment.start + SHORTEST))),
            text,
        )
        for segment, text in zip(segments, texts, strict=True)
        if text
    ]


def _timed(segment: SegmentDocument) -> str:
    """Puts before each word that names a moment when that begins, within the cue and never falling."""
    reached, line, before = segment.start, "", None
    for each in segment.words or ():
        text = _escaped(one_line(each.word))
        if each.start is not None and reached + SHORTEST <= each.start < segment.end:
            reached, text = each.start, f"<{Timestamp.from_seconds(each.start)}>{text}"
        line += text if before is None else space_between(before, each.word) + text
        before = each.word
    return line


def one_line(text: str) -> str:
    """Leaves out what ends a line or a cue, or cannot be printed."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _no_formula(text: str) -> str:
    """Has a spreadsheet take for a text what begins like a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
