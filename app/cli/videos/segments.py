"""Prints a film's segments as they are known, and writes files of them: ``reelword caption --segments``.

Standard output gets the lines, or the one document where a format but no folder is asked for; failures go to
standard error, at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.cli.videos.failures import FailedFile, list_failures
from app.documents.segments import FilmDocument
from app.documents.subtitles import FORMATS
from app.errors import JobFailure, UsageError
from app.extract.inputs import InputVideo, choose_names, find_videos
from app.jobs.options import CaptionOptions
from app.segments.film_captioner import FilmCaptioner, segment_lines
from app.segments.loading import load_film_captioner
from app.settings import Settings
from app.terminal import complain, printable_json
from extractors.files import atomic_write
from extractors.media.errors import MediaError
from extractors.shots.segment import SegmentOptions


@dataclass(frozen=True)
class SegmentOutput:
    """Holds where segments go."""

    format: str | None = None  #: of FORMATS, None for lines alone
    folder: Path | None = None  #: None for standard output
    as_json: bool = False  #: a line of JSON for each film, where no format is named

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise UsageError(f"There is no format {self.format}; there are: {', '.join(FORMATS)}.")
        if self.folder is not None and self.format is None:
            raise UsageError(f"--out is for files of segments: name their --format ({', '.join(FORMATS)}).")

    @property
    def prints_lines(self) -> bool:
        """Returns whether standard output is for lines."""
        return not self.as_json and (self.format is None or self.folder is not None)


def caption_by_segments(
    paths: Sequence[Path],
    options: CaptionOptions,
    segments: SegmentOptions,
    output: SegmentOutput,
    settings: Settings,
) -> int:
    """Captions files, and the films in folders, by their segments; returns how many failed.

    Args:
        paths: files, folders and patterns.
        options: of the captioner; attention is kept for JSON alone.
        segments: how films are cut.
        output: where segments go.
        settings: of all.

    Raises:
        UsageError: nothing can be done for any film.
        EngineStartFailed: the models do not load.
    """
    options = options.model_copy(update={"attention": output.format == "json"})
    films = find_videos(paths, output.folder)
    return caption_films(films, load_film_captioner(settings, options, segments), output)


def caption_films(films: Sequence[InputVideo], captioner: FilmCaptioner, output: SegmentOutput) -> int:
    """Captions films by their segments and prints or writes what came of each.

    Args:
        films: the files.
        captioner: what captions them.
        output: format, folder and whether attention is written.

    Returns:
        How many failed.

    Raises:
        UsageError, EngineStartFailed: nothing can be done for any of them.
    """
    if output.format is not None and output.folder is None and len(films) > 1:
        raise UsageError("Several films make several files: name a folder for them with --out.")
    failed: list[FailedFile] = []
    for film, name in zip(films, choose_names(films), strict=True):
        try:
            document = _caption(film, captioner, output, is_alone=len(films) == 1)
        except (MediaError, JobFailure) as error:
            failed.append(FailedFile.by(film.file, error))
            continue
        _write(document, name, output)
        for warning in document.warnings:
            complain(f"{film.file}: {warning.message} [{warning.code}]")
    list_failures(failed, len(films), "film")
    return len(failed)


def _caption(
    film: InputVideo, captioner: FilmCaptioner, output: SegmentOutput, *, is_alone: bool
) -> FilmDocument:
    """Prints the lines of a film as they are known, unless standard output is for a document."""
    reading = segment_lines(film.file, captioner, "" if is_alone else f"{film.file}: ")
    while True:
        try:
            line = next(reading)
        except StopIteration as end:
            document: FilmDocument = end.value
            return document
        if output.prints_lines:
            print(line, flush=True)


def _write(document: FilmDocument, name: str, output: SegmentOutput) -> None:
    if output.format is None:
        if output.as_json:
            print(printable_json(document.model_dump_json()), flush=True)
        return
    text = FORMATS[output.format].write(document)
    if output.folder is None:
        sys.stdout.write(text)
        return
    target = output.folder / f"{name}.{output.format}"
    try:
        with atomic_write(target) as file:
            file.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"The file {target} cannot be written: {error.strerror}.") from error
