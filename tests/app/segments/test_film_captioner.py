"""A film is begun once: another run resumes after the last segment, and what is done costs nothing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from app.documents.segments import FilmDocument, SegmentDocument
from app.errors import CaptionerUnknown, UsageError
from app.jobs.options import CaptionOptions
from app.segments.film_captioner import FilmCaptioner, follow_film
from extractors.media.errors import NotAVideo
from extractors.shots.segment import SegmentOptions
from tests.app.segments.colour_space import ColourSpace
from tests.app.segments.scripted_engine import ColourEngine, caption_of, colour_captioner
from tests.extractors.shots.scenes import delay, write_scenes

LENGTHS = [3.0, 4.0, 2.5, 6.0, 3.0, 2.5]


@pytest.fixture
def film(tmp_path: Path) -> Path:
    return write_scenes(tmp_path / "film.mp4", LENGTHS)


class Stopped(Exception):
    """Ends a run as Ctrl-C would."""


def read(captioner: FilmCaptioner, film: Path, most: int = 100) -> tuple[list[SegmentDocument], FilmDocument]:
    """Captions a film; stops when it is shown more than ``most`` segments."""
    segments: list[SegmentDocument] = []

    def show(segment: SegmentDocument) -> None:
        segments.append(segment)
        if len(segments) > most:
            raise Stopped

    return segments, captioner.caption(film, show)


def videos(engine: ColourEngine) -> int:
    return sum(map(len, engine.seen))


def test_the_document_tells_all_that_is_known(tmp_path: Path, film: Path) -> None:
    segments, document = read(colour_captioner(tmp_path), film)
    assert len(segments) == len(LENGTHS)
    assert document.segments == segments
    assert document.media is not None
    assert document.media.frames == round(sum(LENGTHS) * 10)
    assert document.model is not None
    assert document.model.captioner == "colour"
    for segment in segments:
        assert segment.caption == segment.captions[0].text
        assert segment.attention is not None
        starts = [start for start, _ in segment.attention.times]
        assert starts == pytest.approx(segment.sampled, abs=1e-3)
        assert segment.start <= starts[0] < segment.end


def test_what_is_shown_counts_as_players_do_also_from_the_journal(tmp_path: Path, film: Path) -> None:
    """The film's first picture is shown at 3 s; the document's own times count from it."""
    late = delay(film, tmp_path / "late.mkv", 3.0)
    shown, document = read(colour_captioner(tmp_path), late)
    assert document.first_picture == pytest.approx(3.0)
    for one, other in zip(shown, document.segments, strict=True):
        assert (one.start, one.end) == pytest.approx((other.start + 3.0, other.end + 3.0))
        assert one.caption == other.caption
    again, _ = read(colour_captioner(tmp_path), late)
    assert again == shown
    lines: list[str] = []
    follow_film(late, colour_captioner(tmp_path), "", lines.append)
    assert lines[0].startswith("0:00:03.0 0:00:06.0 ")


def test_the_summary_is_of_the_segments_representatives(tmp_path: Path, film: Path) -> None:
    engine = ColourEngine()
    segments, document = read(colour_captioner(tmp_path, engine), film)
    [clip] = engine.seen[-1]
    assert len(clip) == 4
    assert document.summary == caption_of(clip)
    shades = [picture.mean(axis=(0, 1)) for picture in clip.pixels]
    captions = [f"a scene of {red:.0f} {green:.0f} {blue:.0f}" for red, green, blue in shades]
    told = ColourSpace().sentences([segment.caption for segment in segments])
    nearest = ColourSpace().sentences(captions) @ told.T
    assert list(nearest.argmax(1)) == sorted(set(nearest.argmax(1)))  # four different ones, in their order


def test_a_run_that_was_ended_is_gone_on_with(tmp_path: Path, film: Path) -> None:
    whole, document = read(colour_captioner(tmp_path / "other"), film)
    engine = ColourEngine()
    with pytest.raises(Stopped):
        read(colour_captioner(tmp_path, engine), film, most=2)
    again = ColourEngine()
    segments, gone_on = read(colour_captioner(tmp_path, again), film)
    assert segments == whole
    assert gone_on == document
    assert videos(again) == len(LENGTHS) - 2 + 1  # two were kept, and the summary


def test_a_film_that_is_done_costs_nothing(tmp_path: Path, film: Path) -> None:
    first = read(colour_captioner(tmp_path), film)
    engine = ColourEngine()
    assert read(colour_captioner(tmp_path, engine), film) == first
    assert engine.seen == []


@pytest.mark.parametrize(
    "changes",
    [
        {"options": CaptionOptions(beam_size=3)},
        {"segments": SegmentOptions("shots", maximum=5.0)},
        {"weights": ["another"]},
    ],
)
def test_whatever_decides_the_captions_begins_anew(
    tmp_path: Path, film: Path, changes: dict[str, object]
) -> None:
    read(colour_captioner(tmp_path), film)
    engine = ColourEngine()
    read(colour_captioner(tmp_path, engine, **changes), film)
    assert engine.seen


def test_another_film_of_the_same_name_begins_anew(tmp_path: Path, film: Path) -> None:
    read(colour_captioner(tmp_path), film)
    write_scenes(film, LENGTHS[:3])
    segments, _ = read(colour_captioner(tmp_path), film)
    assert len(segments) == 3


@pytest.mark.parametrize("torn", [b'{"segment": {"start": 9', b"{}\n", b"\x00\xff\n"])
def test_a_torn_line_is_dropped(tmp_path: Path, film: Path, torn: bytes) -> None:
    whole = read(colour_captioner(tmp_path), film)
    [journal] = (tmp_path / "data" / "segments").glob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + torn)
    engine = ColourEngine()
    assert read(colour_captioner(tmp_path, engine), film) == whole
    assert videos(engine) == len(LENGTHS) - 2 + 1
    assert journal.read_bytes() == b"".join(lines)


def test_old_journals_are_removed(tmp_path: Path, film: Path) -> None:
    read(colour_captioner(tmp_path), film)
    [journal] = (tmp_path / "data" / "segments").glob("*.jsonl")
    os.utime(journal, (0, 0))
    read(colour_captioner(tmp_path, options=CaptionOptions(beam_size=2)), film)
    assert not journal.exists()


def test_pictures_are_kept_as_vectors(tmp_path: Path, film: Path) -> None:
    one = colour_captioner(tmp_path)
    one.caption(film)
    for known in one.known(film):
        assert known.picture is not None
        [sentence] = ColourSpace().sentences([known.document.caption])
        assert float(known.picture @ sentence) > 0.9
        assert np.linalg.norm(known.picture) == pytest.approx(1.0, abs=1e-2)


def test_an_engine_that_fails_leaves_what_was_known(tmp_path: Path, film: Path) -> None:
    with pytest.raises(CaptionerUnknown):
        colour_captioner(tmp_path, ColourEngine(fail_at=3)).caption(film)
    engine = ColourEngine()
    segments, _ = read(colour_captioner(tmp_path, engine), film)
    assert len(segments) == len(LENGTHS)
    assert videos(engine) == len(LENGTHS) - 3 + 1


def test_what_is_no_film_is_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("this is no video")
    with pytest.raises(NotAVideo):
        colour_captioner(tmp_path).caption(text)
    with pytest.raises(UsageError):
        colour_captioner(tmp_path).caption(tmp_path / "absent.mp4")
