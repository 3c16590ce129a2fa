"""Searches films for words: captions those that are new, ranks their moments, prints and draws the best."""

import io
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from app.attention_picture import drawing
from app.cli.videos.video_options import SearchRequest, write_file
from app.extract.inputs import InputVideo
from app.jobs.options import CaptionOptions
from app.pipeline.semantic_space import load_semantic_space
from app.search.jobs import search_service
from app.search.moments import Found, Moment, rank
from app.segments.film_captioner import FilmCaptioner
from app.segments.loading import load_film_captioner, segment_options
from app.segments.summary import INSTANT
from app.settings import Settings
from app.terminal import FileProgress, clock, complain, print_table, printable, printable_json, work_through
from extractors.decoder.decoder import Decoder
from extractors.media.request import DecodeRequest
from extractors.windows import Sampling

OF_JOBS = {"job", "picture"}  #: members that moments of films do not have
# of the page of pictures
COLUMNS = 4
TILE = (300, 200)  #: pixels that a picture is fitted into
LINE = drawing.SMALL + 7
LINES = 2  #: of a caption; longer ones are cut
WIDTH = 2 * drawing.MARGIN + COLUMNS * TILE[0] + (COLUMNS - 1) * drawing.GAP


def search_films(films: Sequence[InputVideo], request: SearchRequest, settings: Settings) -> int:
    """Searches films and prints what was found; returns how many could not be searched.

    Args:
        request: what is searched for, and how the answer is shown.
        settings: where models are, and the data folder, in which films that were captioned are known.

    Raises:
        UsageError: no film, a captioner that there is not, or a file that cannot be written.
        EngineStartFailed: the models do not load.
    """
    captioner = load_film_captioner(
        settings, CaptionOptions(attention=False), segment_options(request.segments)
    )
    moments: list[Moment] = []
    complain("Searching in this process: films that are new are captioned first.")
    with Decoder() as decoder:

        def look(film: InputVideo, bar: FileProgress) -> None:
            bar.say(f"Captioning {printable(film.file.name)}")
            moments.extend(_moments_of_film(film.file, str(film), captioner, decoder))

        failed = work_through(films, look, "film")
        show(rank(request.words, moments, captioner.space, request.count), request)
    return failed


def _moments_of_film(film: Path, name: str, captioner: FilmCaptioner, decoder: Decoder) -> Iterator[Moment]:
    """Yields a moment for each segment, captioned now where no earlier run has done it, in their order.

    name: how the film is named to the user. decoder: reads the pictures of those that are drawn. Raises
    leaves of MediaError, and JobFailure where the film cannot be captioned.
    """
    captioner.caption(film)
    for segment in captioner.known(film):
        shown = segment.on_players_clock
        yield Moment(
            source=name,
            start=shown.start,
            end=shown.end,
            time=shown.representative,
            caption=shown.caption,
            vector=segment.picture,
            picture=partial(_read_picture, film, segment.document.representative, decoder),
        )


def _read_picture(film: Path, time: float, decoder: Decoder) -> Image.Image:
    """Reads the frame on screen so many seconds after the first one. Raises leaves of MediaError."""
    request = DecodeRequest(Sampling(count=1), part=(time, time + INSTANT))
    return Image.fromarray(decoder.decode(film, request).frames.pixels[0])


def show_jobs(request: SearchRequest, settings: Settings) -> None:
    """Searches the service's jobs and prints what was found. Raises QueueUnavailable, UsageError."""
    show(search_service(request.words, settings, load_semantic_space(settings), request.count), request)


def show(found: Sequence[Found], request: SearchRequest) -> None:
    """Prints the moments, and writes their pictures. Raises UsageError where the file cannot be written."""
    if request.as_json:
        print(printable_json(json.dumps([each.document().model_dump(exclude=OF_JOBS) for each in found])))
    elif not found:
        complain("No moment fits these words.")
    else:
        print_table(("from", "to", "fit", "film", "caption"), [_format_cells(each) for each in found])
    if request.sheet is not None and found:
        page = io.BytesIO()
        contact_sheet(request.words, found).save(page, "PNG")
        write_file(request.sheet, page.getvalue())


def _format_cells(found: Found) -> tuple[str, ...]:
    moment = found.moment
    return clock(moment.start), clock(moment.end), f"{found.fit:.2f}", moment.source, moment.caption


def contact_sheet(words: str, found: Sequence[Found]) -> Image.Image:
    """Draws tiles in rows, the best first, below the words that were looked for; fetches the pictures."""
    rows = [found[begin : begin + COLUMNS] for begin in range(0, len(found), COLUMNS)]
    headline = drawing.draw_paragraph(words, drawing.HEADLINE, drawing.INK, WIDTH)
    return drawing.stack_blocks([headline, *(_row(row, k * COLUMNS) for k, row in enumerate(rows))], WIDTH)


def _row(found: Sequence[Found], before: int) -> Image.Image:
    row = drawing.make_block(WIDTH, TILE[1] + (1 + LINES) * LINE + drawing.GAP)
    for place, each in enumerate(found):
        left = drawing.MARGIN + place * (TILE[0] + drawing.GAP)
        _draw_tile(row, left, before + place + 1, each)
    return row


def _draw_tile(row: Image.Image, left: int, number: int, found: Found) -> None:
    moment, pen = found.moment, ImageDraw.Draw(row)
    picture = moment.picture().convert("RGB")
    picture.thumbnail(TILE, Image.Resampling.LANCZOS)
    row.paste(picture, (left, TILE[1] - picture.height))
    font = ImageFont.load_default(drawing.SMALL)
    when = f"{number}  {drawing.format_seconds(moment.start)} to {drawing.format_seconds(moment.end)}"
    where, size = drawing.fit_text(moment.source, drawing.SMALL, TILE[0] - font.getlength(when) - drawing.GAP)
    pen.text((left, TILE[1] + 5), when, fill=drawing.ACCENT, font=font)
    right = left + TILE[0]
    pen.text((right, TILE[1] + 5), where, fill=drawing.QUIET, font=ImageFont.load_default(size), anchor="ra")
    lines = drawing.wrap_text(moment.caption, font, TILE[0])
    for line, text in enumerate(lines[:LINES]):
        pen.text((left, TILE[1] + 5 + (line + 1) * LINE), text, fill=drawing.INK, font=font)
