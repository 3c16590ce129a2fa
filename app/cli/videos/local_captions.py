"""Captions files in this process, whole or by their segments, and lists what failed: ``reelword caption``.

Captions (or lines of JSON, or the one document where a format but no folder is asked for) are all that
standard output gets; progress, warnings and failures go to standard error.
"""

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from PIL import Image

from app import terminal
from app.attention_picture.render import draw_attention_picture
from app.cli.videos.caption_output import CaptionOutput, write_file
from app.documents.exports import FORMATS
from app.documents.job import FileDocument, Note
from app.documents.segments import FilmDocument
from app.errors import JobFailure, UsageError
from app.extract.inputs import InputVideo, choose_names
from app.jobs.options import COMBINATIONS, CaptionerChoice, CaptionOptions
from app.pipeline.caption_files import Outcome, caption_videos
from app.pipeline.engine import Engine
from app.pipeline.installed_captioners import captioner_choices
from app.segments.film_captioner import FilmCaptioner, follow_film
from app.segments.loading import load_film_captioner, told_as_usage
from app.settings import Settings
from extractors.files import write_path
from extractors.media.errors import MediaError
from extractors.shots.segment import SegmentOptions
from models.caption import AttentionDocument


def caption_files(
    videos: Sequence[InputVideo],
    options: CaptionOptions,
    settings: Settings,
    output: CaptionOutput,
    segments: SegmentOptions | None = None,
) -> int:
    """Captions files, prints what came of each, and returns how many failed.

    Args:
        settings: where models are.
        output: what is printed, and where pictures and documents of the attention go.
        segments: how a film that is long enough to be cut is cut; its segments' lines follow its own. None
            to cut none.

    Raises:
        UsageError: nothing can be done for any file.
        EngineStartFailed: the models do not load.
    """
    files, is_alone = [video.file for video in videos], len(videos) == 1
    failed = []
    with terminal.show_progress(len(files)) as bar:
        with told_as_usage():
            choices = captioner_choices(settings)  # chosen before any network is loaded
            choice = choices.resolve(options) if choices.alone else None  # the engine refuses to have none
            if output.attention is not None:
                _make_folder(output.attention)
            bar.say("Loading models")
            engine = Engine(settings if choice is None else _only(settings, choice))
        bar.say("Captioning")
        outcomes = caption_videos(files, options, settings, engine)
        for outcome, name in zip(outcomes, choose_names(videos), strict=True):
            if output.attention is not None:
                write_attention(outcome, output.attention / name)
            bar.print(_format_lines(outcome, as_json=output.as_json, is_alone=is_alone))
            if not output.as_json:
                _warn(outcome.file, outcome.answer.warnings)
            if segments is not None and _is_cut(outcome, segments):
                films = load_film_captioner(settings, options, segments, engine)
                outcome = _caption_segments(outcome, films, bar, is_alone=is_alone)
            failed += [outcome] if outcome.error else []
    terminal.list_failures(
        [terminal.FailedFile.by(each.file, each.error) for each in failed if each.error], len(files)
    )
    return len(failed)


def write_attention(outcome: Outcome, path: Path) -> None:
    """Writes ``path``.json and ``path``.png for a file that has attention."""
    if outcome.attention is None or outcome.frames is None:
        return
    frames = [Image.fromarray(pixels) for pixels in outcome.frames]
    document = AttentionDocument.model_validate_json(outcome.attention)
    picture = io.BytesIO()
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_attention_picture(document, frames, outcome.answer.sampled or []).save(picture, "PNG")
    path.with_name(f"{path.name}.json").write_text(outcome.attention + "\n")
    path.with_name(f"{path.name}.png").write_bytes(picture.getvalue())


def to_document(outcome: Outcome) -> FileDocument:
    """Builds the members of a job's document, and the file."""
    answer = outcome.answer
    timings = {} if answer.timings is None else answer.timings.model_dump(exclude_unset=True)
    is_done = outcome.error is None
    return FileDocument.model_validate(
        {
            # bytes of a name that are no UTF-8 cannot stand in JSON: they are escaped
            "file": write_path(outcome.file),
            "state": outcome.state,
            "progress": 1.0 if is_done else 0.0,
            "attempt": 1,
            "filename": terminal.printable(outcome.file.name),
            **dict(answer),
            "timings": {**timings, "total": round(sum(timings.values()), 4)},
            "error": None if outcome.error is None else outcome.error.document(),
        }
    )


def _is_cut(outcome: Outcome, segments: SegmentOptions) -> bool:
    media = outcome.answer.media
    duration = 0.0 if media is None else media.duration or 0.0
    return outcome.error is None and segments.resolved(duration).kind != "none"


def _caption_segments(
    outcome: Outcome, films: FilmCaptioner, bar: terminal.FileProgress, *, is_alone: bool
) -> Outcome:
    """Prints a long film's segments; what goes wrong is its outcome."""
    try:
        prefix = "" if is_alone else f"{outcome.file}: "
        follow_film(outcome.file, films, prefix, lambda line: bar.print_more([line]))
    except (MediaError, JobFailure) as error:
        return replace(outcome, error=error)
    return outcome


def _only(settings: Settings, choice: CaptionerChoice) -> Settings:
    """Leaves out all captioners that will not write; fusion and ensemble are of all that are loaded."""
    if choice.captioner in COMBINATIONS:
        return settings
    return settings.model_copy(update={"captioners": (choice.captioner,), "captioner": choice.captioner})


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}.") from error


def _format_lines(outcome: Outcome, *, as_json: bool, is_alone: bool) -> list[str]:
    if as_json:
        return [terminal.printable_json(to_document(outcome).model_dump_json())]
    name = "" if is_alone else f"{outcome.file}: "
    return [terminal.printable(f"{name}{each.text}") for each in outcome.answer.captions or []]


def _warn(file: Path, warnings: Sequence[Note]) -> None:
    """Prints the warnings about a file that was captioned all the same."""
    for warning in warnings:
        terminal.complain(f"{file}: {warning.message} [{warning.code}]")


def caption_films(films: Sequence[InputVideo], captioner: FilmCaptioner, output: CaptionOutput) -> int:
    """Captions films by their segments, prints or writes what came of each, and returns how many failed.

    Args:
        output: what is printed and written.

    Raises:
        UsageError, EngineStartFailed: nothing can be done for any of them.
    """
    if output.form is not None and output.out is None and len(films) > 1:
        raise UsageError("Several films make several files: name a folder for them with --out.")
    failed: list[terminal.FailedFile] = []
    say = partial(print, flush=True) if output.prints_lines else _say_nothing
    for film, name in zip(films, choose_names(films), strict=True):
        try:
            prefix = "" if len(films) == 1 else f"{film.file}: "
            document = follow_film(film.file, captioner, prefix, say)
        except (MediaError, JobFailure) as error:
            failed.append(terminal.FailedFile.by(film.file, error))
            continue
        _write(document, name, output)
        _warn(film.file, document.warnings)
    terminal.list_failures(failed, len(films), "film")
    return len(failed)


def _say_nothing(_line: str) -> None:
    """Says nothing: standard output is for a document."""


def _write(document: FilmDocument, name: str, output: CaptionOutput) -> None:
    if output.form is None:
        if output.as_json:
            print(terminal.printable_json(document.on_players_clock().model_dump_json()), flush=True)
        return
    text = FORMATS[output.form].write(document.with_words(each.attention for each in document.segments))
    if output.out is None:
        sys.stdout.write(text)
    else:
        write_file(output.out / f"{name}.{output.form}", text.encode())
