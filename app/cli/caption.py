"""``python -m app caption``: files in, a caption for each on standard output, what failed at the end.

Captions (or lines of JSON) are all that standard output gets; progress, warnings and failures go to standard
error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from app.attention_picture.render import attention_picture
from app.documents.attention import AttentionDocument
from app.documents.job import ANSWER_MEMBERS, FileDocument
from app.errors import CaptionerUnavailable, JobFailure, UsageError, sentence
from app.extract.inputs import Input, find_videos
from app.jobs.options import CaptionOptions
from app.pipeline.caption_files import Outcome, caption_videos
from app.pipeline.engine import Engine
from app.pipeline.installed_captioners import captioner_choices
from app.progress import progress
from app.settings import Settings
from app.terminal import complain, printable, printable_json
from models.checkpoint import CheckpointError
from models.feature_sources.stream_sets import UnknownStreamSet


def caption_files(
    paths: Sequence[Path], options: CaptionOptions, settings: Settings, *, as_json: bool, folder: Path | None
) -> int:
    """Captions files, and the videos in folders, and prints what came of each; returns how many failed.

    folder: where pictures and documents of the attention go. Raises UsageError, EngineStartFailed.
    """
    videos = find_videos(paths, folder)
    files = [video.file for video in videos]
    _check_choice(options, settings)
    if folder is not None:
        _make(folder)
    failed = []
    with progress(len(files)) as bar:
        bar.say("Loading models")
        engine = _engine(settings)
        bar.say("Captioning")
        outcomes = caption_videos(files, options, settings, engine)
        for outcome, name in zip(outcomes, distinct_names(videos), strict=True):
            if folder is not None:
                keep_attention(outcome, folder / name)
            bar.print(_lines(outcome, as_json=as_json, is_alone=len(files) == 1))
            if not as_json:
                _warn(outcome)
            failed += [outcome] if outcome.error else []
    if not as_json or failed:
        _report(failed, len(files))
    return len(failed)


def distinct_names(videos: Sequence[Input]) -> list[str]:
    """A name for each video's pictures: its own, or name-2, name-3 … where that is taken.

    Compared without case, since some file systems do.
    """
    taken: set[str] = set()
    names = []
    for video in videos:
        name, number = video.name, 1
        while name.lower() in taken:
            number += 1
            name = f"{video.name}-{number}"
        taken.add(name.lower())
        names.append(name)
    return names


def keep_attention(outcome: Outcome, path: Path) -> None:
    """Writes ``path``.json and ``path``.png for a file that has attention."""
    if outcome.attention is None or outcome.frames is None:
        return
    frames = [Image.fromarray(pixels) for pixels in outcome.frames]
    document = AttentionDocument.model_validate(outcome.attention)
    picture = io.BytesIO()
    path.parent.mkdir(parents=True, exist_ok=True)
    attention_picture(document, frames, outcome.answer["sampled"]).save(picture, "PNG")
    path.with_name(f"{path.name}.json").write_text(json.dumps(outcome.attention))
    path.with_name(f"{path.name}.png").write_bytes(picture.getvalue())


def file_document(outcome: Outcome) -> FileDocument:
    """The members of a job's document, and the file."""
    answer = outcome.answer
    timings: Mapping[str, float] = answer.get("timings") or {}
    is_done = outcome.error is None
    return FileDocument.model_validate(
        {
            # bytes of a name that are no UTF-8 cannot stand in JSON: they are escaped
            "file": str(outcome.file).encode("utf-8", "backslashreplace").decode(),
            "state": outcome.state,
            "progress": 1.0 if is_done else 0.0,
            "attempt": 1,
            "filename": printable(outcome.file.name),
            **{name: answer.get(name) for name in ANSWER_MEMBERS},
            "warnings": answer.get("warnings") or [],
            "timings": {**timings, "total": round(sum(timings.values()), 4)},
            "error": None if outcome.error is None else outcome.error.document(),
        }
    )


def _check_choice(options: CaptionOptions, settings: Settings) -> None:
    """Before any network is loaded. Where there is nothing to choose from, the engine says so."""
    try:
        found = captioner_choices(settings.weights, settings.captioner)
        if found.alone:
            found.resolve(options)
    except CaptionerUnavailable as failure:  # which lists those that there are
        raise UsageError(str(failure)) from failure
    except JobFailure as failure:
        raise UsageError(f"{failure} {failure.hint}") from failure
    except CheckpointError as error:
        raise UsageError(sentence(str(error))) from error


def _engine(settings: Settings) -> Engine:
    try:
        return Engine(settings)
    except UnknownStreamSet as error:
        raise UsageError(sentence(str(error))) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}.") from error


def _lines(outcome: Outcome, *, as_json: bool, is_alone: bool) -> list[str]:
    if as_json:
        return [printable_json(file_document(outcome).model_dump_json())]
    name = "" if is_alone else f"{outcome.file}: "
    captions: list[dict[str, Any]] = outcome.answer.get("captions") or []
    return [printable(f"{name}{each['text']}") for each in captions]


def _warn(outcome: Outcome) -> None:
    """What was odd about a file that was captioned all the same."""
    for warning in outcome.answer.get("warnings") or []:
        complain(f"{outcome.file}: {warning['message']} [{warning['code']}]")


def _report(failed: Sequence[Outcome], count: int) -> None:
    """Which files failed, why, and what to do, after everything else."""
    if not failed:
        return
    complain(f"{len(failed)} of {count} {'file' if count == 1 else 'files'} failed:")
    for outcome in failed:
        if outcome.error is not None:
            error = outcome.error.document()
            complain(f"  {outcome.file}: {error['message']} {error['hint']} [{error['code']}]")
