"""Declares ``reelword evaluate``: options, and errors by the option to change."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.cli.model_options import AsJson, FieldsOf
from app.cli.training import shared_options as shared
from models.decoding.options import DecodingOptions

if TYPE_CHECKING:
    from training.evaluation.report import Evaluation, EvaluationSource


MENDABLE: shared.Mendable = {
    "": ("UnknownCaptioner", "WrongSearch"),
    "--device": ("DeviceUnavailable",),
    "--members": ("WrongMembers", "VocabulariesDiffer"),
    "--streams": ("UnknownStreamSet", "StreamMismatch"),
    "--features": ("FeatureMapDamaged", "FeaturesDoNotFit", "UnknownStream", "ImportError"),
    "--data": ("DataSetError",),
}


@dataclass(frozen=True)
class EvaluatedItems:
    """Names what is captioned: pictures, clips, or a set."""

    images: Annotated[Path | None, typer.Option(help="Tar or folder of pictures or frames.")] = None
    references: Annotated[
        Path | None, typer.Option(help="Captions of --images: COCO's JSON form, or MSR-VTT's.")
    ] = None
    clips: Annotated[
        Path | None, typer.Option(help='Video files: a JSON list of {"file", "captions"} beside them.')
    ] = None
    frames: Annotated[
        int | None, typer.Option(help="Frames sampled from a clip; default: as the service samples.")
    ] = None
    data: Annotated[
        Path | None, typer.Option(help="Folder of a captioned set, or of your own videos (docs/data.md).")
    ] = None
    data_set: shared.DataSetName = None
    paper: shared.Paper = None
    split: Annotated[
        str | None, typer.Option(help="Which split; default: val, of --data test where there is one.")
    ] = None
    limit: Annotated[int | None, typer.Option(help="Only the first N.")] = None
    cache: shared.Cache = Path("data/cache")

    def check(self, saved: shared.SavedFeatureOptions) -> None:
        """Refuses items that do not go together or are not there. Raises BadParameter."""
        if [self.images, self.clips, self.data].count(None) != 2 or (self.images and not self.references):
            raise typer.BadParameter("give one of: --images with --references, --clips, --data")
        if saved.features is not None and self.data is None:
            raise typer.BadParameter("--features are of a set's videos: give the set as --data")
        if self.data is not None:
            shared.check_folder("--data", self.data)
        for option, path in (
            ("--images", self.images),
            ("--references", self.references),
            ("--clips", self.clips),
        ):
            if path is not None and not path.exists():
                raise typer.BadParameter(f"{option}: there is no {path}")

    def open(self) -> "EvaluationSource":
        """Returns what training's own evaluation reads."""
        from extractors.windows import FRAMES
        from training.datasets.registry import SetFolder
        from training.evaluation.report import EvaluationSource

        folder = None
        if self.data is not None:
            folder = SetFolder(self.data, self.data_set, self.paper, self.split, self.cache)
        frames = self.frames or FRAMES
        return EvaluationSource(
            self.images, self.references, self.split, self.clips, frames, self.limit, folder
        )


@dataclass(frozen=True)
class ScoreOutput:
    """Holds what is printed and kept of the scores."""

    shuffled: Annotated[bool, typer.Option(help="Also score the same captions given to other videos.")] = (
        False
    )
    show: Annotated[bool, typer.Option(help="Print every caption.")] = False
    captions: Annotated[
        Path | None, typer.Option(help="Write every caption into this file; reelword score reads it.")
    ] = None
    captions_form: Annotated[
        Literal["coco", "vatex"], typer.Option(help="COCO's results, or VATEX' submission, of --captions.")
    ] = "coco"
    record: Annotated[str | None, typer.Option(help="Keep the scores in the captioner's card.")] = None
    as_json: AsJson = False

    def give(self, captioner: str, result: "Evaluation") -> None:
        """Prints the scores, and writes captions and the captioner's card where that is asked for."""
        from training.evaluation.caption_files import write_results
        from training.evaluation.report import record_scores

        if self.captions is not None:
            write_results(self.captions, result.captioned.hypotheses, self.captions_form)
        if self.record is not None:
            record_scores(captioner, self.record, result.report)
        if self.as_json:
            typer.echo(json.dumps(result.to_json()))
        else:
            result.print(self.show)


def evaluate(
    captioner: Annotated[str, typer.Argument(help="A captioner's name, or a checkpoint file.")],
    items: Annotated[EvaluatedItems, FieldsOf("What is captioned")],
    search: Annotated[
        Mapping[str, Any],
        FieldsOf(
            "How captions are searched; what is not said is the checkpoint's recipe's",
            leave_out=("num_captions", "attention", "explanation"),
            model=DecodingOptions,
        ),
    ],
    saved: Annotated[shared.SavedFeatureOptions, FieldsOf()],
    output: Annotated[ScoreOutput, FieldsOf()],
    device: shared.Device = "auto",
    streams: Annotated[
        str | None, typer.Option(help="What it is fed with: a stream set; default: its own.")
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(help="Captioners that fusion or ensemble is made of, with commas between them."),
    ] = None,
    embedding: Annotated[
        Path | None, typer.Option(help="fusion only: the embedding that chooses; default: the service's.")
    ] = None,
    branches: Annotated[
        Literal["st", "ts"] | None, typer.Option(help="STaTS only: read one branch alone.")
    ] = None,
) -> None:
    """Scores a captioner: BLEU, METEOR, ROUGE-L and CIDEr-D with bootstrap intervals."""
    items.check(saved)
    features = saved.open()
    from extractors.engines.engine_choice import open_device
    from training.evaluation.evaluated_captioner import load_evaluated_captioner
    from training.evaluation.report import evaluate_captioner

    with shared.name_option(MENDABLE):
        names = None if members is None else members.split(",")
        source, opened = items.open(), open_device(device)
        stills = source.images is not None
        entry = load_evaluated_captioner(
            captioner, names, streams, branches, source.frames, opened, features, stills, embedding
        )
        result = evaluate_captioner(entry, source, entry.choose_search(search), output.shuffled)
    output.give(captioner, result)
