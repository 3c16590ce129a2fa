"""Prints a film's segments as they are known, and writes files of them: ``reelword caption --segments``.

Standard output gets the lines, or the one document where a format but no folder is asked for; failures go to
standard error, at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from app.cli.videos.caption_output import CaptionOutput, write_file
from app.documents.segments import FilmDocument
from app.documents.subtitles import FORMATS
from app.errors import JobFailure, UsageError
from app.extract.inputs import InputVideo, choose_names
from app.segments.film_captioner import FilmCaptioner, follow_film
from app.terminal import FailedFile, complain, list_failures, printable_json
from extractors.media.errors import MediaError


def caption_films(films: Sequence[InputVideo], captioner: FilmCaptioner, output: CaptionOutput) -> int:
    """Captions films by their segments and prints or writes what came of each.

    Args:
        films: the files.
        captioner: what captions them.
        output: what is printed and written.

    Returns:
        How many failed.

    Raises:
        UsageError, EngineStartFailed: nothing can be done for any of them.
    """
    if output.form is not None and output.out is None and len(films) > 1:
        raise UsageError("Several films make several files: name a folder for them with --out.")
    failed: list[FailedFile] = []
    say = partial(print, flush=True) if output.prints_lines else _say_nothing
    for film, name in zip(films, choose_names(films), strict=True):
        try:
            prefix = "" if len(films) == 1 else f"{film.file}: "
            document = follow_film(film.file, captioner, prefix, say)
        except (MediaError, JobFailure) as error:
            failed.append(FailedFile.by(film.file, error))
            continue
        _write(document, name, output)
        for warning in document.warnings:
            complain(f"{film.file}: {warning.message} [{warning.code}]")
    list_failures(failed, len(films), "film")
    return len(failed)


def _say_nothing(_line: str) -> None:
    """Says nothing: standard output is for a document."""


def _write(document: FilmDocument, name: str, output: CaptionOutput) -> None:
    if output.form is None:
        if output.as_json:
            print(printable_json(document.on_players_clock().model_dump_json()), flush=True)
        return
    text = FORMATS[output.form].write(document)
    if output.out is None:
        sys.stdout.write(text)
    else:
        write_file(output.out / f"{name}.{output.form}", text.encode())
