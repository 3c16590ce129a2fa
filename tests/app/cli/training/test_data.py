"""``reelword data check``: the table, the JSON, the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli as app
from tests.media import cut, write_video
from tests.training.laid_out import Captioned, msrvtt, write_json

RUNNER = CliRunner(env={"COLUMNS": "200"})


@pytest.fixture
def films(tmp_path: Path) -> Path:
    whole = write_video(tmp_path / "a.mp4", frames=8)
    cut(whole, tmp_path / "broken.mp4", 0.5)
    write_json(tmp_path / "captions.json", {"a.mp4": ["a square", "two squares"]})
    return tmp_path


def test_a_whole_folder_is_all_right(films: Path) -> None:
    for probe in ("none", "header", "deep"):
        done = RUNNER.invoke(app, ["data", "check", "folder", "--root", str(films), "--probe", probe])
        assert done.exit_code == 0, done.output
        assert "everything is there" in done.output
        assert "words of the vocabulary: 4" in done.output


def test_an_unreadable_video_is_named_and_fails(films: Path) -> None:
    write_json(films / "captions.json", {"a.mp4": "a square", "broken.mp4": "half a square"})
    done = RUNNER.invoke(app, ["data", "check", "folder", "--root", str(films)])
    assert done.exit_code == 1
    assert "broken.mp4" in done.output
    assert "1 of 2 videos are missing or unreadable" in done.output
    done = RUNNER.invoke(app, ["data", "check", "folder", "--root", str(films), "--json"])
    report = json.loads(done.output)
    assert report["unreadable"][0]["code"] == "incomplete_file"
    assert [(split["split"], split["found"], split["unreadable"]) for split in report["splits"]] == [
        ("train", 2, 1)
    ]
    assert report["complete"] is False


def test_a_papers_set_says_what_is_missing(films: Path) -> None:
    msrvtt(films, [Captioned(films / "a.mp4", ("a square",))] * 3)
    done = RUNNER.invoke(app, ["data", "check", "msr-vtt", "--root", str(films), "--paper", "refocus"])
    assert done.exit_code == 1
    assert "train: 6509 of 6512 videos are missing" in done.output
    assert "Microsoft Research" in done.output
    assert "captions cut after 15 words" in done.output


def test_wrong_usage_is_told(films: Path) -> None:
    for arguments, said in (
        (["data", "check", "imagenet", "--root", str(films)], "There are: msvd"),
        (["data", "check", "msvd", "--root", str(films), "--paper", "fusion"], "did not use MSVD"),
    ):
        done = RUNNER.invoke(app, arguments)
        assert done.exit_code == 2
        assert said in done.output


def test_a_missing_set_is_told_with_its_source(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["data", "check", "vatex", "--root", str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    assert "There is no folder" in done.output
    assert "vatex_training_v1.0.json" in done.output
    assert "eric-xw.github.io" in done.output
