"""Films captioned from the command line: lines as they are known, and files of segments."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from app.cli.segments import SegmentOutput, caption_films
from app.documents.segments import FilmDocument, clock
from app.documents.subtitles import FORMATS
from app.errors import UsageError
from app.segments.loading import find_films, segment_options
from tests.app.segments.scripted_engine import colour_captioner
from tests.extractors.shots.scenes import write_scenes

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    (folder / "below").mkdir(parents=True)
    write_scenes(folder / "one.mp4", [3.0, 4.0])
    write_scenes(folder / "below" / "one.mp4", [4.0, 3.0])
    return folder


def run(tmp_path: Path, paths: list[Path], output: SegmentOutput) -> int:
    return caption_films(find_films(paths, output.folder), colour_captioner(tmp_path), output)


def test_each_segment_is_a_line_and_the_summary_comes_last(
    films: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert run(tmp_path, [films / "one.mp4"], SegmentOutput()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"0:00:00\.0 0:00:03\.0 a scene of \d+ \d+ \d+", lines[0])
    assert lines[1].startswith("0:00:03.0 0:00:07.0 a scene of ")
    assert lines[2].startswith("in short: a scene of ")


def test_lines_of_several_films_begin_with_their_names(films: Path, tmp_path: Path, capsys: Captured) -> None:
    run(tmp_path, [films], SegmentOutput())
    lines = capsys.readouterr().out.splitlines()
    names = [str(films / "one.mp4"), str(films / "below" / "one.mp4")]
    assert all(line.startswith(tuple(f"{name}: " for name in names)) for line in lines)


@pytest.mark.parametrize("ending", sorted(FORMATS))
def test_a_format_alone_is_all_of_standard_output(
    films: Path, tmp_path: Path, capsys: Captured, ending: str
) -> None:
    run(tmp_path, [films / "one.mp4"], SegmentOutput(ending))
    printed = capsys.readouterr().out
    run(tmp_path, [films / "one.mp4"], SegmentOutput("json", tmp_path / "out"))
    document = FilmDocument.model_validate(json.loads((tmp_path / "out" / "one.json").read_text()))
    assert printed == FORMATS[ending].write(document)


def test_files_of_one_name_do_not_write_over_each_other(films: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(tmp_path, [films, films / "below"], SegmentOutput("vtt", out)) == 0
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert found == {"one.vtt", "below/one.vtt"}
    assert all((out / name).read_text().startswith("WEBVTT\n") for name in found)


def test_patterns_that_no_shell_replaced_are_found(films: Path) -> None:
    assert [film.file for film in find_films([films / "**" / "o*.mp4"], None)] == [
        films / "below" / "one.mp4",
        films / "one.mp4",
    ]
    odd = films / "odd[1].mp4"
    os.link(films / "one.mp4", odd)
    assert [film.file for film in find_films([odd], None)] == [odd]


def test_a_film_that_fails_is_told_of_and_the_others_are_written(
    films: Path, tmp_path: Path, capsys: Captured
) -> None:
    (films / "broken.mp4").write_text("this is no video")
    assert run(tmp_path, [films], SegmentOutput("srt", tmp_path / "out")) == 1
    assert "1 of 3 films failed:" in capsys.readouterr().err
    assert not (tmp_path / "out" / "broken.srt").exists()
    assert (tmp_path / "out" / "one.srt").exists()


def test_what_makes_no_sense_is_wrong_usage(films: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="vtt, srt, csv, json"):
        SegmentOutput("txt")
    with pytest.raises(UsageError, match="--out"):
        run(tmp_path, [films], SegmentOutput("vtt"))
    for words in ("scenes", "0", "-3", "nan"):
        with pytest.raises(UsageError):
            segment_options(words)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        run(tmp_path, [films / "one.mp4"], SegmentOutput("vtt", blocked))


def test_times_of_any_length() -> None:
    assert clock(0.04) == "0:00:00.0"
    assert clock(59.96) == "0:01:00.0"
    assert clock(7325.5) == "2:02:05.5"
