"""``python -m lab judge``: captions of all captioners side by side, marked by eye, and the table of marks."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.errors import UsageError
from app.settings import Settings, load_settings
from app.terminal import complain, print_table

if TYPE_CHECKING:
    from app.pipeline.engine import Engine
    from lab.judging.session import JudgingSession

COLUMNS = ("captioner", "right", "partly", "wrong", "judged", "right + ½ partly, %")


def judge(
    clips: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[VIDEO…]", help="Clips, and folders of them.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Captions and marks are kept there.")] = Path(
        "out/judging"
    ),
    captioners: Annotated[
        str | None, typer.Option(help="Captioners with commas between them; default: all.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the page; 0 takes a free one.")] = 0,
    table: Annotated[bool, typer.Option("--table", help="Print the table of marks and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The table as JSON, as cards have it.")] = False,
    verdicts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also count what people said on the page: a file of GET /verdicts."
        ),
    ] = None,
    write_cards: Annotated[
        bool,
        typer.Option("--write-cards", help="Write marks and seconds to the cards of pretrained captioners."),
    ] = False,
) -> None:
    """Mark captions of clips as right, partly right or wrong on a page, and print each captioner's marks."""
    from lab.judging.session import JudgingSession

    session, settings = JudgingSession(out), load_settings()
    add_clips(session, clips or [], settings, captioners)
    if verdicts is not None:
        session.take_verdicts(verdicts.read_text(encoding="utf-8").splitlines())
    if not session.clips:
        raise UsageError(f"There is nothing to judge in {out}: name clips, or folders of them.")
    if not (table or as_json or write_cards):
        serve_page(session, port)
    print_scores(session, as_json=as_json)
    if write_cards:
        write_scores(session, settings)


def add_clips(
    session: JudgingSession, paths: Sequence[Path], settings: Settings, captioners: str | None
) -> None:
    """Captions what the session does not have yet by each captioner.

    Args:
        session: the folder that they come into.
        paths: clips, and folders of them.
        settings: where weights are.
        captioners: names with commas between them, None for all.

    Raises:
        UsageError: there is no clip, or no such captioner.
    """
    from app.extract.inputs import find_videos
    from app.pipeline.engine import Engine
    from app.terminal import show_progress

    earlier = {clip.name for clip in session.clips}
    files = (
        [video.file for video in find_videos(paths, None) if video.file.name not in earlier] if paths else []
    )
    if not files:
        return
    with show_progress(len(files)) as bar:
        bar.say("Loading models")
        engine = Engine(settings)
        names = _chosen(engine, captioners)
        bar.say("Captioning")
        for file in files:
            _add_clip(session, file, names, settings, engine)
            bar.advance()


def _chosen(engine: Engine, captioners: str | None) -> list[str]:
    registered = [info.name for info in engine.info.captioners]
    names = registered if captioners is None else [name.strip() for name in captioners.split(",")]
    if unknown := [name for name in names if name not in registered]:
        raise UsageError(f"There is no captioner called {unknown[0]}; there are: {', '.join(registered)}.")
    return names


def _add_clip(
    session: JudgingSession, file: Path, names: Sequence[str], settings: Settings, engine: Engine
) -> None:
    """A clip that cannot be read is told and left out."""
    from app.documents.job import Timings
    from app.jobs.options import CaptionOptions
    from app.pipeline.caption_files import caption_videos
    from lab.judging.session import WrittenCaption

    captions, frames = {}, None
    for name in names:
        options = CaptionOptions(captioner=name, attention=False)
        (outcome,) = caption_videos([file], options, settings, engine)
        if outcome.error is not None:
            complain(f"{file}: {outcome.error.advice} [{outcome.error.code}]")
            return
        timings = outcome.answer.timings or Timings()
        captions[name] = WrittenCaption(
            text=outcome.answer.caption or "",
            feature_seconds=timings.extract or 0.0,
            caption_seconds=timings.caption or 0.0,
        )
        frames = outcome.frames if frames is None else frames
    if frames is not None:
        session.add(file.name, frames, captions)


def serve_page(session: JudgingSession, port: int) -> None:
    """Serves the page on this machine until Ctrl-C."""
    import uvicorn

    from lab.judging.page import judging_app

    config = uvicorn.Config(judging_app(session), host="127.0.0.1", port=port, log_level="warning")
    listener = config.bind_socket()
    complain(f"Open http://127.0.0.1:{listener.getsockname()[1]} and mark the captions; Ctrl-C ends it.")
    server = uvicorn.Server(config)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()


def print_scores(session: JudgingSession, *, as_json: bool) -> None:
    """Prints each captioner's marks, best first, and how many clips wait for some."""
    from lab.judging.session import card_scores, score_rows, unjudged

    scores = session.scores()
    if as_json:
        entries: Mapping[str, object] = {
            name: card_scores(score, len(session.clips)) for name, score in scores.items()
        }
        print(json.dumps(entries))
    else:
        print_table(COLUMNS, score_rows(scores))
    if left := len(list(unjudged(session.clips))):
        complain(f"{left} of {len(session.clips)} clips have captions without a mark.")


def write_scores(session: JudgingSession, settings: Settings) -> None:
    """Writes marks and seconds to the cards of pretrained captioners, which compete by them.

    Raises:
        UsageError: clips have captions without a mark, whose captioners would look worse or better.
    """
    from app.pipeline.installed_captioners import pretrained_captioners
    from lab.judging.session import card_scores, unjudged
    from models.pretrained.installed import MeasuredSpeed, write_card

    if left := len(list(unjudged(session.clips))):
        raise UsageError(f"{left} clips have captions without a mark: mark them first.")
    installed = pretrained_captioners(settings)
    names = {card.name for card in installed.list()}
    for name, score in session.scores().items():
        if name in names:
            spent = session.seconds[name]
            speed = MeasuredSpeed(
                feature_seconds=round(spent.features / spent.clips, 4),
                caption_seconds=round(spent.captions / spent.clips, 4),
                machine=platform.machine(),
            )
            card = installed.card(name)
            scores = {**card.scores, **card_scores(score, len(session.clips))}
            write_card(installed.path(name), card.model_copy(update={"scores": scores, "speed": speed}))
            print(f"The card of {name} has its marks now.")
