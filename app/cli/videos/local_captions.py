"""Captions files in this process, whole or by their segments, and lists what failed: ``reelword caption``.

Captions (or lines of JSON, or the one document where a format but no folder is asked for) are all that
standard output gets; progress, warnings and failures go to standard error.
"""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from app import terminal
from app.attention_picture.render import draw_attention_picture
from app.cli.videos.video_options import CaptionOutput, FilmCut, write_file
from app.documents.exports import FORMATS
from app.documents.job import FileDocument, Note
from app.errors import UsageError
from app.extract.inputs import InputVideo, make_folder
from app.jobs.options import COMBINATIONS, CaptionerChoice, CaptionOptions
from app.pipeline.caption_files import Outcome, caption_videos
from app.pipeline.engine import Engine
from app.pipeline.installed_captioners import captioner_choices
from app.segments.film_captioner import follow_film
from app.segments.loading import load_film_captioner, told_as_usage
from app.settings import Settings
from extractors.files import write_path
from extractors.shots.segment import SegmentOptions
from models.caption import AttentionDocument


def caption_whole(
    videos: Sequence[InputVideo],
    options: CaptionOptions,
    cut: FilmCut,
    output: CaptionOutput,
    settings: Settings,
) -> int:
    """Captions videos, prints what came of each, and returns how many failed.

    A long film's segments follow its own caption, unless it is not to be cut or more than lines are wanted.

    Args:
        settings: where models are.

    Raises:
        UsageError: nothing can be done for any of them.
        EngineStartFailed: the models do not load.
    """
    segments = cut.read() if cut.segments is None and output.prints_lines and not output.attention else None
    engine, options = _load_engine(options, output, settings)
    outcomes = caption_videos([video.file for video in videos], options, settings, engine)

    def caption(video: InputVideo, bar: terminal.FileProgress) -> None:
        bar.say("Captioning")
        outcome = next(outcomes)
        if output.attention is not None:
            write_attention(outcome, output.attention / video.name)
        prefix = "" if len(videos) == 1 else f"{video}: "
        if output.as_json:
            bar.print(terminal.printable_json(to_document(video.file, outcome).model_dump_json()))
        else:
            captions = outcome.answer.captions or []
            bar.print(*(terminal.printable(f"{prefix}{each.text}") for each in captions))
            _warn(video, outcome.answer.warnings)
        if outcome.error is not None:
            raise outcome.error
        if segments is not None and _is_cut(outcome, segments):
            follow_film(
                video.file, load_film_captioner(settings, options, segments, engine), prefix, bar.print
            )

    return terminal.work_through(videos, caption)


def _load_engine(
    options: CaptionOptions, output: CaptionOutput, settings: Settings
) -> tuple[Engine, CaptionOptions]:
    """Loads what will write, and fills it in. Raises UsageError, EngineStartFailed."""
    with terminal.show_progress(1) as bar, told_as_usage():
        choices = captioner_choices(settings)  # chosen before any network is loaded
        choice = choices.resolve(options) if choices.alone else None  # the engine refuses to have none
        if output.attention is not None:
            make_folder(output.attention)
        bar.say("Loading models")
        engine = Engine(settings if choice is None else _only(settings, choice))
        return engine, engine.info.resolve(options)


def write_attention(outcome: Outcome, path: Path) -> None:
    """Writes ``path``.json and ``path``.png for a file that has attention. Raises UsageError."""
    if outcome.attention is None or outcome.frames is None:
        return
    frames = [Image.fromarray(pixels) for pixels in outcome.frames]
    document = AttentionDocument.model_validate_json(outcome.attention)
    picture = io.BytesIO()
    draw_attention_picture(document, frames, outcome.answer.sampled or []).save(picture, "PNG")
    write_file(path.with_name(f"{path.name}.json"), f"{outcome.attention}\n".encode())
    write_file(path.with_name(f"{path.name}.png"), picture.getvalue())


def to_document(file: Path, outcome: Outcome) -> FileDocument:
    """Builds the members of a job's document, and the file."""
    answer, error = outcome.answer, outcome.error
    timings = {} if answer.timings is None else answer.timings.model_dump(exclude_unset=True)
    return FileDocument.model_validate(
        {
            # bytes of a name that are no UTF-8 cannot stand in JSON: they are escaped
            "file": write_path(file),
            "state": "succeeded" if error is None else "failed",
            "progress": 1.0 if error is None else 0.0,
            "attempt": 1,
            "filename": terminal.printable(file.name),
            **dict(answer),
            "timings": {**timings, "total": round(sum(timings.values()), 4)},
            "error": None if error is None else error.document(),
        }
    )


def _is_cut(outcome: Outcome, segments: SegmentOptions) -> bool:
    media = outcome.answer.media
    return segments.resolved((media and media.duration) or 0.0).kind != "none"


def _only(settings: Settings, choice: CaptionerChoice) -> Settings:
    """Leaves out all captioners that will not write; fusion and ensemble are of all that are loaded."""
    if choice.captioner in COMBINATIONS:
        return settings
    return settings.model_copy(update={"captioners": (choice.captioner,), "captioner": choice.captioner})


def _warn(video: InputVideo, warnings: Sequence[Note]) -> None:
    """Prints the warnings about a file that was captioned all the same."""
    for warning in warnings:
        terminal.complain(f"{video}: {warning.message} [{warning.code}]")


def caption_films(
    films: Sequence[InputVideo],
    options: CaptionOptions,
    cut: FilmCut,
    output: CaptionOutput,
    settings: Settings,
) -> int:
    """Captions films by their segments, prints or writes what came of each, and returns how many failed.

    Args:
        settings: where models are.

    Raises:
        UsageError, EngineStartFailed: nothing can be done for any of them.
    """
    if output.form is not None and output.out is None and len(films) > 1:
        raise UsageError("Several films make several files: name a folder for them with --out.")
    captioner = load_film_captioner(settings, options, cut.read())

    def caption(film: InputVideo, bar: terminal.FileProgress) -> None:
        bar.say("Captioning")
        prefix = "" if len(films) == 1 else f"{film}: "
        document = follow_film(
            film.file, captioner, prefix, bar.print if output.prints_lines else _say_nothing
        )
        if output.form is not None:
            with_words = document.with_words(each.attention for each in document.segments)
            output.write_film(film.name, FORMATS[output.form].write(with_words).encode())
        elif output.as_json:
            bar.print(terminal.printable_json(document.on_players_clock().model_dump_json()))
        _warn(film, document.warnings)

    return terminal.work_through(films, caption, "film")


def _say_nothing(_line: str) -> None:
    """Says nothing: standard output is for a document."""
