"""Searching films: what fits best comes first, with its time and its picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.cli.videos.film_search import COLUMNS, TILE, WIDTH, contact_sheet, search_films
from app.cli.videos.video_options import SearchRequest
from app.errors import UsageError
from app.extract.inputs import find_videos
from app.search.moments import Found, Moment, rank, share_of_words
from app.segments.film_captioner import FilmCaptioner
from app.settings import Settings
from tests.app.segments.colour_space import ColourSpace, unit
from tests.app.segments.scripted_engine import ColourEngine, colour_captioner
from tests.extractors.shots.scenes import delay, texture, write_scenes

RED, BLUE = (250.0, 10.0, 10.0), (10.0, 10.0, 250.0)
Colour = tuple[float, float, float]


def moment(
    caption: str, colour: Colour | None = None, source: str = "film.mp4", start: float = 0.0
) -> Moment:
    vector = None if colour is None else unit([np.array(colour)])[0]
    shade = tuple(int(part) for part in colour or (0, 0, 0))

    def picture() -> Image.Image:
        return Image.new("RGB", (640, 360), shade)

    return Moment(source, start, start + 3, start + 1, caption, vector, picture)


def captions(found: list[Found]) -> list[str]:
    return [each.moment.caption for each in found]


def test_words_that_stand_in_a_caption_count_without_those_that_any_has() -> None:
    assert share_of_words("a dog in the snow", "the dog sits") == 0.5
    assert share_of_words("The DOG, and snow!", "a dog plays in snow") == 1.0
    assert share_of_words("the", "the dog") == 1.0
    assert share_of_words("cat", "a dog") == 0.0


def test_without_an_embedding_the_words_alone_decide() -> None:
    moments = [moment("a cat"), moment("a dog runs"), moment("a dog in the snow")]
    assert captions(rank("dog snow", moments, None, 5)) == ["a dog in the snow", "a dog runs"]
    assert captions(rank("dog snow", moments, None, 1)) == ["a dog in the snow"]
    assert rank("horse", moments, None, 5) == []
    assert rank("horse", [], ColourSpace(), 5) == []


def test_pictures_decide_where_captions_say_the_same() -> None:
    moments = [moment("128 10 10", BLUE), moment("128 10 10", RED), moment("128 10 10", None)]
    found = rank("250 10 10", moments, ColourSpace(), 5)
    assert found[0].moment is moments[1]
    assert found[0].fit > found[1].fit


@pytest.mark.parametrize("count", [1, COLUMNS, COLUMNS + 1])
def test_the_sheet_shows_each_picture_in_its_place(count: int) -> None:
    colours = [(250, 10 * k, 10) for k in range(count)]
    found = [Found(moment(f"moment {k} " * 30, colour), 1.0) for k, colour in enumerate(colours)]
    page = contact_sheet("what was looked for", found)
    assert page.width == WIDTH
    seen = {page.getpixel((x, y)) for x in range(0, page.width, 7) for y in range(0, page.height, 7)}
    assert set(colours) <= seen
    rows = -(-count // COLUMNS)
    assert page.height > rows * TILE[1]
    assert page.height < (rows + 1) * TILE[1] + 100 * rows


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    folder.mkdir()
    write_scenes(folder / "one.mp4", [3.0, 4.0, 3.0])
    write_scenes(folder / "two.mp4", [4.0, 3.0])
    return folder


Search = Callable[..., int]


@pytest.fixture
def engine() -> ColourEngine:
    return ColourEngine()


@pytest.fixture
def search(tmp_path: Path, engine: ColourEngine, monkeypatch: pytest.MonkeyPatch) -> Search:
    def load(*_: object) -> FilmCaptioner:
        return colour_captioner(tmp_path, engine)

    monkeypatch.setattr("app.cli.videos.film_search.load_film_captioner", load)

    def run(folder: Path, request: SearchRequest) -> int:
        return search_films(find_videos([folder], None), request, Settings(data=tmp_path))

    return run


def colour_words(scene: int) -> str:
    red, green, blue = texture(scene, 96, 64).mean(axis=(0, 1))
    return f"{red:.0f} {green:.0f} {blue:.0f}"


def test_the_moment_that_is_looked_for_comes_first(
    films: Path, search: Search, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheet = tmp_path / "sheet.png"
    assert search(films, SearchRequest(colour_words(1), count=3, sheet=sheet, as_json=True)) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 3
    best = {(Path(each["source"]).name, each["start"], each["end"]) for each in found[:2]}
    assert best == {("one.mp4", 3.0, 7.0), ("two.mp4", 4.0, 7.0)}  # the second scene of both
    assert all(each["start"] <= each["representative"] < each["end"] for each in found)
    assert [each["fit"] for each in found] == sorted((each["fit"] for each in found), reverse=True)
    with Image.open(sheet) as page:
        assert page.width == WIDTH


def test_moments_of_a_film_that_begins_late_count_as_players_do(
    films: Path, search: Search, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    late = tmp_path / "late"
    late.mkdir()
    delay(films / "one.mp4", late / "one.mkv", 3.0)
    for _ in range(2):  # from the journal, too
        request = SearchRequest(colour_words(1), count=1, sheet=tmp_path / "sheet.png", as_json=True)
        assert search(late, request) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert (found["start"], found["end"]) == (6.0, 10.0)
        with Image.open(tmp_path / "sheet.png") as page:
            assert page.width == WIDTH


def test_films_are_captioned_at_their_first_search_alone(
    films: Path, search: Search, engine: ColourEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    search(films, SearchRequest("scene"))
    assert "0:00:03.0" in capsys.readouterr().out
    calls = len(engine.seen)
    search(films, SearchRequest("scene"))
    assert len(engine.seen) == calls


def test_a_film_that_cannot_be_read_is_told_of_and_the_others_are_searched(
    films: Path, search: Search, capsys: pytest.CaptureFixture[str]
) -> None:
    (films / "broken.mp4").write_text("this is no video")
    assert search(films, SearchRequest("scene")) == 1
    told = capsys.readouterr()
    assert "broken.mp4" in told.err
    assert "not_a_video" in told.err
    assert "one.mp4" in told.out


def test_nothing_to_look_for_or_in_is_wrong_usage(search: Search, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        SearchRequest("  ")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        search(tmp_path / "empty", SearchRequest("dog"))
