"""Captions files by a running service, and prints what came of each as captioning here does."""

import json
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from app import terminal
from app.cli.server import Server, ServiceRefused
from app.cli.videos.video_options import CaptionOutput, write_file
from app.errors import for_commands
from app.extract.inputs import InputVideo
from app.jobs.options import CaptionOptions
from extractors.errors import ReelwordError
from extractors.files import write_path
from extractors.media.errors import MissingFile

AT_ONCE = 4  #: videos that are sent before the first one's caption is waited for
FOR_ALL = (401, 403)  #: answers that the next video would have too

Document = dict[str, Any]


def caption_by_server(
    server: Server, videos: Sequence[InputVideo], options: CaptionOptions, output: CaptionOutput
) -> int:
    """Captions videos, prints what came of each, and returns how many failed.

    Args:
        options: how captions are written, and how films are cut.
        output: what is printed and written.

    Raises:
        UsageError: the output cannot be written.
        ServiceUnreachable, ServiceRefused: the service answers for none of them.
    """
    with closing(_run(server, videos, _make_form(options))) as documents:

        def show(video: InputVideo, bar: terminal.FileProgress) -> terminal.FailedFile | None:
            bar.say("Captioning")
            document = next(documents)
            fault = document["error"]
            if document["state"] == "succeeded":
                _write(server, document, video.name, output)
                if output.as_json and options.segments not in (None, "none"):
                    film = server.get(f"/jobs/{document['id']}/captions.json").json()
                    document = {**film, "state": document["state"], "error": None}
            if output.form is None or output.out is not None:
                bar.print(*_make_lines(video, document, output, "" if len(videos) == 1 else f"{video}: "))
            if not output.as_json:
                for warning in document["warnings"]:
                    terminal.complain(f"{video}: {warning['message']} [{warning['code']}]")
            if fault is None:
                return None
            advice = f"{fault['message']} {for_commands(fault['hint'])}"
            return terminal.FailedFile(video.place, advice, fault["code"])

        return terminal.work_through(videos, show)


def _make_form(options: CaptionOptions) -> dict[str, str]:
    """Writes what is not by default as the form has it."""
    values = options.model_dump(mode="json", exclude_defaults=True)
    texts = {name: ",".join(value) if isinstance(value, list) else value for name, value in values.items()}
    return {
        name: text if isinstance(text, str) else json.dumps(text)
        for name, text in texts.items()
        if text is not None
    }


def _run(server: Server, videos: Sequence[InputVideo], form: dict[str, str]) -> Generator[Document]:
    """Yields the jobs' documents in order; cancels what waits where the command is stopped."""
    left, jobs = iter(videos), deque[str | Document]()
    try:
        while True:
            jobs += [_submit(server, video, form) for video in islice(left, AT_ONCE - len(jobs))]
            if not jobs:
                return
            document = server.wait(jobs[0]) if isinstance(jobs[0], str) else jobs[0]
            jobs.popleft()
            yield document
    finally:
        for job in jobs:
            if isinstance(job, str):
                with suppress(ReelwordError):  # of a service that is gone
                    server.delete(f"/jobs/{job}")


def _submit(server: Server, video: InputVideo, form: dict[str, str]) -> str | Document:
    """Sends a video; returns its job's id, or the document of one that failed where it cannot be taken."""
    try:
        return server.submit(video.address or video.file, form)
    except ServiceRefused as refusal:
        if refusal.status in FOR_ALL:
            raise
        error = refusal.document()
    except OSError as failure:
        error = MissingFile(f"{video.file.name} cannot be read: {failure.strerror}.").document()
    return {"state": "failed", "error": error, "captions": None, "segments": None, "warnings": []}


def _make_lines(video: InputVideo, document: Document, output: CaptionOutput, prefix: str) -> list[str]:
    if output.as_json:
        path = video.address or write_path(video.file)
        return [terminal.printable_json(json.dumps({**document, "file": path}, ensure_ascii=False))]
    captions = [f"{prefix}{each['text']}" for each in document["captions"] or []]
    segments = [
        f"{prefix}{terminal.clock(each['start'])} {terminal.clock(each['end'])} {each['caption']}"
        for each in document["segments"] or []
    ]
    return list(map(terminal.printable, captions + segments))


def _write(server: Server, document: Document, name: str, output: CaptionOutput) -> None:
    """Writes the attention's picture and document, or the segments' file, where they are asked for."""
    job = f"/jobs/{document['id']}"
    if output.attention is not None and document["urls"]["attention"] is not None:
        for suffix in ("json", "png"):
            route = "attention" if suffix == "json" else "attention.png"
            write_file(output.attention / f"{name}.{suffix}", server.get(f"{job}/{route}").content)
    if output.form is not None:
        output.write_film(name, server.get(f"{job}/captions.{output.form}").content)
