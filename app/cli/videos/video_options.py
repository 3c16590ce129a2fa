"""Declares what ``caption`` and ``search`` are asked for: how films are cut, what is sought and written."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import AsJson
from app.errors import UsageError

if TYPE_CHECKING:
    from extractors.shots.segment import SegmentOptions

#: As app/documents/exports.py writes them; those that end with json tell words with their moments.
FORMS = ("vtt", "srt", "csv", "json", "coco.json", "fiftyone.json", "labelstudio.json", "chapters.xml")


@dataclass(frozen=True)
class FilmCut:
    """Holds how films are cut into segments."""

    segments: Annotated[
        str | None,
        typer.Option(
            help="How films are cut: shots, none, auto or seconds; default: shots of films over a minute."
        ),
    ] = None
    shortest: Annotated[float, typer.Option(help="Seconds of a segment, at least.")] = 2.0
    longest: Annotated[float, typer.Option(help="Seconds after which a shot is cut.")] = 20.0

    def read(self) -> "SegmentOptions":
        """Returns how films are cut here, by default those that are long. Raises UsageError."""
        from app.segments.loading import segment_options

        return segment_options(self.segments or "auto", self.shortest, self.longest)

    @property
    def here_alone(self) -> list[str]:
        """Names the options that were given and that a service does not have."""
        usual = FilmCut()
        return [
            f"--{name}" for name in ("shortest", "longest") if getattr(self, name) != getattr(usual, name)
        ]


@dataclass(frozen=True)
class CaptionOutput:
    """Holds where captions go, and in which form."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each file.")] = False
    attention: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write <name>.png and <name>.json there, for each file."),
    ] = None
    form: Annotated[str | None, typer.Option("--format", help=f"Write segments as {', '.join(FORMS)}.")] = (
        None
    )
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for these files; default: standard output.")
    ] = None

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in FORMS:
            raise UsageError(f"There is no format {self.form}; there are: {', '.join(FORMS)}.")
        if self.out is not None and self.form is None:
            raise UsageError(f"--out is for files of segments: name their --format ({', '.join(FORMS)}).")

    @property
    def prints_lines(self) -> bool:
        """Returns whether standard output is for lines, rather than for a film's document."""
        return not self.as_json and (self.form is None or self.out is not None)

    @property
    def has_words(self) -> bool:
        """Returns whether words are written with their moments."""
        return self.attention is not None or (self.form or "").endswith("json")

    def write_film(self, name: str, content: bytes) -> None:
        """Writes a film's document, to standard output where there is no folder. Raises UsageError."""
        if self.out is None:
            sys.stdout.write(content.decode())
        else:
            write_file(self.out / f"{name}.{self.form}", content)


@dataclass(frozen=True)
class SearchRequest:
    """Holds what is searched for, and how the answer is shown."""

    words: Annotated[
        str, typer.Argument(help="What is looked for, as a caption would say it.", show_default=False)
    ]
    count: Annotated[int, typer.Option(min=1, help="Moments that are shown, at most.")] = 12
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Write a page of the moments' pictures.")
    ] = None
    segments: Annotated[str, typer.Option(help="How films are cut: shots, none, auto or seconds.")] = "auto"
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if not self.words.strip():
            raise UsageError("There are no words to look for.")


def write_file(target: Path, content: bytes) -> None:
    """Writes a file, and its folder where it is not there. Raises UsageError."""
    from extractors.files import atomic_write

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as file:
            file.write_bytes(content)
    except OSError as error:
        raise UsageError(f"The file {target} cannot be written: {error.strerror}.") from error
