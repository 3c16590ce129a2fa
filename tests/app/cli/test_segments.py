"""Films captioned from the command line: lines as they are known, and files of segments."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.cli.videos import local_captions
from app.cli.videos.video_options import CaptionOutput, FilmCut
from app.documents.exports import FORMATS
from app.documents.segments import FilmDocument
from app.errors import UsageError
from app.extract.inputs import find_videos
from app.segments.loading import segment_options
from app.terminal import PROGRAM, clock
from tests.app.captioners import WORDS, write_captioner
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


def run(tmp_path: Path, paths: list[Path], output: CaptionOutput) -> int:
    captioner = colour_captioner(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_captions, "load_film_captioner", lambda *_: captioner)
        films = find_videos(paths, output.out)
        return local_captions.caption_films(films, captioner.options, FilmCut(), output, captioner.settings)


def test_each_segment_is_a_line_and_the_summary_comes_last(
    films: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert run(tmp_path, [films / "one.mp4"], CaptionOutput()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"0:00:00\.0 0:00:03\.0 a scene of \d+ \d+ \d+", lines[0])
    assert lines[1].startswith("0:00:03.0 0:00:07.0 a scene of ")
    assert lines[2].startswith("in short: a scene of ")


def test_lines_of_several_films_begin_with_their_names(films: Path, tmp_path: Path, capsys: Captured) -> None:
    run(tmp_path, [films], CaptionOutput())
    lines = capsys.readouterr().out.splitlines()
    names = [str(films / "one.mp4"), str(films / "below" / "one.mp4")]
    assert all(line.startswith(tuple(f"{name}: " for name in names)) for line in lines)


@pytest.mark.parametrize("ending", sorted(FORMATS))
def test_a_format_alone_is_all_of_standard_output(
    films: Path, tmp_path: Path, capsys: Captured, ending: str
) -> None:
    run(tmp_path, [films / "one.mp4"], CaptionOutput(form=ending))
    printed = capsys.readouterr().out
    run(tmp_path, [films / "one.mp4"], CaptionOutput(form="json", out=tmp_path / "out"))
    document = FilmDocument.model_validate(json.loads((tmp_path / "out" / "one.json").read_text()))
    assert printed == FORMATS[ending].write(document)


def test_files_of_one_name_do_not_write_over_each_other(films: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(tmp_path, [films, films / "below"], CaptionOutput(form="vtt", out=out)) == 0
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert found == {"one.vtt", "below/one.vtt"}
    assert all((out / name).read_text().startswith("WEBVTT\n") for name in found)


def test_patterns_that_no_shell_replaced_are_found(films: Path) -> None:
    assert [film.file for film in find_videos([films / "**" / "o*.mp4"], None)] == [
        films / "below" / "one.mp4",
        films / "one.mp4",
    ]
    odd = films / "odd[1].mp4"
    os.link(films / "one.mp4", odd)
    assert [film.file for film in find_videos([odd], None)] == [odd]


def test_a_film_that_fails_is_told_of_and_the_others_are_written(
    films: Path, tmp_path: Path, capsys: Captured
) -> None:
    (films / "broken.mp4").write_text("this is no video")
    assert run(tmp_path, [films], CaptionOutput(form="srt", out=tmp_path / "out")) == 1
    assert "1 of 3 films failed:" in capsys.readouterr().err
    assert not (tmp_path / "out" / "broken.srt").exists()
    assert (tmp_path / "out" / "one.srt").exists()


def test_what_makes_no_sense_is_wrong_usage(films: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="vtt, srt, csv, json"):
        CaptionOutput(form="txt")
    with pytest.raises(UsageError, match="--out"):
        run(tmp_path, [films], CaptionOutput(form="vtt"))
    for words in ("scenes", "0", "-3", "nan"):
        with pytest.raises(UsageError):
            segment_options(words)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        run(tmp_path, [films / "one.mp4"], CaptionOutput(form="vtt", out=blocked))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("service")
    write_captioner(folder / "weights", seed=3)  # which says something
    return {
        "REELWORD_DATA": str(folder / "data"),
        "REELWORD_WEIGHTS": str(folder / "weights"),
        "COLUMNS": "200",
    }


def command(environment: dict[str, str], *arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments], env=environment, prog_name=PROGRAM)


def starts(run: Result) -> list[str]:
    """Of the segments that are printed. A captioner that knows nothing may have nothing to say of them."""
    return re.findall(r"^(\d:\d\d:\d\d\.\d) ", run.stdout, re.MULTILINE)


@pytest.fixture(scope="module")
def minute(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("films") / "minute.mp4", [20.0, 41.0], fps=4)


def test_the_command_cuts_a_film_as_it_is_told(
    environment: dict[str, str], minute: Path, tmp_path: Path
) -> None:
    run = command(environment, "caption", minute, "--segments", "30", "--format", "csv", "--out", tmp_path)
    assert (run.exit_code, run.stderr) == (0, "")
    assert starts(run) == ["0:00:00.0", "0:00:30.0"]
    written = (tmp_path / "minute.csv").read_text()
    assert [row.split(",")[:2] for row in written.splitlines()[1:]] == [
        ["0.000", "30.000"],
        ["30.000", "61.000"],
    ]
    again = command(environment, "caption", minute, "--segments", "30", "--format", "csv")
    assert again.stdout == written


def test_a_film_over_a_minute_has_its_shots_behind_its_caption(
    environment: dict[str, str], minute: Path
) -> None:
    run = command(environment, "caption", minute, "--longest", "30")
    assert set(run.stdout.splitlines()[0].split()) <= set(WORDS)
    assert starts(run) == ["0:00:00.0", "0:00:20.0", "0:00:50.0"]
    for arguments in (["--segments", "none"], ["--json"]):
        assert len(command(environment, "caption", minute, *arguments).stdout.splitlines()) == 1


def test_attention_is_kept_for_json(environment: dict[str, str], minute: Path) -> None:
    run = command(environment, "caption", minute, "--segments", "shots", "--format", "json")
    document = FilmDocument.model_validate_json(run.stdout)
    assert all(segment.attention is not None for segment in document.segments)
    run = command(environment, "caption", minute, "--segments", "shots", "--json")
    [line] = run.stdout.splitlines()
    assert all(segment.attention is None for segment in FilmDocument.model_validate_json(line).segments)


def test_the_command_searches(environment: dict[str, str], minute: Path, tmp_path: Path) -> None:
    run = command(environment, "search", " ".join(WORDS), minute, "--json", "--sheet", tmp_path / "sheet.png")
    assert run.exit_code == 0
    found = json.loads(run.stdout)
    assert found
    assert {each["source"] for each in found} == {str(minute)}
    assert (tmp_path / "sheet.png").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--segments", "scenes"],
        ["--format", "txt"],
        ["--out", "somewhere"],
        ["--segments", "shots", "--attention", "somewhere"],
        ["--segments", "shots", "--captioner", "nobody"],
        ["--shortest", "30"],
    ],
)
def test_a_command_that_makes_no_sense_is_wrong_usage(
    environment: dict[str, str], minute: Path, arguments: list[str]
) -> None:
    run = command(environment, "caption", minute, *arguments)
    assert run.exit_code == 2
    assert run.stdout == ""
    assert run.stderr.strip().endswith(".")


def test_times_of_any_length() -> None:
    assert clock(0.04) == "0:00:00.0"
    assert clock(59.96) == "0:01:00.0"
    assert clock(7325.5) == "2:02:05.5"
