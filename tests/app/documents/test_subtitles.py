"""Subtitles hold what the captions say, whatever stands in them, as others' readers read them."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import av
import pytest
from av.subtitles.subtitle import AssSubtitle

from app.documents.exports import FORMATS
from app.documents.job import Media
from app.documents.segments import FilmDocument, SegmentDocument
from app.documents.subtitles import to_csv, to_json, to_srt, to_vtt
from models.caption import AttentionDocument, ScoredCaption

TEXTS = (
    "a cat sits on a table",
    "a man & a <b>dog</b> --> a ball",
    "5 < 6 > 4 &amp; so on",
    "--> -->",
    'she said "hello, world", = 1',
    "first line\n\nsecond\x0bline\u2028third",
    "über 漢字 🐈",
    "2024",
    "<00:00:01.000>a <c.x>class</c>",
)


def film(*texts: str, step: float = 2.5) -> FilmDocument:
    return FilmDocument(
        file="film.mp4", segments=[segment(text, k * step, step) for k, text in enumerate(texts)]
    )


def segment(text: str, start: float, seconds: float) -> SegmentDocument:
    captions = [ScoredCaption(text=text, score=-1.25, words=[])]
    return SegmentDocument(
        start=start, end=start + seconds, representative=start, caption=text, captions=captions
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


def read_by_ffmpeg(text: str, path: Path) -> list[tuple[float, float, str]]:
    """(start, end, shown text) of each cue, by the demuxers and decoders of FFmpeg."""
    path.write_text(text, encoding="utf-8")
    cues = []
    with av.open(str(path)) as container:
        for packet in container.demux(container.streams.subtitles[0]):
            if packet.pts is None or packet.duration is None:
                continue
            shown = "".join(_dialogue(each) for each in packet.decode())
            start = float(packet.pts * packet.time_base)
            cues.append((start, start + float(packet.duration * packet.time_base), shown))
    return cues


def _dialogue(subtitle: object) -> str:
    assert isinstance(subtitle, AssSubtitle)
    return subtitle.dialogue.decode()


@pytest.mark.parametrize("ending", ["vtt", "srt"])
def test_ffmpeg_shows_each_caption_at_its_time(tmp_path: Path, ending: str) -> None:
    cues = read_by_ffmpeg(FORMATS[ending].write(film(*TEXTS)), tmp_path / f"film.{ending}")
    assert [(round(start, 3), round(end, 3)) for start, end, _ in cues] == [
        (2.5 * k, 2.5 * k + 2.5) for k in range(len(TEXTS))
    ]
    shown = [text.replace("‹", "<").replace("›", ">") for _, _, text in cues]
    assert shown == [one_line(text) for text in TEXTS]


def test_what_subrip_players_would_obey_or_leave_out_is_shown(tmp_path: Path) -> None:
    [(_, _, shown)] = read_by_ffmpeg(to_srt(film("{\\an8}up {y:i} <i>and</i> <on>")), tmp_path / "film.srt")
    assert shown == "(\\an8)up (y:i) ‹i›and‹/i› ‹on›"


TIMES = re.compile(r"(\d\d+):([0-5]\d):([0-5]\d)\.(\d{3}) --> (\d\d+):([0-5]\d):([0-5]\d)\.(\d{3})")


def test_webvtt_is_what_its_specification_allows() -> None:
    """Blocks between empty lines; no arrow, no bare < or & in a cue's text; times rise."""
    head, *blocks = to_vtt(film(*TEXTS)).rstrip("\n").split("\n\n")
    assert head == "WEBVTT"
    assert len(blocks) == len(TEXTS)
    ends = []
    for block in blocks:
        times, *lines = block.split("\n")
        matched = TIMES.fullmatch(times)
        assert matched is not None, times
        hours, minutes, seconds, millis, *end = map(int, matched.groups())
        start = 3600_000 * hours + 60_000 * minutes + 1000 * seconds + millis
        ends += [start, 3600_000 * end[0] + 60_000 * end[1] + 1000 * end[2] + end[3]]
        assert len(lines) == 1
        assert "-->" not in lines[0]
        assert "<" not in lines[0]
        assert re.fullmatch(r"(?:[^&]|&(?:amp|lt|gt);)*", lines[0])
    assert all(earlier <= later for earlier, later in pairwise(ends))


def test_times_beyond_an_hour_and_rounding() -> None:
    late = FilmDocument(
        file="x", segments=[segment("late", 7199.9996, 0.0001), segment("later", 36000.0, 59.9995)]
    )
    assert "02:00:00.000 --> 02:00:00.001" in to_vtt(late)
    assert "10:00:00,000 --> 10:01:00,000" in to_srt(late)


def test_csv_is_read_back_by_any_reader() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(film(*TEXTS)))))
    assert rows[0] == ["start", "end", "caption", "score"]
    assert [row[2].removeprefix("'") for row in rows[1:]] == [one_line(text) for text in TEXTS]
    assert rows[2][:2] == ["2.500", "5.000"]
    assert {row[3] for row in rows[1:]} == {"-1.25"}


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)"])
def test_csv_has_no_formulas(text: str) -> None:
    (_, row) = csv.reader(io.StringIO(to_csv(film(text))))
    assert row[2] == f"'{text}"


def test_json_is_the_whole_document() -> None:
    document = film(*TEXTS)
    assert FilmDocument.model_validate(json.loads(to_json(document))) == document


def test_a_segment_without_a_caption_has_no_cue() -> None:
    captioned = film("first", " \n", "third")
    assert to_vtt(captioned).count("-->") == to_srt(captioned).count("-->") == 2
    assert to_csv(captioned).count("\n") == 4


def test_a_film_without_segments_is_still_a_file() -> None:
    empty = film()
    assert to_vtt(empty).strip() == "WEBVTT"
    assert to_srt(empty) == ""
    assert to_csv(empty).count("\n") == 1


def test_karaoke_times_rise_and_lie_within_their_cue() -> None:
    spread = [False, True, False, False, False]
    attention = AttentionDocument(
        words=["dog", "runs", "<b>", "to", "cat"],
        content=[True, True, True, False, True],
        times=[[2.5, 3.0], [3.0, 4.0], [4.0, 5.0]],
        temporal=[[0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0]],
        spread=spread,
    )
    one, two = film("no maps", "dog runs <b> to cat").segments
    written = to_vtt(FilmDocument(file="film.mp4", segments=[one, two]).with_words([None, attention]))
    assert "\nno maps\n" in written
    assert "\n<00:00:03.000>dog runs <00:00:04.000>&lt;b&gt; to cat" in written


def test_cues_of_a_picture_that_begins_late_are_on_the_clock_of_players() -> None:
    late = film("one", "two").model_copy(update={"media": Media(first_picture=3.0)})
    assert "00:00:03.000 --> 00:00:05.500" in to_vtt(late)
    assert "00:00:05,500 --> 00:00:08,000" in to_srt(late)
    assert to_csv(late).splitlines()[1].startswith("3.000,5.500,one")
    assert [each["start"] for each in json.loads(to_json(late))["segments"]] == [3.0, 5.5]
